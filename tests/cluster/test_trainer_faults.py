"""What goes wrong on one node stops all of them at the same step, by name, with nothing touched."""

import errno
import os
import re

import numpy as np
import pytest
import torch
from torch import nn

from daisychain.base.errors import DataError, NonFiniteError, PeerLostError, ReplicaMismatchError, TaskError
from daisychain.cluster.storage import checkpoint
from daisychain.cluster.storage.run_folder import RunFolder

from .trainer_help import NormTask, PointsTask, Run, settings, state_of, together


def plant_nan(task, step):
    """NaN in one gradient, finite in the loss."""
    task.model[-1].bias.register_hook(lambda gradient: gradient * torch.nan)


def plant_nan_late(task, step):
    """NaN in the gradient of the first layer, which backward meets last."""
    task.model[0].weight.register_hook(lambda gradient: gradient * torch.nan)


def plant_inf_in_data(task, step):
    task.x[:] = torch.inf


def crash(task, step):
    raise RuntimeError("the camera\nis unplugged")


def bad_data(task, step):
    raise DataError("row 7 has no label; fix it.")


def crash_in_backward(task, step):
    def fail(gradient):
        raise MemoryError("no room for 5 GB")

    task.model[0].weight.register_hook(fail)


def fail_at(rank, step, spoil):
    """A task maker: `spoil` happens on node `rank` at `step`."""

    def make(own_rank, kind=PointsTask):
        return kind(spoil=lambda task, now: spoil(task, now) if (own_rank, now) == (rank, step) else None)

    return make


def fails(make, folder, nodes=3, kind=PointsTask, **changes):
    """Runs of every node; each notes its state after every step in `states`."""

    def work(fleet):
        own = {"folder": folder} if fleet.rank == 0 else {}
        run = Run(
            fleet,
            make(fleet.rank, kind),
            settings(**{"steps": 20, "checkpoint_every_steps": 3} | changes),
            **own,
        )
        run.states = []
        run.trainer.report = lambda report: run.states.append(
            (state_of(run), run.trainer.optimizer.numbers())
        )
        return run.go()

    return together(nodes, work)


@pytest.fixture
def folder(tmp_path):
    with RunFolder.create(tmp_path, "a", "points") as folder:
        yield folder


CASES = [
    (plant_nan, NonFiniteError, r"2 of 2 gradients of 2\.bias are NaN or infinite"),
    (plant_nan_late, NonFiniteError, r"128 of 128 gradients of 0\.weight are NaN or infinite"),
    (plant_inf_in_data, NonFiniteError, r"the loss is nan"),
    (
        crash,
        TaskError,
        r"sample\(\) failed: RuntimeError: the camera is unplugged \(test_trainer_faults.py:\d+\)",
    ),
    (bad_data, DataError, r"row 7 has no label"),
    (crash_in_backward, TaskError, r"the backward pass failed: MemoryError: no room for 5 GB"),
]


@pytest.mark.parametrize("kind", [PointsTask, NormTask])
@pytest.mark.parametrize(("spoil", "error", "text"), CASES)
@pytest.mark.parametrize("rank", [0, 2])
def test_a_fault_on_one_node_stops_all_at_that_step_before_the_optimiser(
    kind, spoil, error, text, rank, folder
):
    if kind is NormTask and spoil is plant_nan:
        text = text.replace("2\\.bias", "3\\.bias")
    runs = fails(fail_at(rank, 7, spoil), folder, kind=kind)
    messages = {str(run.error) for run in runs}
    assert len(messages) == 1
    assert re.search(f"node {rank} could not do step 7, .*: {text}", messages.pop())
    for run in runs:
        assert type(run.error) is error
        assert len(run.states) == 7
        assert (state_of(run), run.trainer.optimizer.numbers()) == run.states[-1] == (runs[0].states[-1])
    newest = checkpoint.newest_whole(folder.checkpoints)
    assert checkpoint.read_meta(newest).step == 7  # the state before the step that failed
    layout = {"model/" + name: kind for name, kind in runs[0].trainer.replica.layout().items()}
    saved = checkpoint.load(newest, layout)[1]
    assert {name: saved["model/" + name].tobytes() for name in state_of(runs[0])} == state_of(runs[0])


