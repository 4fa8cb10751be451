"""One step in figures, as every node knows it: what a row of metrics.jsonl holds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from daisychain.cluster.records import Record, mean_loss, merged_units


@dataclass(frozen=True)
class Split:
    """Where the time of one step went, a node each, in seconds.

    `compute_s` is the node's own samples, forward and backward. Then every node has the sums and records at about the
    same moment, so whoever came last waited for nobody: what it still needed is `transfer_s`, the same for all, and
    what the others needed beyond that is their `wait_s`. What is sent while a node computes costs no time of its own.
    """

    step: int  # 0: nothing is known yet
    compute_s: tuple[float, ...] = ()
    wait_s: tuple[float, ...] = ()
    transfer_s: tuple[float, ...] = ()


def split_of(step: int, compute_s: Sequence[float], exchange_s: Sequence[float | None]) -> Split:
    """The split of a step from what each node measured: its computing, and from there to everybody's sums and records
    (None: it was not there)."""
    known_s = [max(s, 0.0) for s in exchange_s if s is not None]
    if not compute_s or not len(compute_s) == len(exchange_s) == len(known_s):
        return Split(0)
    last_s = min(known_s)
    wait_s = [s - last_s for s in known_s]
    return Split(step, _rounded(compute_s), _rounded(wait_s), _rounded([last_s] * len(known_s)))


@dataclass(frozen=True)
class StepReport:
    """One step, as every node knows it. Lists are in roster order."""

    step: int  # steps done, this one included
    steps: int
    loss: float
    samples_per_s: float  # of all nodes together, waits included
    node_samples_per_s: tuple[float, ...]  # of each while it computed; 0 without samples
    shares: tuple[int, ...]
    step_s: float
    left_s: float
    tokens_per_s: float | None = None  # where the loss counts other things than samples
    # Where the time went in step `split_step`, the one before: a node hears last how long the others waited. 0: none.
    split_step: int = 0
    node_compute_s: tuple[float, ...] = ()
    node_wait_s: tuple[float, ...] = ()
    node_transfer_s: tuple[float, ...] = ()
    # Runs of the verified units, of all nodes, since this start of the run: unit → backend → count.
    unit_invocations: Mapping[str, Mapping[str, int]] | None = None
    state_hash: str = ""  # of the state before this step, which is the one after `step` − 1 steps
    replicas_equal: bool = True  # whether every node has that hash


def report_of(
    answers: Sequence[Record], split: Split, step: int, steps: int, step_s: float, left_s: float
) -> StepReport:
    """The report of the step that these records were of; `step` steps are done now."""
    samples = sum(record.samples for record in answers)
    counted = sum(record.count for record in answers)
    passed_s = max(step_s, 1e-9)
    return StepReport(
        step=step,
        steps=steps,
        loss=mean_loss(answers),
        samples_per_s=samples / passed_s,
        node_samples_per_s=tuple(r.samples / r.compute_s if r.compute_s > 0 else 0.0 for r in answers),
        shares=tuple(record.samples for record in answers),
        step_s=step_s,
        left_s=left_s,
        tokens_per_s=counted / passed_s if counted != samples else None,
        split_step=split.step,
        node_compute_s=split.compute_s,
        node_wait_s=split.wait_s,
        node_transfer_s=split.transfer_s,
        unit_invocations=merged_units(answers),
        state_hash=answers[0].state_hash,
        replicas_equal=len({record.state_hash for record in answers}) == 1,
    )


def _rounded(seconds: Sequence[float]) -> tuple[float, ...]:
    """To the microsecond, so that a row stays short."""
    return tuple(round(s, 6) for s in seconds)


Report = Callable[[StepReport], None]
