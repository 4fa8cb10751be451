"""A run's files, read while they are written, and when they are not as a run would have written them."""

import itertools
import json
import os
import random
import socket
import subprocess
import sys

import psutil
import pytest

from daisychain.base import limits
from daisychain.base.errors import RunFolderError
from daisychain.cluster.storage.curve import Curve
from daisychain.cluster.storage.history import RunReader, list_runs, phase_of, run_path
from daisychain.cluster.storage.run_folder import RunFolder
from daisychain.cluster.storage.status import is_alive, this_process


def row(step, loss=1.0, **more):
    return {"step": step, "steps": 500, "loss": loss, "samples_per_s": 10.0 + step % 7, "step_s": 0.5} | more


def write(path, rows, mode="w"):
    with open(path, mode) as file:
        file.writelines(json.dumps(one) + "\n" for one in rows)


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "runs" / "one"
    (folder / "checkpoints").mkdir(parents=True)
    return folder


# Rows as they come


def test_rows_are_read_once_as_they_come(run):
    write(run / "metrics.jsonl", map(row, range(1, 11)))
    reader = RunReader(run)
    assert reader.steps_done == 10
    assert reader.series()["step"] == list(range(1, 11))
    assert reader.series()["trained_s"] == [0.5 * step for step in range(1, 11)]
    read = reader.bytes_read
    assert not reader.refresh()
    assert reader.bytes_read == read
    write(run / "metrics.jsonl", [row(11, 0.25)], "a")
    assert reader.refresh()
    new = len(json.dumps(row(11, 0.25))) + 1
    assert (
        new <= reader.bytes_read - read <= new + 64
    )  # and a few bytes to see that it is still the same file
    assert reader.last == row(11, 0.25)


def test_a_line_counts_when_it_is_whole(run):
    line = json.dumps(row(1)).encode() + b"\n"
    path = run / "metrics.jsonl"
    path.write_bytes(line[:20])
    reader = RunReader(run)
    assert reader.last is None
    for piece in (line[20:40], line[40:-1]):
        with open(path, "ab") as file:
            file.write(piece)
        assert not reader.refresh()
    with open(path, "ab") as file:
        file.write(b"\n")
    assert reader.refresh()
    assert reader.steps_done == 1


def test_what_a_resume_drops_is_dropped_here_too(run):
    folder = RunFolder(run)
    folder.begin({}, 0)
    write(run / "metrics.jsonl", [row(step, 9.0) for step in range(1, 31)])
    reader = RunReader(run)
    folder.begin({}, 20)
    write(run / "metrics.jsonl", [row(21, 4.0)], "a")
    assert reader.refresh()
    assert reader.series()["loss"] == [9.0] * 20 + [4.0]
    folder.close()


def test_a_file_that_is_cut_written_anew_in_place_or_gone_starts_over(run):
    path = run / "metrics.jsonl"
    write(path, [row(step, 9.0) for step in range(1, 31)])
    reader = RunReader(run)
    write(path, [row(step, 2.0) for step in range(1, 4)])  # shorter
    assert reader.refresh()
    assert reader.series()["loss"] == [2.0] * 3
    write(path, [row(step, 3.0) for step in range(1, 41)])  # longer, other content, the same file
    assert reader.refresh()
    assert reader.series()["loss"] == [3.0] * 40
    path.unlink()
    assert reader.refresh()
    assert reader.steps_done == 0
    assert reader.last is None
    assert not reader.refresh()
    write(path, [row(1)])
    assert reader.refresh()
    assert reader.steps_done == 1


def test_a_hundred_thousand_rows_stay_small_and_keep_their_spikes(run):
    spikes = {777: 50.0, 54_321: -3.0, 99_990: 80.0}
    write(run / "metrics.jsonl", (row(step, spikes.get(step, 1.0 + step % 3)) for step in range(1, 100_001)))
    reader = RunReader(run)
    assert reader.bytes_read == (run / "metrics.jsonl").stat().st_size
    for points in (50, 600, 5_000):
        series = reader.series(points)
        assert len(series["step"]) <= points
        assert series["step"][0] == 1
        assert series["step"][-1] == 100_000
        shown = dict(zip(series["step"], series["loss"], strict=True))
        assert {step: shown.get(step) for step in spikes} == spikes
    read = reader.bytes_read
    for step in range(100_001, 100_011):
        write(run / "metrics.jsonl", [row(step)], "a")
        assert reader.refresh()
    assert reader.bytes_read - read < 10 * 200


def test_beyond_what_is_held_quiet_stretches_are_thinned_and_real_rows_stay(monkeypatch):
    monkeypatch.setattr(limits, "HISTORY_ROWS", 256)
    curve = Curve()
    rows = {}
    for step in range(1, 5_001):
        rows[step] = (0.25, 100.0 if step in (60, 2_500) else float(step % 5), float(step % 11))
        curve.add(step, *rows[step])
    assert len(curve.rows) <= 256
    assert curve.steps_seen == 5_000
    columns = curve.columns(10_000)
    assert {60, 2_500, 1, 5_000} <= set(columns["step"])
    for step, trained_s, loss, rate in zip(*columns.values(), strict=True):
        assert (loss, rate) == rows[step][1:]
        assert trained_s == pytest.approx(0.25 * step)