def test_two_culprits_are_both_named(folder):
    def make(rank, kind):
        return kind(spoil=lambda task, step: crash(task, step) if rank > 0 and step == 2 else None)

    runs = fails(make, folder)
    assert all("node 1 (and on nodes 2) could not do step 2" in str(run.error) for run in runs)


def test_sums_that_overflow_stop_everybody(folder):
    def make(rank, kind):
        class Huge(PointsTask):
            def loss(self, model, batch):
                return model[-1].bias.sum() * 2e37

        return Huge()

    runs = fails(make, folder, nodes=2, batch_samples=20)
    assert {type(run.error) for run in runs} == {NonFiniteError}
    assert len({str(run.error) for run in runs}) == 1
    assert "sums over the nodes" in str(runs[0].error)
    assert all(state_of(run) == state_of(runs[0]) and not run.states for run in runs)


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("name", ["0.weight", "2.bias"])
def test_a_flipped_bit_is_found_at_the_next_gather_with_node_and_tensor(rank, name, folder):
    def flip(task, step):
        bits = dict(task.model.named_parameters())[name].detach().view(-1)[:1].numpy().view(np.uint32)
        bits ^= np.uint32(1)

    # The flip comes while step 5 computes; which of the two hashes sees it first is open, so step 5 or 6 stops.
    runs = fails(fail_at(rank, 5, flip), folder)
    reference = 1 if rank == 0 else 0
    messages = {str(run.error) for run in runs}
    assert len(messages) == 1
    message = messages.pop()
    assert all(type(run.error) is ReplicaMismatchError for run in runs)
    assert re.search(rf"before step [56] .*: node {rank} in '{name}' differs from node {reference};", message)
    assert checkpoint.read_meta(checkpoint.newest_whole(folder.checkpoints)).step == 3


def test_a_difference_after_the_very_last_step_is_found(folder):
    class Late(PointsTask):
        def loss(self, model, batch):
            loss = super().loss(model, batch)
            if len(self.ids) == 20 and self.liar:
                model[0].bias.data[0] += 1e-3
            return loss

    def make(rank, kind):
        task = Late()
        task.liar = rank == 1
        return task

    runs = fails(make, folder)
    assert all(isinstance(run.error, ReplicaMismatchError) for run in runs)
    assert checkpoint.read_meta(checkpoint.newest_whole(folder.checkpoints)).step == 18


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_when_a_node_is_lost_the_first_survivor_saves_the_last_common_state(rank, folder):
    class Gone(BaseException):
        pass

    def die(task, step):
        raise Gone

    runs = fails(fail_at(rank, 7, die), folder, kind=NormTask, checkpoint_every_steps=100)
    survivors = [run for i, run in enumerate(runs) if i != rank]
    assert isinstance(runs[rank], Gone)
    for run in survivors:
        assert isinstance(run.error, PeerLostError)
        assert run.error.nodes == (rank,)
        assert (state_of(survivors[0]), 7) == (run.states[-1][0], len(run.states))
    newest = checkpoint.newest_whole(folder.checkpoints)
    assert checkpoint.read_meta(newest).step == 7
    layout = {"model/" + name: kind for name, kind in survivors[0].trainer.replica.layout().items()}
    saved = checkpoint.load(newest, layout)[1]
    for name, data in survivors[0].states[-1][0].items():
        assert saved["model/" + name].tobytes() == data


def lost_at(step, tmp_path, folder, runs):
    """Node 0 dies; the runs of the two that survive."""

    class Gone(BaseException):
        pass

    def die(task, now):
        raise Gone

    def work(fleet):
        own = {"folder": folder} if fleet.rank == 0 else {"runs": runs}
        return Run(fleet, fail_at(0, step, die)(fleet.rank), settings(steps=20), **own).go()

    return together(3, work)[1:]


