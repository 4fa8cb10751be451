"""What a run tells of itself: every figure is that of the run, looks leave no trace, every end is told."""

import itertools
import json
import re
import threading

import numpy as np
import pytest
import torch

from daisychain import numerics
from daisychain.base import limits
from daisychain.base.errors import DataError, DataLostError, NonFiniteError, StoppedError, TaskError
from daisychain.cluster.fleet import SoloFleet
from daisychain.cluster.storage import checkpoint
from daisychain.cluster.storage.history import RunReader
from daisychain.cluster.storage.run_folder import RunFolder
from daisychain.tasks.task import Glimpse
from daisychain.units.counts import counts

from .trainer_help import (
    GradientSpy,
    NormTask,
    PointsTask,
    Run,
    answers_of,
    settings,
    start_nodes,
    state_of,
    together,
)


@pytest.fixture
def folder(tmp_path):
    with RunFolder.create(tmp_path, "a", "points") as folder:
        yield folder


def train(nodes, make_task, folder=None, **changes):
    leader = {"folder": folder, "resume_from": changes.pop("resume_from", None)}
    common = {k: changes.pop(k) for k in ("stop", "optimizer_of_mine") if k in changes}
    if "optimizer_of_mine" in common:
        common["optimizer"] = common.pop("optimizer_of_mine")
    config = settings(**changes)

    def work(fleet):
        return Run(fleet, make_task(), config, **common, **(leader if fleet.rank == 0 else {})).go()

    return [work(SoloFleet())] if nodes == 1 else together(nodes, work)


def kinds(reader):
    return [event["kind"] for event in reader.events]


# A real run


def test_every_figure_of_a_real_run_of_three_nodes_is_the_runs_own(tmp_path):
    nodes = start_nodes(
        {"steps": 25, "folder": str(tmp_path / "run"), "task": "digits"}, [{"DAISY_KERNEL": "sgemm"}] * 3
    )
    pids = [node.pid for node in nodes]
    (answer, *_) = answers_of(nodes)
    reader = RunReader(tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 26)) == reader.series()["step"]
    assert [rows[0]["loss"], rows[-1]["loss"]] == answer["loss"]
    assert reader.last == rows[-1]

    # Three nodes computed each step, and the rows say where the time went in the one before.
    for row, before in zip(rows[1:], rows, strict=False):
        assert row["split_step"] == before["step"]
        for share, rate, compute_s in zip(
            before["shares"], before["node_samples_per_s"], row["node_compute_s"], strict=True
        ):
            assert share / rate == pytest.approx(compute_s, abs=1e-6)
        assert min(row["node_wait_s"]) == 0.0
        assert len(set(row["node_transfer_s"])) == 1
        own_s = row["node_compute_s"][0] + row["node_wait_s"][0] + row["node_transfer_s"][0]
        assert 0.0 < own_s <= before["step_s"] + 1e-5
    assert (rows[0]["split_step"], rows[0]["node_compute_s"]) == (0, [])

    # Units add up to the summary, and the hashes to the checkpoints.
    totals = [sum(sum(by.values()) for by in row["unit_invocations"].values()) for row in rows]
    assert all(a < b for a, b in itertools.pairwise(totals))
    assert rows[-1]["unit_invocations"] == answer["units"] == reader.status["summary"]["unit_invocations"]
    assert all(row["replicas_equal"] for row in rows)
    assert reader.status["summary"]["state_hashes"] == answer["hashes"]
    for path, step, size in reader.checkpoints():
        meta, tensors = checkpoint.load(path, layout_of(path))
        state = {name.removeprefix("model/"): array for name, array in tensors.items()}
        found = numerics.state_hash(state, step).hex()
        assert found == (rows[step]["state_hash"] if step < 25 else answer["hashes"][0])
        (event,) = [e for e in reader.events if e["kind"] == "checkpoint" and e["step"] == step]
        assert (event["path"], event["bytes"], meta.step) == (path.name, size, step)

    assert [(node["rank"], node["pid"]) for node in reader.nodes] == list(enumerate(pids))
    for node in reader.nodes:
        assert (node["device"], node["threads"]) == ("cpu", 1)
        assert node["link_mb_s"] > 0 < node["link_latency_s"]
        assert node["cores"] >= 1 < node["memory_bytes"]
    assert (reader.phase, reader.status["step"], reader.status["nodes"]) == ("finished", 25, 3)
    assert [kind for kind in kinds(reader) if kind != "plan"] == ["started", *["checkpoint"] * 3, "finished"]
    assert reader.events[-1]["metrics"] == checkpoint.read_meta(reader.model).metrics


