"""What a run writes about itself: when, in which words, and what of it a folder keeps."""

import json
from dataclasses import asdict

import pytest

from daisychain.base.errors import DataError, DataLostError, FleetError, PeerLostError, StoppedError
from daisychain.cluster.aftermath import cause, last_words
from daisychain.cluster.facts import with_links
from daisychain.cluster.fleet.links import Link
from daisychain.cluster.records import Record
from daisychain.cluster.storage.cleaning import EVENT_KINDS, PHASES, ROW, STATUS, known
from daisychain.cluster.storage.events import EventLog
from daisychain.cluster.storage.history import RunReader, list_runs
from daisychain.cluster.storage.journal import Journal, four_digits
from daisychain.cluster.storage.progress import report_of, split_of
from daisychain.cluster.storage.run_folder import RunFolder
from daisychain.cluster.storage.status import StatusFile


def report(step=4):
    units = {"multiply": {"sgemm": 5}}
    records = [Record(rank, step - 1, "ab" * 32, 16, 64, 32.0, 0.25, units=units) for rank in range(2)]
    return report_of(records, split_of(step - 1, [0.25, 0.5], [0.5, 0.25]), step, 9, 0.5, 2.5)


def test_a_step_in_figures():
    now = report()
    assert (now.loss, now.samples_per_s, now.tokens_per_s, now.shares) == (0.5, 64.0, 256.0, (16, 16))
    assert now.unit_invocations == {"multiply": {"sgemm": 10}, "requantise": {}, "relu": {}}
    assert (now.state_hash, now.replicas_equal) == ("ab" * 32, True)
    row = json.loads(json.dumps(asdict(now)))
    assert known(row, ROW) == row  # a reader believes every field that is written


@pytest.mark.parametrize(
    ("compute_s", "exchange_s", "wait_s", "transfer_s"),
    [
        ([1.0, 3.0, 2.0], [2.5, 0.5, 1.5], (2.0, 0.0, 1.0), (0.5, 0.5, 0.5)),  # the second is the slow one
        (
            [1.0, 1.0],
            [0.25, 4.25],
            (0.0, 4.0),
            (0.25, 0.25),
        ),  # the first came late, from writing a checkpoint
        ([0.0, 1.0], [1.25, 0.25], (1.0, 0.0), (0.25, 0.25)),  # a node without samples
        ([2.0], [0.001], (0.0,), (0.001,)),
        ([1.0], [-1e-9], (0.0,), (0.0,)),
    ],
)
def test_whoever_came_last_waited_for_nobody(compute_s, exchange_s, wait_s, transfer_s):
    split = split_of(7, compute_s, exchange_s)
    assert split.step == 7
    assert split.compute_s == tuple(compute_s)
    assert (split.wait_s, split.transfer_s) == (wait_s, transfer_s)


def test_a_split_that_is_not_whole_is_none():
    for compute_s, exchange_s in (([], [1.0]), ([1.0, 1.0], [1.0]), ([1.0, 1.0], [1.0, None])):
        assert split_of(7, compute_s, exchange_s).step == 0


def test_status_is_renewed_now_and_then_and_at_once_when_it_matters(tmp_path):
    clock = [1_000.0]
    status = StatusFile(tmp_path / "status.json", lambda: clock[0])

    def written():
        return json.loads((tmp_path / "status.json").read_text())["step"]

    status.update(phase="starting", step=1)
    assert written() == 1
    status.update(step=2)
    assert written() == 1
    status.update(step=3, phase="training")
    assert written() == 3
    status.update(step=4, text="the data is slow")
    assert written() == 4
    clock[0] += 0.4
    status.update(step=5)
    assert written() == 4
    clock[0] += 0.2
    status.update(step=6)
    assert written() == 6
    clock[0] -= 3_600  # somebody set the clock back
    status.update(step=7)
    assert written() == 7
    content = json.loads((tmp_path / "status.json").read_text())
    assert known(content, STATUS).keys() == content.keys() - {"summary"}  # no run has ended


def test_a_large_figure_is_whole_and_a_small_one_has_four_digits():
    assert [four_digits(value) for value in (13_080.4, 7_694.1, 123.94, 0.15742, 1e300)] == [
        "13,080",
        "7,694",
        "123.9",
        "0.1574",
        "1e+300",
    ]


