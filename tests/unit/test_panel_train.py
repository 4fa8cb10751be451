"""The control panel's states, and what its settings become, without a browser."""

import random
import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from daisychain.panel.endings import Ending, ending_of
from daisychain.panel.picture import RunPicture
from daisychain.panel.train import state as machine
from daisychain.panel.train.running import in_terminal
from daisychain.panel.train.state import Screen, Sight, State

DONE = Ending("finished", "loss 1.2")


def test_from_settings_to_a_run_to_its_end_and_back() -> None:
    state = machine.start_pressed(State())
    assert machine.start_trouble(state, None, None) == "Starting…"
    assert machine.look(state, Sight()).starting  # a look in between changes nothing
    state = machine.started(state, "a")
    assert (state.screen, state.run, state.starting) == (Screen.RUN, "a", False)
    state = machine.look(state, Sight())  # not seen yet
    assert state.screen is Screen.RUN
    state = machine.look(state, Sight(running="a", busy="a is going on"))
    assert state.screen is Screen.RUN
    state = machine.look(replace(state, notice="a is stopping after this step."), Sight(ending=DONE))
    assert (state.screen, state.ending, state.notice) == (Screen.ENDED, DONE, "")
    assert machine.look(state, Sight(ending=DONE)) == state
    state = machine.back(state)
    assert (state.screen, state.run, state.left) == (Screen.SETTINGS, None, None)
    assert machine.start_trouble(machine.look(state, Sight()), None, None) == ""


def test_a_trainer_that_has_said_nothing_yet_is_starting() -> None:
    before = RunPicture(Path("runs/a"), phase="finished", text="loss 1.2", updated_s=100.0, summary={})
    shown = before.begun_since(500.0)
    assert (shown.phase, shown.alive, shown.text) == ("starting", True, "")
    assert RunPicture(Path("runs/new"), phase="stopped").begun_since(500.0).phase == "starting"
    assert before.begun_since(None) is before
    assert before.begun_since(90.0) is before


def test_a_model_comes_with_the_command_that_uses_it() -> None:
    assert in_terminal("spikewhale", "/runs/a/m") == 'daisychain generate /runs/a/m --prompt "The "'
    assert in_terminal("table", "/my runs/m") == "daisychain predict '/my runs/m' ROWS.csv"


def test_a_page_that_opens_or_waits_finds_the_run() -> None:
    state = machine.look(State(), Sight(running="a", busy="a is going on"))
    assert (state.screen, state.run) == (Screen.RUN, "a")


def test_whoever_goes_back_from_a_run_stays_with_the_settings() -> None:
    running = Sight(running="a", busy="a is going on")
    state = machine.back(machine.look(State(), running))
    state = machine.look(state, running)
    assert state.screen is Screen.SETTINGS
    assert machine.start_trouble(state, None, None) == "a is going on"
    assert machine.show(state).screen is Screen.RUN
    ended = machine.look(state, Sight())
    assert (ended.screen, ended.left) == (Screen.SETTINGS, None)
    next_run = machine.look(machine.look(state, Sight()), running)
    assert next_run.screen is Screen.RUN  # begun anew since
    assert machine.show(State()) == State()  # nothing runs


def test_an_end_that_somebody_reads_stays_until_they_leave_it() -> None:
    state = machine.look(State(screen=Screen.RUN, run="a"), Sight(ending=DONE))
    state = machine.look(state, Sight(running="b", busy="b is going on", ending=DONE))
    assert (state.screen, state.run) == (Screen.ENDED, "a")
    assert machine.show(state).run == "b"
    resumed = machine.look(state, Sight(running="a", busy="a is going on"))
    assert (resumed.screen, resumed.run) == (Screen.RUN, "a")


def test_a_run_that_ends_as_another_begins_is_shown_ended() -> None:
    state = machine.look(State(screen=Screen.RUN, run="a"), Sight(running="b", busy="…", ending=DONE))
    assert (state.screen, state.run, state.ending) == (Screen.ENDED, "a", DONE)


def test_a_refusal_says_why_and_lets_another_try() -> None:
    state = machine.refused(machine.start_pressed(State()), "no room")
    assert (state.notice, state.starting) == ("no room", False)
    assert machine.start_pressed(state).notice == ""
    assert machine.start_trouble(state, "does not fit", None) == "does not fit"
    assert machine.start_trouble(state, "does not fit", "choose a file") == "choose a file"


@pytest.mark.parametrize(
    ("ago_s", "text", "can"),
    [(None, "Stop", True), (0.0, "Stopping after this step…", False), (10.0, "End it by force", True)],
)
def test_the_button_that_stops(ago_s, text, can) -> None:
    assert machine.stop_button(Sight(running="a", stop_asked_ago_s=ago_s), 10.0) == (text, can)


def test_whatever_happens_the_page_shows_something_that_there_is() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(300):
        state, running = State(), None
        for _ in range(40):
            event = chance.randrange(6)
            running = chance.choice([None, "a", "b"]) if chance.random() < 0.3 else running
            if event == 0 and not machine.start_trouble(state, None, None):
                state = machine.start_pressed(state)
            elif event == 1 and state.starting:
                running = chance.choice("ab")
                state = machine.started(state, running)
            elif event == 2 and state.starting:
                state = machine.refused(state, "no")
            elif event == 3 and not state.starting:
                state = machine.back(state)
            elif event == 4 and not state.starting:
                state = machine.show(state)
            ended = DONE if state.run and running != state.run else None
            state = machine.look(
                state, Sight(running=running, busy="busy" if running else None, ending=ended)
            )
            assert (state.screen is Screen.SETTINGS) == (state.run is None)
            assert (state.screen is Screen.ENDED) == (state.ending is not None)
            if state.screen is Screen.RUN and not state.starting:
                assert state.run == running


def test_how_a_trainer_ended(tmp_path) -> None:
    def ending(status: str | None, words: list[str], code: int | None = None) -> tuple[str, str]:
        path = tmp_path / "status.json"
        path.unlink(missing_ok=True)
        if status is not None:
            path.write_text(status)
        found = ending_of(tmp_path, words, 100.0, code)
        return found.kind, found.text

    assert ending('{"phase": "paused", "text": "the hub is away", "updated_s": 150}', []) == (
        "paused",
        "the hub is away",
    )
    old = '{"phase": "finished", "text": "long ago", "updated_s": 50}'
    assert ending(old, ["error: no room."]) == ("failed", "no room.")
    assert ending(None, ["step 1", "error: a", "error: b"])[1] == "b"
    assert ending(None, [], 130)[0] == "stopped"
    assert ending('{"phase": "training", "updated_s": 150}', ["step 3"])[0] == "lost"
    for nonsense in ("", "[", "[]", '{"phase": [], "updated_s": "x"}', '{"phase": {}, "updated_s": 200}'):
        assert ending(nonsense, [], -9) == (
            "lost",
            "the trainer ended without a word (exit code -9); it had no checkpoint yet, so nothing is kept.",
        )