def layout_of(path):
    """Names, types and shapes of the model that a checkpoint holds."""
    from safetensors.numpy import load_file

    return {
        name: (a.dtype.str[1:], a.shape) for name, a in load_file(path).items() if name.startswith("model/")
    }


# Looks


class Curious(NormTask):
    """Whose look at the model does what no look should."""

    seen = 0

    def glimpse(self, model):
        assert not model.training
        assert not torch.is_grad_enabled()
        type(self).seen += 1
        counts.add("relu", "look", 5)
        torch.rand(3)
        with torch.no_grad():
            for tensor in model.state_dict().values():
                tensor.add_(1)
        model.zero_grad(set_to_none=False)
        if self.seen == 2:
            raise ValueError("too dark")
        return Glimpse({"sharpness": 0.5, "bad": float("nan")}, "a look\nat it")


def test_a_look_leaves_no_trace_and_one_that_fails_ends_no_run(folder, capsys):
    Curious.seen = 0
    plain = train(2, NormTask, steps=12, checkpoint_every_steps=3)
    looked = train(2, Curious, folder, steps=12, checkpoint_every_steps=3)
    assert [run.error for run in looked] == [None, None]
    assert looked[0].summary.state_hashes == plain[0].summary.state_hashes
    assert looked[0].summary.loss_last == plain[0].summary.loss_last
    assert state_of(looked[0]) == state_of(looked[1]) == state_of(plain[0])
    glimpses = RunReader(folder.path).glimpses
    assert [event["step"] for event in glimpses] == [3, 9, 12]
    assert all(e["metrics"] == {"sharpness": 0.5} and e["text"] == "a look at it" for e in glimpses)
    assert "glimpse() failed: ValueError: too dark" in capsys.readouterr().err
    assert "look" not in str(looked[0].summary.unit_invocations)


@pytest.mark.parametrize("answer", [7, {"text": "x"}, Glimpse([1], "x"), Glimpse({}, 7)])  # type: ignore[arg-type]
def test_a_look_that_answers_something_else_is_a_warning(answer, folder, capsys):
    class Odd(PointsTask):
        def glimpse(self, model):
            return answer

    assert train(1, Odd, folder)[0].error is None
    assert "no glimpse of the model: glimpse returned" in capsys.readouterr().err
    assert RunReader(folder.path).glimpses == []


# Ends


def fail_once(step, error, but_first=lambda: None):
    """A maker of tasks: at `step` the samples of one node, whichever it is, cannot be had."""
    made = []

    def spoil(task, now):
        if now == step and task is made[0]:
            but_first()
            raise error

    def make():
        task = PointsTask(spoil=spoil)
        made.append(task)
        return task

    return make


