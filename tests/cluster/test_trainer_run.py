"""Whole runs on threads: samples, equality, resume, stop."""

import itertools
import json
import threading

import numpy as np
import pytest

from daisychain.base.errors import CheckpointError, ConfigError
from daisychain.cluster.fleet import SoloFleet
from daisychain.cluster.storage import checkpoint
from daisychain.cluster.storage.run_folder import RunFolder

from .trainer_help import NormTask, PointsTask, Run, settings, state_of, together


def train(nodes, make_task=PointsTask, folder=None, shares=None, **changes):
    """Runs of every node; `folder` and `resume_from` go to node 0 alone."""
    leader = {"folder": folder} | {k: changes.pop(k) for k in ("resume_from", "status_file") if k in changes}
    common = {k: changes.pop(k) for k in ("stop",) if k in changes}
    config = settings(**changes)

    def work(fleet):
        return Run(fleet, make_task(), config, shares, **common, **(leader if fleet.rank == 0 else {})).go()

    runs = [work(SoloFleet())] if nodes == 1 else together(nodes, work)
    for run in runs:
        if run.error:
            raise run.error
    return runs


@pytest.fixture
def folder(tmp_path):
    with RunFolder.create(tmp_path, "a", "points") as folder:
        yield folder


def flat(lists):
    return list(itertools.chain.from_iterable(lists))


def used_ids(runs):
    """Sample ids of each step, all nodes together, in order of position."""
    return [flat(parts) for parts in zip(*(run.task.ids for run in runs), strict=True)]


@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
def test_every_number_of_nodes_uses_the_same_samples_each_exactly_once_an_epoch(nodes):
    runs = train(nodes, steps=25, batch_samples=16)
    ids = used_ids(runs)
    assert ids == used_ids(train(1, steps=25, batch_samples=16))
    one_by_one = flat(ids)
    assert sorted(one_by_one[:200]) == list(range(200)) == sorted(one_by_one[200:400])


def test_measured_plans_skip_and_repeat_no_sample():
    runs = train(3, steps=30, plan="measured")
    assert used_ids(runs) == used_ids(train(1, steps=30))
    assert len({report.shares for report in runs[0].reports}) > 1  # the first steps vary on purpose
    assert all(sum(report.shares) == 32 for report in runs[0].reports)


def test_replicas_are_equal_and_the_loss_falls():
    runs = train(3, steps=60, make_task=NormTask)
    assert len({json.dumps({k: v.hex() for k, v in state_of(run).items()}) for run in runs}) == 1
    summary = runs[0].summary
    assert summary.replica_diff == 0
    assert len(set(summary.state_hashes)) == 1
    assert len(summary.state_hashes) == 3
    assert summary.loss_last < summary.loss_first
    assert [run.summary.metrics for run in runs[1:]] == [{}, {}]
    assert summary.metrics["accuracy"] > 0.5


def test_a_run_leaves_config_metrics_checkpoints_and_a_model(folder):
    status = folder.path / "status.json"
    run = train(2, folder=folder, steps=7, checkpoint_every_steps=2, status_file=status)[0]
    rows = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6, 7]
    assert [row["loss"] for row in rows] == [report.loss for report in run.reports]
    assert json.loads(status.read_text())["step"] == 7
    kept = sorted(path.name for path in folder.checkpoints.iterdir())
    assert kept == [f"step-{step:08d}.safetensors" for step in (4, 6, 7)]
    assert run.summary.checkpoint == folder.checkpoints / kept[-1]
    assert checkpoint.verify(folder.model).metrics == run.summary.metrics


@pytest.mark.parametrize("make_task", [PointsTask, NormTask])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_resumed_run_ends_in_the_bits_of_one_that_never_stopped(folder, make_task, optimizer):
    options = {"make_task": make_task, "optimizer": optimizer, "shares": (5, 27), "warmup_steps": 8}
    whole = train(2, steps=12, **options)[0]
    train(2, folder=folder, steps=7, **options)
    again = train(
        2, folder=folder, resume_from=checkpoint.newest_whole(folder.checkpoints), steps=12, **options
    )[0]
    assert state_of(again) == state_of(whole)
    arrays = zip(
        again.trainer.optimizer.arrays().values(), whole.trainer.optimizer.arrays().values(), strict=True
    )
    assert all(np.array_equal(a, b) for a, b in arrays)
    assert again.summary.state_hashes == whole.summary.state_hashes
    rows = [json.loads(line)["step"] for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    assert rows == list(range(1, 13))


@pytest.mark.parametrize(("before", "after"), [(3, 1), (1, 2), (2, 3)])
def test_resume_on_another_number_of_nodes_repeats_and_skips_no_sample(folder, before, after):
    one = train(before, folder=folder, steps=5, plan="measured")
    resume_from = checkpoint.newest_whole(folder.checkpoints)
    two = train(after, folder=folder, resume_from=resume_from, steps=11, batch_samples=32, plan="measured")
    whole = train(1, steps=11)
    assert used_ids(one) + used_ids(two) == used_ids(whole)
    assert two[0].summary.loss_last == pytest.approx(whole[0].summary.loss_last, rel=1e-3)


def test_another_batch_size_goes_on_where_the_samples_ended(folder):
    one = train(1, folder=folder, steps=3, batch_samples=20)
    two = train(
        1,
        folder=folder,
        resume_from=folder.checkpoints / "step-00000003.safetensors",
        steps=17,
        batch_samples=10,
    )
    assert sorted(flat(used_ids(one) + used_ids(two))) == list(range(200))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 3}, "seed"),
        ({"optimizer": "sgd"}, "optimizer"),
        ({"arithmetic": "int8"}, "arithmetic"),
        ({"steps": 3}, "3 steps"),
    ],
)
def test_resume_with_other_settings_is_refused_on_every_node(folder, changes, named):
    train(1, folder=folder, steps=3)
    config = settings(**{"steps": 9} | changes)
    source = folder.checkpoints / "step-00000003.safetensors"

    def work(fleet):
        return Run(fleet, PointsTask(), config, resume_from=source if fleet.rank == 0 else None).go()

    errors = [run.error for run in together(2, work)]
    assert all(isinstance(error, CheckpointError) and named in str(error) for error in errors), errors


