"""Shares of 5 and 27 against one machine, on the verified layers themselves."""

import numpy as np
import pytest
import torch

from daisychain import numerics
from daisychain.tasks import TaskOptions, load_task
from daisychain.tasks.task import loss_sum_and_count


def gradient_and_loss(task, shares):
    """Σ of the shares' gradients and losses over Σ of their counts, for the first step's samples."""
    ids = numerics.sample_ids(np.arange(sum(shares)), task.sample_count, 0)
    total, loss, count = 0.0, 0.0, 0
    for part in np.split(ids, np.cumsum(shares)[:-1]):
        model = task.build_model()
        part_loss, part_count = loss_sum_and_count(task.loss(model, task.sample(part)), len(part))
        part_loss.backward()
        total = total + torch.cat([p.grad.flatten() for p in model.parameters()])
        loss, count = loss + part_loss.item(), count + part_count
    return total / count, loss / count


@pytest.mark.parametrize(
    ("name", "backward", "within"),
    [("digits", "float", 1e-6), ("text", "float", 1e-6), ("text", "int8", 1e-6), ("digits", "int8", 1e-2)],
)
def test_shares_of_5_and_27_are_one_machines_gradient(name, backward, within):
    """An MLP's int8 backward has blocks over the rows of a share, so there its quantisation error differs."""
    task = load_task(name, TaskOptions(backward=backward), quiet=True)
    (whole, whole_loss), (shared, shared_loss) = (gradient_and_loss(task, s) for s in ([32], [5, 27]))
    assert float((whole - shared).norm() / whole.norm()) < within
    assert shared_loss == pytest.approx(whole_loss, abs=1e-6)
