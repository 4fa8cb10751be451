"""What a node tells all others once a step, and what every node concludes from it. Pure."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from daisychain import numerics
from daisychain.base import errors
from daisychain.base.errors import DaisyError, FleetError, TaskError
from daisychain.units.counts import Counts, Table


@dataclass(frozen=True)
class Fault:
    """Why a node cannot finish a step: the name of the error and its message, one line."""

    kind: str
    text: str

    @classmethod
    def of(cls, error: BaseException) -> "Fault":
        kind = type(error).__name__ if isinstance(error, DaisyError) else TaskError.__name__
        what = str(error) if isinstance(error, DaisyError) else f"{type(error).__name__}: {error}"
        return cls(kind, " ".join(what.split())[:500])

    def as_error(self, where: str) -> DaisyError:
        """The same error on every node, saying where it happened."""
        kind = getattr(errors, self.kind, None)
        known = isinstance(kind, type) and issubclass(kind, DaisyError)
        return (kind if known else TaskError)(f"{where}: {self.text}")  # type: ignore[misc]


@dataclass(frozen=True)
class Record:
    """One node's part of one step. `state_hash` (hex) is of the state before the step."""

    rank: int
    step: int
    state_hash: str
    samples: int = 0
    count: int = 0  # what the loss is a mean over: samples, tokens, pixels
    loss_sum: float = 0.0
    compute_s: float = 0.0
    fault: Fault | None = None
    stop: bool = False
    buffers: tuple[int, ...] = ()  # which buffers changed, by their place in the model
    units: Mapping[str, Mapping[str, int]] | None = None  # its invocations so far, this step's included
    exchange_s: float | None = None  # of its step before: from its own gradient to everybody's

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Record":
        try:
            values: dict[str, Any] = json.loads(data)
            if set(values) != {f.name for f in fields(cls)}:
                raise ValueError(f"fields {sorted(values)}")
            values["fault"] = values["fault"] and Fault(**values["fault"])
            return cls(**values | {"buffers": tuple(values["buffers"])})
        except (ValueError, TypeError, AttributeError) as error:
            raise FleetError(
                f"a node sent a record that cannot be read ({error}); use one version on all."
            ) from error


def decode_all(answers: Sequence[bytes], step: int) -> list[Record]:
    """Everybody's record of `step`. Raises FleetError if a node is elsewhere."""
    records = [Record.decode(data) for data in answers]
    for record in records:
        if record.step != step:
            raise FleetError(
                f"node {record.rank} is at step {record.step}, not {step}; start all nodes of a run together."
            )
    return records


def outvoted(records: Sequence[Record]) -> tuple[int, list[int]]:
    """A rank whose state hash most nodes have (the lowest rank's on a tie), and the ranks with another one."""
    votes = Counter(record.state_hash for record in records)
    common = max(votes, key=lambda h: (votes[h], -min(r.rank for r in records if r.state_hash == h)))
    ranks = [r.rank for r in records if r.state_hash == common]
    return min(ranks), [r.rank for r in records if r.state_hash != common]


def check_faults(records: Sequence[Record]) -> None:
    """Raise the first faulty node's error, with its rank and step, on every node alike."""
    faulty = [record for record in records if record.fault]
    if not faulty:
        return
    first = faulty[0]
    assert first.fault is not None
    others = f" (and on nodes {', '.join(str(r.rank) for r in faulty[1:])})" if len(faulty) > 1 else ""
    raise first.fault.as_error(
        f"node {first.rank}{others} could not do step {first.step}, so all nodes stopped before it changed the weights"
    )


def check_count(records: Sequence[Record]) -> int:
    """The sum of counts; TaskError if nothing was counted."""
    total = sum(record.count for record in records)
    if total < 1:
        raise TaskError(
            f"step {records[0].step}: the loss counted {total} items over all nodes; it needs at least one."
        )
    return total


def mean_loss(records: Sequence[Record]) -> float:
    """Σ loss sums over Σ counts, in roster order, float64."""
    return sum(record.loss_sum for record in records) / check_count(records)


def merged_units(records: Sequence[Record]) -> Table:
    """Unit invocations of all nodes together. Raises CountingError for a table that cannot be."""
    merged = Counts()
    for record in records:
        merged.merge(record.units or {})
    return merged.table()


def encode_digests(digests: Mapping[str, str]) -> bytes:
    return json.dumps(digests).encode()


def decode_digests(data: bytes) -> dict[str, str]:
    return dict(json.loads(data))


def first_unequal(reference: Mapping[str, str], other: Mapping[str, str]) -> str:
    """The first name, in name order, whose digest is not the same."""
    return numerics.first_difference(reference, other) or "the step number"