# What else a run says


def test_events_keep_the_newest_and_every_glimpse_of_late(run):
    lines = [
        {"time_s": 5.0, "step": step, "kind": "glimpse" if step % 100 == 0 else "plan", "text": f"at {step}"}
        for step in range(2_000)
    ]
    write(run / "events.jsonl", lines)
    reader = RunReader(run)
    assert [event["step"] for event in reader.events] == list(range(1_500, 2_000))
    assert [event["step"] for event in reader.glimpses] == list(range(0, 2_000, 100))
    write(run / "events.jsonl", [lines[0] | {"metrics": {"good": 1.5, "bad": "x", "nan": float("nan")}}], "a")
    assert reader.refresh()
    assert reader.events[-1]["metrics"] == {"good": 1.5}


def test_looks_at_steps_that_are_done_again_are_not_shown_twice(run):
    kinds = [("started", 0), ("glimpse", 3), ("glimpse", 6), ("resumed", 3), ("glimpse", 6), ("glimpse", 9)]
    lines = [
        {"time_s": 5.0 + n, "step": step, "kind": kind, "text": ""} for n, (kind, step) in enumerate(kinds)
    ]
    write(run / "events.jsonl", lines)
    reader = RunReader(run)
    assert [event["time_s"] for event in reader.glimpses] == [6.0, 9.0, 10.0]
    assert len(reader.events) == len(lines)


def test_a_sample_is_a_text_that_is_not_too_long(run):
    glimpse = {"time_s": 5.0, "step": 1, "kind": "glimpse", "text": "at 1"}
    write(run / "events.jsonl", [glimpse | {"sample": sample} for sample in ("x" * 9_000, {"a": 1})])
    assert [event["sample"] for event in RunReader(run).glimpses] == ["x" * limits.EVENT_TEXT_CHARACTERS, ""]


def test_checkpoints_are_listed_latest_first_and_links_are_not(run, tmp_path):
    for step in (3, 100, 20):
        (run / f"checkpoints/step-{step:08d}.safetensors").write_bytes(b"x" * step)
    (run / "checkpoints/step-00000007.safetensors").symlink_to(tmp_path / "secret")
    (run / "checkpoints/.step-00000008.safetensors.1-a.partial").touch()
    (tmp_path / "secret").write_text("secret")
    assert [(step, size) for _, step, size in RunReader(run).checkpoints()] == [(100, 100), (20, 20), (3, 3)]
    (run / "model.safetensors").symlink_to(tmp_path / "secret")
    assert RunReader(run).model is None


def test_a_process_that_died_without_a_word_is_lost():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    born_s = psutil.Process(child.pid).create_time()
    status = {
        "phase": "training",
        **this_process(),
        "pid": child.pid,
        "pid_created_s": born_s,
        "updated_s": 1e9,
    }
    assert is_alive(status)
    assert not is_alive(status | {"pid_created_s": born_s - 3_600})  # the number is another process's now
    assert is_alive(status | {"pid_created_s": born_s - 3_600}, now_s=1e9 + 1)  # … or a clock was set
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(status, now_s=1e9 + 1)  # dead, though nobody has asked how it ended
    child.communicate()
    assert not is_alive(status, now_s=1e9 + 1)
    assert phase_of(None, status) == "lost"
    assert phase_of(None, status | {"phase": "finished"}) == "finished"


def test_a_run_on_another_machine_is_lost_when_it_is_silent_for_long():
    status = {"phase": "starting", "host": socket.gethostname() + "-other", "pid": 1, "updated_s": 1e9}
    assert is_alive(status, now_s=1e9 + limits.STATUS_SILENT_S - 1)
    assert not is_alive(status, now_s=1e9 + limits.STATUS_SILENT_S + 1)


# Folders of runs


def test_names_lead_to_runs_and_nowhere_else(run, tmp_path):
    runs = run.parent
    assert run_path(runs, "one") == run
    (tmp_path / "elsewhere").mkdir()
    (runs / "link").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (runs / "file").touch()
    bad = [
        "..",
        ".",
        "",
        "../elsewhere",
        "one/../../elsewhere",
        "/etc",
        "one/",
        "link",
        "file",
        "two",
        "a\0b",
        "con",
    ]
    for name in bad:
        with pytest.raises(RunFolderError):
            run_path(runs, name)