def test_an_event_is_a_line_even_after_one_that_was_cut(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text('{"time_s": 1, "step": 1, "kind": "pl')
    log = EventLog(path, lambda: 5.0)
    log.add("plan", 3, "two\nlines  and more", shares=[1, 2])
    log.add("plan", 4, "x" * 9_000)
    lines = path.read_text().splitlines()
    assert json.loads(lines[1]) == {
        "time_s": 5.0,
        "step": 3,
        "kind": "plan",
        "text": "two lines and more",
        "shares": [1, 2],
    }
    assert len(lines) == 3
    assert len(json.loads(lines[2])["text"]) == 2_000


def test_a_journal_is_what_a_reader_sees(tmp_path):
    with RunFolder.create(tmp_path, "one", "digits") as folder:
        journal = Journal(folder.path, folder.path / "mine.json")
        reader = RunReader(folder.path)
        journal.starting("trying the kernels")
        assert reader.refresh()
        assert (reader.phase, reader.alive, reader.status["text"]) == ("starting", True, "trying the kernels")
        config = {"task": "digits", "batch_samples": 32}
        folder.begin(config, 0)
        nodes = with_links(
            [{"rank": 0, "host": "a"}, {"rank": 1, "host": "b"}], [Link(80.0, 0.001), Link(9.0, 0.02)]
        )
        journal.begin(0, 9, nodes, config)
        journal.step(report())
        assert reader.refresh()
        assert (reader.phase, reader.steps_done) == ("training", 4)
        assert reader.nodes[1] == {"rank": 1, "host": "b", "link_mb_s": 9.0, "link_latency_s": 0.02}
        assert reader.events[0]["text"] == "digits: 9 steps of 32 samples, on 2 nodes"
        assert reader.events[0]["config"] == config
        assert json.loads((folder.path / "mine.json").read_text())["step"] == 4
        journal.end("failed", "why", 4)
        journal.end("finished", "not heard", 9)
        assert reader.refresh()
        assert (reader.phase, reader.status["text"]) == ("failed", "why")
        assert [event["kind"] for event in reader.events] == ["started", "failed"]
        (listed,) = list_runs(tmp_path)
        assert (listed.phase, listed.step, listed.steps, listed.nodes) == ("failed", 4, 9, 2)
        assert (listed.task, listed.loss) == ("digits", 0.5)


def test_a_journal_without_a_folder_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    journal = Journal(None)
    journal.starting("x")
    journal.begin(0, 9, [], {})
    journal.step(report())
    journal.event("plan", 1, "x")
    journal.end("failed", "x", 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "phase"), [(StoppedError("enough"), "stopped"), (FleetError("nobody came"), "failed")]
)
def test_a_run_that_never_began_says_why_while_it_is_there_and_leaves_no_folder(error, phase, tmp_path):
    def fail(journal):
        with journal.failing():
            journal.starting("waiting for all 3 nodes")
            raise error

    with RunFolder.create(tmp_path, "one", "digits") as folder:
        with pytest.raises(type(error)):
            fail(Journal(folder.path))
        reader = RunReader(folder.path)
        assert (reader.phase, reader.status["text"]) == (phase, str(error))
    assert list(tmp_path.iterdir()) == []
    with RunFolder.create(tmp_path, "two", "digits") as folder:
        (folder.path / "panel.log").write_text("why")
        with pytest.raises(type(error)):
            fail(Journal(folder.path))
    # Somebody else keeps that folder, so it tells why, too.
    assert RunReader(tmp_path / "two").phase == phase


def test_a_resume_that_fails_forgets_no_steps(tmp_path):
    with RunFolder.create(tmp_path, "one", "digits") as folder:
        folder.begin({}, 0)
        first = Journal(folder.path)
        first.begin(0, 9, [{}, {}], {})
        first.step(report())
        first.end("stopped", "enough", 4)
        second = Journal(folder.path)
        second.starting("trying the kernels")
        reader = RunReader(folder.path)
        assert (reader.phase, reader.status["step"], reader.status["loss"]) == ("starting", 4, 0.5)
        with pytest.raises(FleetError), second.failing():
            raise FleetError("nobody came")
        assert reader.refresh()
        assert (reader.phase, reader.status["step"], reader.status["steps"]) == ("failed", 4, 9)
        assert reader.events[-1]["step"] == 4


def test_errors_in_the_words_of_a_run(tmp_path):
    assert cause(PeerLostError("node 1 is lost", (1,))) == ("lost", {"nodes": [1]})
    assert cause(DataError("x")) == ("data", {})
    assert cause(ValueError("x")) == ("fault", {})
    saved = tmp_path / "step-00000007.safetensors"
    run = tmp_path / "my run"
    phase, text = last_words(DataLostError("the hub is away."), saved, run)
    assert phase == "paused"
    assert text == (
        "the hub is away. Saved step-00000007.safetensors; go on with: "
        f"daisychain train --resume --name 'my run' --runs {tmp_path}"
    )
    assert last_words(StoppedError("x"), saved, run)[0] == "stopped"
    assert last_words(DataError("row 7 has no label"), saved, run)[0] == "failed"
    assert last_words(ValueError(), None, run)[1].startswith("ValueError. The last checkpoint is intact;")
    assert {phase, "stopped", "failed"} <= set(PHASES) <= {*EVENT_KINDS, "starting", "training"}
