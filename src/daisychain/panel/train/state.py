"""What the control panel shows: settings, a run, or how a run ended. Pure: every event gives the next state.

A page looks about once a second at what runs on this machine, and a person presses buttons; both are events. So every
page that is open, whoever started the run and whenever, comes to show the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from daisychain.panel.endings import Ending


class Screen(Enum):
    SETTINGS = "settings"
    RUN = "run"
    ENDED = "ended"


@dataclass(frozen=True)
class Sight:
    """What a look saw: the run that goes on in this folder of runs, since when it was asked to stop, why nothing can
    be started, and how the run that the page shows has ended, if it has."""

    running: str | None = None
    stop_asked_ago_s: float | None = None
    busy: str | None = None
    ending: Ending | None = None


@dataclass(frozen=True)
class State:
    """`left`: the run that a person went back from while it went on. `notice`: why a press led to nothing."""

    screen: Screen = Screen.SETTINGS
    run: str | None = None
    ending: Ending | None = None
    left: str | None = None
    starting: bool = False
    sight: Sight = Sight()
    notice: str = ""


def look(state: State, sight: Sight) -> State:
    """What runs is seen anew."""
    state = replace(state, sight=sight)
    if state.starting:
        return state
    if state.screen is Screen.RUN and sight.running != state.run:
        if sight.ending is not None:
            return replace(state, screen=Screen.ENDED, ending=sight.ending, notice="")
        if sight.running is None:
            return state  # it is between being started and being seen, or between its end and its last word
    if sight.running is not None and sight.running not in (state.run, state.left):
        if state.screen is Screen.ENDED and state.run is not None:
            return state  # somebody reads how a run ended; what began since is offered to them
        return replace(state, screen=Screen.RUN, run=sight.running, ending=None, left=None, notice="")
    if sight.running is not None and state.screen is Screen.ENDED and sight.running == state.run:
        return replace(state, screen=Screen.RUN, ending=None, notice="")  # another page went on with it
    if state.left is not None and sight.running != state.left:
        state = replace(state, left=None)
    return state


def start_pressed(state: State) -> State:
    return replace(state, starting=True, notice="")


def started(state: State, name: str) -> State:
    """The trainer runs."""
    return State(screen=Screen.RUN, run=name, sight=replace(state.sight, running=name, ending=None))


def refused(state: State, reason: str) -> State:
    """Nothing was started, and this is why."""
    return replace(state, starting=False, notice=reason)


def back(state: State) -> State:
    """To the settings, from a run that goes on or that has ended."""
    going_on = state.screen is Screen.RUN
    return State(left=state.run if going_on else None, sight=state.sight)


def show(state: State) -> State:
    """To the run that goes on."""
    running = state.sight.running
    if running is None:
        return state
    return State(screen=Screen.RUN, run=running, sight=replace(state.sight, ending=None))


def stop_button(sight: Sight, grace_s: float) -> tuple[str, bool]:
    """What the button that stops a run says, and whether it can be pressed."""
    ago_s = sight.stop_asked_ago_s
    if ago_s is None:
        return "Stop", True
    if ago_s < grace_s:
        return "Stopping after this step…", False
    return "End it by force", True


def start_trouble(state: State, unfit: str | None, missing: str | None) -> str:
    """Why Start cannot be pressed; empty if it can. What the machine is doing counts before what is asked of it."""
    if state.starting:
        return "Starting…"
    return state.sight.busy or missing or unfit or ""
