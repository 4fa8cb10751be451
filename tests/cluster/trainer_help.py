"""A fleet of threads, and small tasks on which things go wrong in one line."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from daisychain.base.errors import PeerLostError
from daisychain.cluster.config import TrainConfig
from daisychain.cluster.trainer import Trainer

LIMIT_S = 30.0


class Hub:
    """Where the threads of a fleet meet. `lose(rank)` is the death of a node."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.changed = threading.Condition()
        self.slots: dict[int, dict[int, object]] = {}
        self.lost: set[int] = set()

    def put(self, number: int, rank: int, value: object) -> None:
        with self.changed:
            self.slots.setdefault(number, {})[rank] = value
            self.changed.notify_all()

    def get(self, number: int) -> list:
        with self.changed:
            here = self.slots.setdefault(number, {})
            arrived = self.changed.wait_for(lambda: len(here) == self.nodes or self.lost, LIMIT_S)
            if len(here) == self.nodes:
                return [here[rank] for rank in range(self.nodes)]
            assert arrived, f"operation {number}: only {sorted(here)} came"
            raise PeerLostError(f"node {min(self.lost)} is lost", tuple(self.lost))

    def lose(self, rank: int) -> None:
        with self.changed:
            self.lost.add(rank)
            self.changed.notify_all()


class ThreadSum:
    def __init__(self, hub: Hub, number: int, buffer: torch.Tensor) -> None:
        self.hub, self.number, self.buffer = hub, number, buffer

    def wait(self) -> None:
        parts = self.hub.get(self.number)
        total = parts[0].clone()
        for part in parts[1:]:
            total += part
        self.buffer.copy_(total)


class ThreadFleet:
    def __init__(self, hub: Hub, rank: int) -> None:
        self.hub, self.rank = hub, rank
        self.roster = tuple(range(hub.nodes))
        self.operations: list[tuple[str, int]] = []

    def _next(self, kind: str, size: int, value: object) -> int:
        number = len(self.operations)
        self.operations.append((kind, size))
        self.hub.put(number, self.rank, value)
        return number

    def start_sum(self, buffer: torch.Tensor) -> ThreadSum:
        assert buffer.is_contiguous()
        assert buffer.dtype == torch.float32
        return ThreadSum(self.hub, self._next("sum", buffer.numel(), buffer.clone()), buffer)

    def gather(self, record: bytes) -> list[bytes]:
        return self.hub.get(self._next("gather", 0, record))

    def broadcast(self, buffer: torch.Tensor, source: int) -> None:
        buffer.copy_(self.hub.get(self._next("broadcast", buffer.numel(), buffer.clone()))[source])

    def close(self) -> None:
        pass


def together(nodes: int, work: Callable[[ThreadFleet], object]) -> list:
    """`work` on every node at once; each node's result, or the exception that ended it."""
    hub = Hub(nodes)
    results: list[object] = [None] * nodes
    fleets = [ThreadFleet(hub, rank) for rank in range(nodes)]

    def run(rank: int) -> None:
        try:
            results[rank] = work(fleets[rank])
        except BaseException as error:
            results[rank] = error
            if not isinstance(error, PeerLostError):
                hub.lose(rank)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * LIMIT_S)
        assert not thread.is_alive(), "a node hangs"
    # All nodes did the same operations, as far as each of them came.
    shortest = min(len(fleet.operations) for fleet in fleets)
    assert len({tuple(fleet.operations[:shortest]) for fleet in fleets}) == 1
    return results


def settings(**changes: object) -> TrainConfig:
    usual = {"steps": 6, "batch_samples": 32, "plan": "equal", "arithmetic": "float", "learning_rate": 0.01}
    return TrainConfig(**usual | changes)