def test_another_task_or_model_is_refused(folder):
    train(1, folder=folder, steps=3)
    source = folder.checkpoints / "step-00000003.safetensors"

    class Other(PointsTask):
        name = "other"

    with pytest.raises(CheckpointError, match="other"):
        train(1, make_task=Other, resume_from=source, steps=9)
    with pytest.raises(CheckpointError, match="does not hold model/1"):
        train(1, make_task=NormTask, resume_from=source, steps=9)


def test_nodes_with_other_settings_are_told_which():
    def work(fleet):
        return Run(fleet, PointsTask(), settings(learning_rate=0.1 if fleet.rank else 0.2)).go()

    errors = [run.error for run in together(2, work)]
    assert all(isinstance(error, ConfigError) for error in errors)
    assert len({str(error) for error in errors}) == 1
    assert "node 1 has learning_rate 0.1, node 0 has 0.2" in str(errors[0])


@pytest.mark.parametrize("resumed", [False, True])
def test_a_part_of_the_task_that_differs_is_named_with_both_values(folder, resumed):
    class Told(PointsTask):
        def __init__(self, backward):
            super().__init__()
            self.backward = backward

        def description(self):
            return {"model": {"backward": self.backward, "sizes": (8, 16, 2)}, "data": "x" * 500}

    if resumed:
        train(1, make_task=lambda: Told("float"), folder=folder, steps=3)
        with pytest.raises(CheckpointError, match=r"made with model\.backward 'float', this run has 'int8'"):
            train(
                1,
                make_task=lambda: Told("int8"),
                resume_from=checkpoint.newest_whole(folder.checkpoints),
                steps=9,
            )
        return
    errors = [
        run.error
        for run in together(2, lambda f: Run(f, Told("int8" if f.rank else "float"), settings()).go())
    ]
    assert "node 1 has model.backward 'int8', node 0 has 'float'" in str(errors[0])
    assert str(errors[0]) == str(errors[1])


def test_models_of_other_sizes_are_told_by_their_size():
    class Wide(PointsTask):
        features = 9

        def description(self):
            return {}

    class Narrow(Wide):
        features = 8

    errors = [
        run.error for run in together(2, lambda f: Run(f, Wide() if f.rank else Narrow(), settings()).go())
    ]
    assert all("node 1 has model '4 tensors, 194 numbers, layout " in str(error) for error in errors), errors


def test_a_run_begins_on_disk_when_the_nodes_have_agreed(folder):
    def work(fleet):
        own = {"folder": folder} if fleet.rank == 0 else {}
        return Run(fleet, PointsTask(), settings(seed=fleet.rank), **own).go()

    assert all(isinstance(run.error, ConfigError) for run in together(2, work))
    assert not folder.has_begun()
    train(2, folder=folder)
    config = json.loads((folder.path / "config.json").read_text())
    assert (config["task"], config["run_id"], config["steps"]) == ("points", folder.run_id, 6)


def test_a_task_that_cannot_evaluate_costs_no_model(folder, capsys):
    class Unready(PointsTask):
        def evaluate(self, model):
            model[0].weight.data += 1
            raise OSError("the held-out file is gone")

    (run,) = train(1, make_task=Unready, folder=folder)
    assert run.summary.metrics == {}
    assert checkpoint.verify(run.summary.model).step == 6
    err = capsys.readouterr().err
    assert "evaluate(model) failed: OSError: the held-out file is gone (test_trainer_run.py:" in err


def test_a_node_whose_model_cannot_be_built_ends_all_of_them_by_name():
    class Half(PointsTask):
        def layers(self):
            return super().layers().double()

    def work(fleet):
        return Run(fleet, Half() if fleet.rank == 1 else PointsTask(), settings()).go()

    errors = [str(run.error) for run in together(3, work)]
    assert len(set(errors)) == 1
    assert errors[0].startswith("node 1 cannot start: parameter 0.weight is torch.float64")


def test_a_stop_request_of_one_node_ends_all_after_the_same_step_with_a_checkpoint(folder):
    stop = threading.Event()

    def work(fleet):
        def ask(task, step):
            if step == 4:
                stop.set()

        task = PointsTask(spoil=ask if fleet.rank == 1 else None)
        own = {"stop": stop} if fleet.rank == 1 else {"folder": folder} if fleet.rank == 0 else {}
        return Run(fleet, task, settings(steps=50), **own).go()

    runs = together(3, work)
    assert [run.summary.steps for run in runs] == [5, 5, 5]
    assert all(run.summary.stopped for run in runs)
    assert checkpoint.verify(runs[0].summary.checkpoint).step == 5
    assert runs[0].summary.model is None


def test_warm_up_is_linear_and_then_constant():
    config = settings(warmup_steps=4, learning_rate=0.8)
    assert [config.rate(step) for step in range(6)] == [0.2, 0.4, 0.6000000000000001, 0.8, 0.8, 0.8]
    with pytest.raises(ConfigError, match="learning_rate is nan"):
        settings(learning_rate=float("nan"))
    with pytest.raises(ConfigError, match="steps is 0"):
        settings(steps=0)
