"""The combined gradient is the full-batch gradient, whatever the shares (pytorch 67253, 31579)."""

import numpy as np
import pytest
import torch
from torch import nn

from daisychain.cluster.fleet import SoloFleet

from .trainer_help import (
    GradientSpy,
    NormTask,
    OddTask,
    PointsTask,
    Run,
    SumCountTask,
    settings,
    state_of,
    together,
)


def spied(make_task, nodes, shares, **changes):
    """Runs of every node, each with its mean gradients."""

    def work(fleet):
        spies = []

        def optimizer(name, size):
            spies.append(GradientSpy(size))
            return spies[0]

        run = Run(fleet, make_task(), settings(**changes), shares=shares, optimizer=optimizer).go()
        assert run.error is None, run.error
        run.gradients = spies[0].gradients
        return run

    return [work(SoloFleet())] if nodes == 1 else together(nodes, work)


def assert_close(some, others):
    for a, b in zip(some, others, strict=True):
        assert np.linalg.norm(a - b) <= 1e-6 * np.linalg.norm(b)


@pytest.mark.parametrize("make_task", [PointsTask, SumCountTask, OddTask])
@pytest.mark.parametrize("shares", [(5, 27), (1, 30, 1), (0, 32)])
def test_unequal_shares_give_the_one_machine_gradient_and_loss(make_task, shares):
    (alone,) = spied(make_task, 1, None)
    runs = spied(make_task, len(shares), shares)
    for run in runs:
        assert_close(run.gradients, alone.gradients)
        losses = [(mine.loss, other.loss) for mine, other in zip(run.reports, alone.reports, strict=True)]
        assert all(abs(a - b) <= 1e-6 * abs(b) for a, b in losses)
        assert run.reports[-1].shares == shares
    assert all(np.array_equal(run.gradients, runs[0].gradients) for run in runs)


def test_a_mean_of_means_would_be_caught():
    """The comparison above can fail: the mean of two unequal means is far from the full-batch gradient."""
    (alone,) = spied(PointsTask, 1, None, steps=1)
    task = PointsTask()
    model = task.build_model()
    ids = np.array(alone.task.ids[0])
    parts = []
    for part in (ids[:5], ids[5:]):
        model.zero_grad()
        task.loss(model, task.sample(part)).backward()
        parts.append(np.concatenate([p.grad.reshape(-1).numpy() for p in model.parameters()]))
    with pytest.raises(AssertionError):
        assert_close([(parts[0] + parts[1]) / 2], alone.gradients)


def test_tied_parameters_count_once_frozen_ones_stand_still_unused_ones_get_zeros():
    runs = spied(OddTask, 2, (5, 27))
    trainer = runs[0].trainer
    assert "again.weight" not in trainer.replica.trainable
    assert list(trainer.replica.frozen) == ["frozen.weight", "frozen.bias"]
    fresh = OddTask().build_model()
    assert torch.equal(trainer.replica.model.frozen.weight, fresh.frozen.weight)
    assert torch.equal(trainer.replica.model.unused.weight, fresh.unused.weight)
    assert not torch.equal(trainer.replica.model.head.weight, fresh.head.weight)
    assert trainer.replica.model.again.weight is trainer.replica.model.first.weight


def test_buffers_are_averaged_by_count_and_counters_agree():
    """One step of batch normalisation on shares 5 and 27 moves the statistics by the weighted mean of the moves."""
    runs = spied(NormTask, 2, (5, 27), steps=1)
    assert state_of(runs[0]) == state_of(runs[1])
    moved = []
    for run in runs:
        model = NormTask().build_model()
        with torch.no_grad():
            model(run.task.x[run.task.ids[0]])
        moved.append(model[1].running_mean.double().numpy())
    expected = (5 * moved[0] + 27 * moved[1]) / 32
    norm = runs[0].trainer.replica.model[1]
    np.testing.assert_allclose(norm.running_mean.numpy(), expected, rtol=1e-6, atol=1e-7)
    assert int(norm.num_batches_tracked) == 1


def test_a_node_without_samples_has_the_same_buffers():
    runs = spied(NormTask, 2, (0, 32), steps=3)
    assert runs[0].task.ids == []
    assert state_of(runs[0]) == state_of(runs[1])
    assert int(runs[0].trainer.replica.model[1].num_batches_tracked) == 3


def test_buffers_that_nobody_changes_keep_their_bits_and_local_ones_stay_local():
    runs = spied(OddTask, 2, (5, 27))
    model = runs[0].trainer.replica.model
    assert torch.equal(model.mask, torch.full((2,), -float("inf")))
    assert int(model.calls) == 6
    assert "scratch" not in runs[0].trainer.replica.state()
    # The counters changed every step; the mask never did, so it was never sent.
    assert not torch.equal(runs[0].trainer.replica.model.scratch, runs[1].trainer.replica.model.scratch)


def test_one_sample_is_the_least_share_that_batch_normalisation_can_have():
    (run,) = spied(NormTask, 1, None, steps=1)
    assert run.trainer.planner.share_min_samples == 2
    assert isinstance(run.trainer.replica.model[1], nn.BatchNorm1d)
