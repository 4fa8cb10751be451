"""Tasks that meddle with gradients or parameters: trained rightly, or refused; never silently not at all."""

import pytest
import torch

from daisychain.base.errors import TaskError
from daisychain.cluster.config import TrainConfig
from daisychain.cluster.fleet import SoloFleet
from daisychain.cluster.trainer import Trainer
from daisychain.tasks import Task


class Plain(Task):
    name = "plain"
    sample_count = 64

    def build_model(self):
        torch.manual_seed(0)
        return torch.nn.Linear(3, 1)

    def sample(self, ids):
        return torch.from_numpy(ids).float()[:, None].repeat(1, 3) / 64

    def loss(self, model, batch):
        return (model(batch) - batch.sum(1, keepdim=True)).square().mean()


class ZeroGrad(Plain):
    def loss(self, model, batch):
        model.zero_grad()
        return super().loss(model, batch)


class NewGradients(Plain):
    def loss(self, model, batch):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        return super().loss(model, batch)


class Replaces(Plain):
    def loss(self, model, batch):
        model.weight = torch.nn.Parameter(model.weight.detach().clone())
        return super().loss(model, batch)


class ReplacesData(Plain):
    def loss(self, model, batch):
        model.weight.data = model.weight.data.clone()
        return super().loss(model, batch)


def final_hash(task):
    return Trainer(task, "plain", SoloFleet(), TrainConfig(steps=6, batch_samples=8)).run().state_hashes


@pytest.mark.parametrize("task", [ZeroGrad, NewGradients])
def test_gradients_laid_elsewhere_are_brought_home(task):
    assert final_hash(task()) == final_hash(Plain())


@pytest.mark.parametrize("task", [Replaces, ReplacesData])
def test_replaced_parameters_are_refused(task):
    with pytest.raises(TaskError, match="weight was replaced"):
        final_hash(task())
