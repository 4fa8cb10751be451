"""The first exchange of a run: every node shows what it is about to train, and all of them are alike or stop."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from daisychain.base import limits
from daisychain.base.errors import ConfigError, FleetError
from daisychain.cluster.config import TrainConfig
from daisychain.cluster.fleet import Fleet
from daisychain.cluster.records import Fault
from daisychain.cluster.replica import Replica

LONGEST_SHOWN = 60  # characters of a value that is compared, and shown, as it is …
LONGEST_LIST = 16  # … and entries of a list of such values


@dataclass(frozen=True)
class Hello:
    """What one node says. `lead` is what the first node of the roster decides for all, `facts` what it tells of
    itself, to be shown and not to be compared."""

    rank: int
    setup: Mapping[str, Any]
    lead: Mapping[str, Any]
    fault: Fault | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def setup_of(
    description: Mapping[str, Any], sample_count: int, task_name: str, config: TrainConfig, replica: Replica
) -> dict[str, Any]:
    """What has to be the same on every node, as small JSON. `description` is the task's."""
    layout = replica.layout()
    size = sum(math.prod(shape) for _, shape in layout.values())
    return {
        "contract": limits.CONTRACT_VERSION,
        "task": task_name,
        **asdict(config),
        "samples": sample_count,
        "description": _condensed(json.loads(json.dumps(description))),
        "model": f"{len(layout)} tensors, {size:,} numbers, layout {_digest(json.dumps(layout, sort_keys=True))}",
    }


def first_difference(here: Mapping[str, Any], there: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first part, in name order, that is not the same, with its two values; None if all are.

    Parts of a task's description are named without it: `model.backward`.
    """
    for name in sorted(here.keys() | there.keys()):
        a, b = here.get(name), there.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            if found := first_difference(a, b):
                return (found[0] if name == "description" else f"{name}.{found[0]}"), *found[1:]
        elif a != b:
            return name, a, b
    return None


def _condensed(value: Any) -> Any:
    """The same JSON with a digest in place of every value that is long."""
    if isinstance(value, dict):
        return {name: _condensed(part) for name, part in value.items()}
    if isinstance(value, list) and len(value) <= LONGEST_LIST:
        return [_condensed(part) for part in value]
    text = json.dumps(value, sort_keys=True)
    return value if len(text) <= LONGEST_SHOWN else _digest(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def exchange(fleet: Fleet, mine: Hello) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """Tell and hear; returns the first node's `lead` and everybody's `facts`, in roster order. Raises a faulty node's
    error, or ConfigError, on every node."""
    hellos = [_decode(data) for data in fleet.gather(json.dumps(asdict(mine)).encode())]
    for hello in hellos:
        if hello.fault:
            raise hello.fault.as_error(f"node {hello.rank} cannot start")
    first = hellos[0]
    for other in hellos[1:]:
        if found := first_difference(first.setup, other.setup):
            name, here, there = found
            raise ConfigError(
                f"node {other.rank} has {name} {there!r}, node {first.rank} has {here!r}; "
                "start every node of a run with the same command and the same data."
            )
    return first.lead, [hello.facts for hello in hellos]


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
