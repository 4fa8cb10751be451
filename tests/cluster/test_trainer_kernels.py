"""A run's weights do not depend on the kernel, nor on a kernel that breaks while it works."""

import pytest
import torch

from daisychain.cluster.config import TrainConfig
from daisychain.cluster.fleet import SoloFleet
from daisychain.cluster.trainer import Trainer
from daisychain.kernels import Kernels, registry
from daisychain.kernels.registry import all_backends
from daisychain.tasks import TaskOptions, load_task

STEPS = 12


@pytest.fixture
def final_hash(monkeypatch):
    """Train digits for a few steps on a registry of one's own; the hash of the state at the end."""

    def train(kernels):
        monkeypatch.setattr(registry, "_registry", lambda device_type: kernels)
        task = load_task("digits", TaskOptions(), quiet=True)
        config = TrainConfig(steps=STEPS, batch_samples=16)
        return Trainer(task, "digits", SoloFleet(), config).run().state_hashes[0]

    torch.set_num_threads(1)
    return train


@pytest.fixture
def expected(final_hash):
    return final_hash(Kernels(forced="sgemm"))


@pytest.mark.parametrize("name", [b.name for b in all_backends() if b.name not in ("sgemm", "neural")])
def test_every_kernel_gives_the_same_weights(final_hash, expected, name):
    assert final_hash(Kernels(forced=name)) == expected


class Breaking:
    """Right until `breaks_at` products have been made, then wrong in its last column."""

    name = "breaking"
    for_proof = False
    breaks_at = None
    products = 0

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def product(self, a, b, edges):
        self.products += 1
        y = self.inner.product(a, b, edges)
        if self.breaks_at is not None and self.products > self.breaks_at:
            y[:, -1] += 1
        return y


@pytest.mark.parametrize("products", [0, 1, 17, 60])
def test_a_kernel_that_breaks_is_demoted_and_the_weights_are_the_same(final_hash, expected, products, capfd):
    sgemm = next(b for b in all_backends() if b.name == "sgemm")
    breaking = Breaking(sgemm)
    kernels = Kernels([breaking, sgemm])
    kernels.force("breaking", quiet=True)  # it passes the proof
    breaking.breaks_at = breaking.products + products
    assert final_hash(kernels) == expected
    assert not kernels.verdicts["breaking"].admitted
    assert kernels.active.name == "sgemm"
    assert "demoted" in capfd.readouterr().err