def test_runs_are_listed_newest_first_from_their_small_files(run):
    runs = run.parent
    for place, name in enumerate(["old", "new", "newer"]):
        (runs / name).mkdir()
        status = {"phase": "finished", "step": place, "steps": 9, "nodes": 2, "loss": 0.5, "text": "done"}
        (runs / name / "status.json").write_text(json.dumps(status))
        (runs / name / "config.json").write_text('{"task": "digits"}')
        for file in (runs / name).iterdir():
            os.utime(file, (1_000 + place, 1_000 + place))
    (runs / "link").symlink_to(runs / "new", target_is_directory=True)
    found = list_runs(runs)
    assert [one.name for one in found] == ["newer", "new", "old"]  # `one` holds nothing yet
    assert (found[0].task, found[0].phase, found[0].step, found[0].steps) == ("digits", "finished", 2, 9)
    assert found[0].updated_s == 1_002
    assert list_runs(runs / "none") == []


def test_a_pipe_or_a_link_in_place_of_a_file_is_an_empty_file(run, tmp_path):
    write(tmp_path / "outside", [row(1)])
    (run / "metrics.jsonl").symlink_to(tmp_path / "outside")
    os.mkfifo(run / "events.jsonl")
    os.mkfifo(run / "status.json")
    reader = RunReader(run)
    assert not reader.refresh()
    assert (reader.steps_done, reader.events, reader.status) == (0, [], {})
    assert [one.name for one in list_runs(run.parent)] == ["one"]


GARBAGE = [
    b"null", b"[]", b"7", b'"x"', b"{}", b"{", b"\xff\xfe", b"[" * 5_000, b'{"step": true, "loss": 1}',
    b'{"step": 5, "steps": 9, "loss": NaN, "samples_per_s": 1, "step_s": 1}',
    b'{"step": 5, "steps": 9, "loss": 1e999, "samples_per_s": 1, "step_s": 1}',
    b'{"step": 5, "steps": 9, "loss": "1", "samples_per_s": 1, "step_s": 1}',
    b'{"step": -5, "loss": 1, "samples_per_s": 1, "step_s": 1}',
    b'{"step": 123456789012345678901234567890, "loss": 1, "samples_per_s": 1, "step_s": 1}',
    b'{"step": 1.5, "loss": 1, "samples_per_s": 1, "step_s": 1}',
    b'{"time_s": 1, "step": 2, "kind": "nonsense", "text": "x"}',
    b'{"time_s": 1, "step": 2, "kind": ["plan"], "text": "x"}',
    b'{"time_s": 1, "step": 2, "kind": "plan", "text": 7}',
    b'{"time_s": 1e400, "step": 2, "kind": "plan", "text": "x"}',
    b"9" * 5_000, b"x" * (limits.RECORD_LINE_BYTES + 1),
]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "events.jsonl", "status.json", "config.json", "nodes.json"]
)
@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_what_no_run_has_written_is_left_out(run, name, garbage):
    good_row, good_event = row(6), {"time_s": 1.0, "step": 1, "kind": "plan", "text": "x"}
    write(run / "metrics.jsonl", [good_row])
    write(run / "events.jsonl", [good_event])
    with open(run / name, "ab" if name.endswith("l") else "wb") as file:
        file.write(garbage + b"\n")
    write(run / "metrics.jsonl", [row(7)], "a")
    reader = RunReader(run)
    assert reader.series()["step"] == [6, 7]
    assert reader.events == [good_event]
    assert set(reader.status) <= {"step", "steps", "loss", "text", "updated_s"}
    assert all(isinstance(node, dict) for node in reader.nodes)
    list_runs(run.parent)


def test_a_field_of_the_wrong_type_is_missing_from_the_last_row(run):
    units = {"multiply": {"sgemm": 5}}
    good = row(
        1, shares=[1, 2], node_wait_s=[0.1, 0.2], unit_invocations=units, state_hash="ab", replicas_equal=True
    )
    write(run / "metrics.jsonl", [good])
    assert RunReader(run).last == good
    bad = {
        "shares": [1, "2"],
        "node_wait_s": {},
        "unit_invocations": {"multiply": 5},
        "state_hash": 5,
        "x": 1,
    }
    write(run / "metrics.jsonl", [good | bad | {"replicas_equal": 1}])
    assert RunReader(run).last == row(1)


def test_random_bytes_never_raise(run):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    draw = random.Random(seed)
    names = ["metrics.jsonl", "events.jsonl", "status.json", "config.json", "nodes.json"]
    whole = json.dumps(
        row(3, shares=[1], unit_invocations={"relu": {"x": 1}}, text="é", kind="plan", time_s=1)
    ).encode()
    reader = RunReader(run)
    for _ in range(300):
        path = run / draw.choice(names)
        content = bytearray(whole + b"\n" + whole)
        for _ in range(draw.randrange(8)):
            content[draw.randrange(len(content))] = draw.randrange(256)
        if draw.random() < 0.3:
            path.write_bytes(content[: draw.randrange(len(content))])
        else:
            with open(path, "ab") as file:
                file.write(content)
        reader.refresh()
        series = reader.series(20)
        assert all(a < b for a, b in itertools.pairwise(series["step"]))
        json.dumps([reader.last, reader.events, reader.nodes, reader.status, reader.phase], allow_nan=True)
        list_runs(run.parent)
