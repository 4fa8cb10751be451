"""A task of your own. Copy this file, change the four methods, and run:

    daisychain train --task examples/my_task_template.py:TwoSpirals

This one learns which of two spirals a point of the plane lies on.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from daisychain.nn import VerifiedLinear
from daisychain.tasks.task import SampleIds, Task, TaskOptions

POINTS = 2_000
HELD_OUT = 400

Batch = tuple[torch.Tensor, torch.Tensor]


class TwoSpirals(Task):
    name = "two-spirals"
    metric = "accuracy"  # the figure of `evaluate` that is shown at the end
    learning_rate = 1e-2

    def __init__(self, options: TaskOptions) -> None:
        """Load or make the data. Every node does this, and must come to the same data: use `options.seed`.

        The command line's flags are in `options`; `options.data` is the path given with --data.
        """
        self.seed = options.seed
        random = np.random.default_rng(options.seed)
        label = random.integers(0, 2, POINTS)
        turn = random.uniform(0.25, 1.5, POINTS)  # how far out on its spiral a point lies
        angle = 2 * math.pi * turn + math.pi * label
        points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1)
        points += random.uniform(-0.05, 0.05, points.shape)
        self.points = torch.from_numpy(points.astype(np.float32))
        self.labels = torch.from_numpy(label)
        self.sample_count = (
            POINTS - HELD_OUT
        )  # samples are numbered 0 … sample_count − 1; the rest is held out

    def build_model(self) -> nn.Module:
        """VerifiedLinear stands in for nn.Linear. Any torch module will do."""
        torch.manual_seed(self.seed)
        return nn.Sequential(
            VerifiedLinear(2, 64), nn.ReLU(), VerifiedLinear(64, 64), nn.ReLU(), VerifiedLinear(64, 2)
        )

    def sample(self, ids: SampleIds) -> Batch:
        """The samples of these numbers, in any form that `loss` takes. The same ids, the same batch."""
        return self.points[ids], self.labels[ids]

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """The mean over the samples in the batch; or a pair (sum, count) where you average over something else."""
        points, labels = batch
        return F.cross_entropy(model(points), labels)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """How good the model is on what it never saw; called without gradients."""
        device = next(model.parameters()).device
        right = model(self.points[-HELD_OUT:].to(device)).argmax(1).cpu() == self.labels[-HELD_OUT:]
        return {"accuracy": right.double().mean().item()}
