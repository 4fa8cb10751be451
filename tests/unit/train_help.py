"""Training on one node without a cluster, for tests of tasks."""

import numpy as np
import torch

from daisychain.numerics import sample_ids
from daisychain.tasks import Task, loss_sum_and_count


def train(task: Task, steps: int, seed: int = 0) -> tuple[torch.nn.Module, list[float]]:
    """A model after so many steps, in eval mode, and the loss of each step."""
    model = task.build_model()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], task.learning_rate)
    losses = []
    for step in range(steps):
        places = np.arange(step * task.batch_samples, (step + 1) * task.batch_samples)
        ids = sample_ids(places, task.sample_count, seed)
        total, count = loss_sum_and_count(task.loss(model, task.sample(ids)), len(ids))
        optimizer.zero_grad()
        (total / count).backward()
        optimizer.step()
        losses.append(total.item() / count)
    return model.eval(), losses