class PointsTask:
    """Two seeded classes of points and a small float model. `spoil(task, step)` runs at each step before the model."""

    name = "points"
    features = 8

    def __init__(
        self, sample_count: int = 200, spoil: Callable[["PointsTask", int], None] | None = None
    ) -> None:
        random = np.random.default_rng(5)
        self.sample_count = sample_count
        self.x = torch.from_numpy(random.normal(size=(sample_count, self.features)).astype(np.float32))
        self.y = (self.x[:, 0] * self.x[:, 1] > 0).long()
        self.spoil = spoil
        self.ids: list[list[int]] = []
        self.model: nn.Module

    def build_model(self) -> nn.Module:
        generator = torch.Generator().manual_seed(1)
        self.model = self.layers()
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.copy_(torch.rand(parameter.shape, generator=generator) - 0.5)
        return self.model

    def layers(self) -> nn.Module:
        return nn.Sequential(nn.Linear(self.features, 16), nn.ReLU(), nn.Linear(16, 2))

    def sample(self, ids):
        if self.spoil:
            self.spoil(self, len(self.ids))
        self.ids.append(ids.tolist())
        index = torch.from_numpy(ids)
        return self.x[index], self.y[index]

    def loss(self, model, batch):
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    def evaluate(self, model):
        assert not model.training
        return {"accuracy": float((model(self.x).argmax(1) == self.y).float().mean())}

    def description(self):
        return {"features": self.features}


class SumCountTask(PointsTask):
    """A loss over tokens: samples weigh unequally."""

    def loss(self, model, batch):
        weights = 1 + batch[1] * 3
        losses = nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")
        return (losses * weights).sum(), int(weights.sum())


class OddModel(nn.Module):
    """Tied, frozen and unused parameters, a counter, and a mask that holds infinity."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.first = nn.Linear(features, features, bias=False)
        self.again = nn.Linear(features, features, bias=False)
        self.again.weight = self.first.weight
        self.frozen = nn.Linear(features, features)
        self.frozen.requires_grad_(False)
        self.unused = nn.Linear(3, 3)
        self.head = nn.Linear(features, 2)
        self.register_buffer("mask", torch.full((2,), -float("inf")))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("scratch", torch.zeros(3), persistent=False)

    def forward(self, x):
        self.calls += 1
        self.scratch += x.sum()
        return self.head(torch.relu(self.again(torch.relu(self.first(x)) + self.frozen(x))))


class OddTask(PointsTask):
    def layers(self) -> nn.Module:
        return OddModel(self.features)


class NormTask(PointsTask):
    def layers(self) -> nn.Module:
        return nn.Sequential(nn.Linear(self.features, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))


class GradientSpy:
    """An optimiser that keeps the mean gradients it is given and changes nothing, or does plain descent."""

    def __init__(self, size: int, descend: bool = True) -> None:
        self.gradients: list[np.ndarray] = []
        self.descend = descend

    def step(self, weights, gradient, rate):
        self.gradients.append(gradient.copy())
        if self.descend:
            weights -= gradient * np.float32(rate)

    def arrays(self):
        return {}

    def numbers(self):
        return {}

    def load(self, arrays, numbers):
        pass


class Run:
    """What one node of a test run leaves behind."""

    def __init__(self, fleet, task, config, shares=None, **options) -> None:
        self.reports = []
        self.spy = None
        self.task = task
        self.trainer = Trainer(task, task.name, fleet, config, report=self.reports.append, **options)
        self.fleet = fleet
        self.summary = None
        self.error = None
        if shares:
            plain = self.trainer._planner

            def with_shares(plan):
                planner = plain(plan)
                planner.shares = shares
                return planner

            self.trainer._planner = with_shares

    def go(self) -> "Run":
        try:
            self.summary = self.trainer.run()
        except Exception as error:
            self.error = error
            if isinstance(self.fleet, ThreadFleet) and not isinstance(error, PeerLostError):
                self.fleet.hub.lose(self.fleet.rank)
        return self


def state_of(run: Run) -> dict:
    return {name: array.tobytes() for name, array in run.trainer.replica.state().items()}


def start_nodes(spec: dict, environments: list[dict]) -> list[subprocess.Popen]:
    """Real nodes, one process for each of `environments`; see trainer_node.py."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(Path(__file__).parent / "trainer_node.py"), json.dumps(spec)]
    nodes = []
    for rank, own in enumerate(environments):
        cluster = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(len(environments))}
        env = os.environ | {"OMP_NUM_THREADS": "1"} | own | cluster | {"RANK": str(rank)}
        nodes.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    return nodes


def answers_of(nodes: list[subprocess.Popen], without: int | None = None) -> list[dict]:
    """What each node said at its end; the node `without` is not waited for. Ends them all."""
    answers = []
    try:
        for rank, node in enumerate(nodes):
            if rank != without:
                out, err = node.communicate(timeout=90)
                assert node.returncode == 0, err.decode()
                answers.append(json.loads(out.splitlines()[-1]))
    finally:
        for node in nodes:
            node.kill()
            node.communicate()
    return answers
