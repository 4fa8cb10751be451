"""The first exchange of a run: every node shows what it is about to train, and all of them are alike or stop."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from daisychain.base import limits
from daisychain.base.errors import ConfigError, FleetError
from daisychain.cluster.config import TrainConfig
from daisychain.cluster.fleet import Fleet
from daisychain.cluster.records import Fault
from daisychain.cluster.replica import Replica
from daisychain.tasks.task import Task


@dataclass(frozen=True)
class Hello:
    """What one node says. `lead` is what the first node of the roster decides for all."""

    rank: int
    setup: Mapping[str, Any]
    lead: Mapping[str, Any]
    fault: Fault | None = None


def setup_of(task: Task, task_name: str, config: TrainConfig, replica: Replica) -> dict[str, Any]:
    """What has to be the same on every node, as small JSON."""
    return {
        "contract": limits.CONTRACT_VERSION,
        "task": task_name,
        **asdict(config),
        "samples": task.sample_count,
        "data": _digest(dict(task.description())),
        "model": _digest(replica.layout()),
    }


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def exchange(fleet: Fleet, mine: Hello) -> Mapping[str, Any]:
    """Tell and hear; returns the first node's `lead`. Raises a faulty node's error, or ConfigError, on every node."""
    hellos = [_decode(data) for data in fleet.gather(json.dumps(asdict(mine)).encode())]
    for hello in hellos:
        if hello.fault:
            raise hello.fault.as_error(f"node {hello.rank} cannot start")
    first = hellos[0]
    for other in hellos[1:]:
        for name in sorted(first.setup.keys() | other.setup.keys()):
            here, there = first.setup.get(name), other.setup.get(name)
            if here != there:
                raise ConfigError(
                    f"node {other.rank} has {name} {there!r}, node {first.rank} has {here!r}; "
                    "start every node of a run with the same command and the same data."
                )
    return first.lead


def _decode(data: bytes) -> Hello:
    try:
        values = json.loads(data)
        values["fault"] = values["fault"] and Fault(**values["fault"])
        return Hello(**values)
    except (ValueError, TypeError, KeyError) as error:
        raise FleetError(
            f"a node sent a greeting that cannot be read ({error}); use one version on all."
        ) from error


def check_subnormals() -> None:
    """Raises ConfigError where this process flushes subnormal numbers, which would change bits."""
    torch.set_flush_denormal(False)
    tiny = torch.full((64,), 1e-40)
    if not bool((tiny * 1.0).all()) or not (tiny.numpy() * tiny.new_ones(1).numpy()).all():
        raise ConfigError("a library in this process flushes subnormal numbers to zero; start without it.")