def test_another_run_of_that_name_on_the_survivors_machine_is_left_alone(tmp_path, folder, capsys):
    older = folder.checkpoints / "step-00000900.safetensors"
    older.write_bytes(b"an older run")
    folder.begin({"task": "an older run"}, 900)
    folder.run_id = "that of the run on another machine"
    before = sorted(path.name for path in folder.checkpoints.iterdir())
    lost_at(4, tmp_path, folder, tmp_path / "mine")
    assert sorted(path.name for path in folder.checkpoints.iterdir()) == before
    (kept,) = (tmp_path / "mine").glob("a-survivor-*")
    assert checkpoint.read_meta(checkpoint.newest_whole(kept / "checkpoints")).step == 4
    err = capsys.readouterr().err
    assert f"the run's own folder, {folder.path}" in err
    assert f"saved {kept}/checkpoints/step-00000004.safetensors: the state of node 1 after 4 steps" in err


def test_what_a_survivor_has_just_saved_is_never_pruned(tmp_path, folder):
    for step in (700, 800, 900):
        (folder.checkpoints / f"step-00000{step}.safetensors").write_bytes(b"broken")
    lost_at(4, tmp_path, folder, tmp_path)
    assert checkpoint.read_meta(checkpoint.newest_whole(folder.checkpoints)).step == 4
    assert len(list(folder.checkpoints.iterdir())) == 3


def test_a_survivor_saves_nothing_once_the_replicas_were_unequal(folder, capsys):
    """A node is lost while the others look for the tensor that differs."""

    class Gone(BaseException):
        pass

    def flip(task, step):
        task.model[0].weight.data[0, 0] += 1

    def work(fleet):
        own = {"folder": folder} if fleet.rank == 0 else {}
        run = Run(fleet, fail_at(1, 4, flip)(fleet.rank), settings(steps=20), **own)
        whole = run.trainer._name_mismatch

        def lost_meanwhile(reference, others):
            if fleet.rank == 2:
                raise Gone
            return whole(reference, others)

        run.trainer._name_mismatch = lost_meanwhile
        return run.go()

    runs = together(3, work)
    assert all(isinstance(run.error, ReplicaMismatchError) for run in runs[:2])
    assert "node 1 in an unknown tensor (node 2 is lost)" in str(runs[0].error)
    assert list(folder.checkpoints.iterdir()) == []
    assert "saved" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (
            lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none"),
            r"shape \(11,\)",
        ),
        (lambda model, batch: 0.5, "0.5"),
        (lambda model, batch: None, "None"),
        (lambda model, batch: (model(batch[0]).sum(), 2.5), "2.5"),
        (lambda model, batch: (model(batch[0]).sum(), -1), "-1 items"),
        (lambda model, batch: torch.tensor(1.0), "without a gradient"),
        (lambda model, batch: (model(batch[0]).sum(), 0), "0 items"),
    ],
)
def test_losses_of_other_kinds_are_refused(returned, text, folder):
    class Wrong(PointsTask):
        def loss(self, model, batch):
            return returned(model, batch)

    runs = fails(lambda rank, kind: Wrong(), folder)
    assert {type(run.error) for run in runs} == {TaskError}
    assert re.search(text, str(runs[0].error))


def test_a_full_disk_on_the_way_costs_a_checkpoint_and_no_more(folder, monkeypatch, capsys):
    whole = checkpoint.save

    def full_at_six(path, meta, *rest):
        if meta.step == 6:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        whole(path, meta, *rest)

    monkeypatch.setattr(checkpoint, "save", full_at_six)
    (run,) = fails(lambda rank, kind: kind(), folder, nodes=1, steps=10)
    assert run.summary.steps == 10
    steps = [checkpoint.read_meta(path).step for path in sorted(folder.checkpoints.iterdir())]
    assert steps == [3, 9, 10]
    assert "step 6: no checkpoint (No space left on device)" in capsys.readouterr().err


def test_a_full_disk_at_the_end_is_an_error_and_the_last_checkpoint_stays(folder, monkeypatch):
    whole = checkpoint.save

    def full_at_ten(path, meta, *rest):
        if meta.step == 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        whole(path, meta, *rest)

    monkeypatch.setattr(checkpoint, "save", full_at_ten)
    (run,) = fails(lambda rank, kind: kind(), folder, nodes=1, steps=10)
    assert "last checkpoint cannot be written" in str(run.error)
    assert checkpoint.read_meta(checkpoint.newest_whole(folder.checkpoints)).step == 9
