"""One step on a model that is thrown away, so that kernels are chosen at the task's own shapes."""

import numpy as np
import torch

from daisychain import kernels
from daisychain.cluster.share import to_device
from daisychain.tasks.task import Task, loss_sum_and_count
from daisychain.units.counts import counts


def try_kernels(task: Task, samples: int, device: torch.device) -> None:
    """Run forward and backward on as many samples as a node will have, and choose the kernel by what it met."""
    registry = kernels.default(device.type)
    ids = np.arange(min(samples, task.sample_count), dtype=np.int64)
    registry.shapes.clear()
    with counts.paused(), torch.random.fork_rng(devices=[]):
        model = task.build_model().to(device)
        batch = to_device(task.sample(ids), device)
        total, _ = loss_sum_and_count(task.loss(model, batch), len(ids))
        torch.autograd.backward(total)
    if registry.shapes:
        registry.choose()