@pytest.mark.parametrize("nodes", [1, 3])
def test_data_that_fails_pauses_the_run_which_goes_on_as_if_nothing_had_been(nodes, folder):
    error = DataLostError("the hub is away.")
    runs = train(nodes, fail_once(7, error), folder, steps=12, checkpoint_every_steps=100)
    assert all(type(run.error) is DataLostError for run in runs)
    reader = RunReader(folder.path)
    assert reader.phase == reader.status["phase"] == "paused"
    assert kinds(reader) == ["started", "data", "checkpoint", "paused"]
    assert reader.events[1]["text"] == str(runs[0].error)
    assert "the hub is away. Saved step-00000007.safetensors; go on with: " in reader.status["text"]
    assert f"--resume --name a --runs {folder.path.parent}" in reader.status["text"]
    newest = checkpoint.newest_whole(folder.checkpoints)
    again = train(nodes, PointsTask, folder, steps=12, resume_from=newest)
    whole = train(nodes, PointsTask, steps=12)
    assert again[0].summary.state_hashes == whole[0].summary.state_hashes
    assert reader.refresh()
    assert reader.series()["step"] == list(range(1, 13))
    assert kinds(reader)[4:] == ["resumed", "checkpoint", "finished"]
    assert reader.phase == "finished"


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_stop_while_samples_are_waited_for_is_a_stop(nodes, folder, monkeypatch):
    monkeypatch.setattr(limits, "STOP_WAIT_S", 0.1)
    stop, never = threading.Event(), threading.Event()

    class Streamed(PointsTask):
        streamed = True

        def sample(self, ids):
            if len(self.ids) == 4:
                stop.set()
                never.wait(30)
            self.ids.append(ids.tolist())
            index = torch.from_numpy(ids % self.sample_count)
            return self.x[index], self.y[index]

    runs = train(nodes, Streamed, folder, steps=12, stop=stop)
    never.set()
    for run in runs:
        assert type(run.error) is StoppedError
        assert "it was asked to stop while it waited for its samples" in str(run.error)
    reader = RunReader(folder.path)
    assert (reader.phase, reader.steps_done) == ("stopped", 4)
    assert reader.checkpoints()[0][1] == 4
    used = [ids for step in range(4) for run in runs for ids in run.task.ids[step]]
    assert used == list(range(4 * 32))  # in rising order


def test_samples_that_never_come_end_the_run_at_a_limit(folder, monkeypatch):
    monkeypatch.setattr(limits, "SAMPLE_LIMIT_S", 0.1)
    never = threading.Event()

    class Streamed(PointsTask):
        streamed = True

        def sample(self, ids):
            never.wait(30)

    (run,) = train(1, Streamed, folder)
    never.set()
    assert type(run.error) is DataLostError
    assert "did not come within 0.1 s" in str(run.error)
    assert RunReader(folder.path).phase == "paused"


def test_any_other_fault_keeps_the_state_before_it_too(folder):
    runs = train(3, fail_once(5, RuntimeError("broken")), folder, checkpoint_every_steps=100)
    assert all(type(run.error) is TaskError for run in runs)
    reader = RunReader(folder.path)
    assert kinds(reader) == ["started", "fault", "checkpoint", "failed"]
    assert reader.checkpoints()[0][1] == 5
    assert re.search(r"node \d could not do step 5", reader.status["text"])


def test_numbers_that_ran_away_are_not_saved(folder):
    class RunAway(GradientSpy):
        def step(self, weights, gradient, rate):
            super().step(weights, gradient, rate)
            if len(self.gradients) == 4:
                weights[0] = np.inf

    (run,) = train(
        1, PointsTask, folder, checkpoint_every_steps=2, optimizer_of_mine=lambda name, size: RunAway(size)
    )
    assert type(run.error) is NonFiniteError
    assert [step for _, step, _ in RunReader(folder.path).checkpoints()] == [2]
    assert "The last checkpoint is intact" in RunReader(folder.path).status["text"]


def test_a_disk_that_refuses_hides_no_error(folder, monkeypatch, capsys):
    def full(*everything):
        raise OSError(28, "No space left on device")

    def full_later():
        monkeypatch.setattr(checkpoint, "save", full)
        monkeypatch.setattr("daisychain.cluster.storage.journal.write_atomic", full)
        monkeypatch.setattr("daisychain.cluster.storage.events.EventLog.add", full)

    (run,) = train(1, fail_once(5, DataError("the first trouble"), but_first=full_later), folder)
    assert "the first trouble" in str(run.error)
    err = capsys.readouterr().err
    assert "could not be saved" in err
    assert err.count("progress cannot be written") == 1


def test_a_stopped_run_says_so_and_counts_start_anew_when_it_goes_on(folder):
    stop = threading.Event()

    def ask(task, step):
        if step == 3:
            stop.set()

    (run,) = train(1, lambda: PointsTask(spoil=ask), folder, steps=50, stop=stop)
    assert run.summary.stopped
    reader = RunReader(folder.path)
    assert (reader.phase, reader.status["step"], reader.status["steps"]) == ("stopped", 4, 50)
    assert kinds(reader) == ["started", "checkpoint", "stopped"]
    assert reader.status["summary"]["stopped"] is True
