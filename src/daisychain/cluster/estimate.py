"""What training a SpikeWhale takes of each node, memory and time, before anything is built."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from daisychain import kernels
from daisychain.base import limits
from daisychain.cluster.dry_run import META, DryRun, dry_run
from daisychain.cluster.plan import divide
from daisychain.nn.spikewhale import SpikeWhale, SpikeWhaleConfig, config_for
from daisychain.units.counts import counts

COPIES = 4  # of every number: weight, gradient, and the optimiser's two
ADAM_BYTES = 7 * 4  # read and written a number and step
PASSING = ("activations", "kernel")  # parts that are taken and given back within a step
MEASURED_STEPS = 3
_dry_runs = threading.Lock()  # the products of a dry run are counted in one place


@dataclass(frozen=True)
class Rate:
    """How fast this machine trains, all its cores together; see `measure_rate`."""

    products_per_s: float  # pairs of numbers that the kernels multiply
    bytes_per_s: float  # that everything between the products writes
    operation_s: float  # that any operation takes beside that
    reason: str = ""


@dataclass(frozen=True)
class Estimate:
    """Of one node. `parts` says what the memory is for; `step_s` is None where no rate is known."""

    parameters: int
    memory_bytes: int
    step_s: float | None
    parts: Mapping[str, int] = field(default_factory=dict)
    why: str = ""

    def without(self, *parts: str) -> "Estimate":
        """The same with these parts of the memory elsewhere."""
        left = {name: size for name, size in self.parts.items() if name not in parts}
        return replace(self, parts=left, memory_bytes=_with_margin(left))


def estimate(
    config: SpikeWhaleConfig,
    batch_samples: int,
    nodes: int = 1,
    rate: Rate | None = None,
    *,
    nodes_here: int | None = None,
) -> Estimate:
    """What a run takes from each of its nodes, of which `nodes_here` (default: all) share this machine's cores.

    Memory is the process's at its worst moment, with the largest share of the first steps. A node that is given a
    larger one because it is faster needs more activations in proportion.
    """
    share = largest_share(batch_samples, nodes)
    worst = step_of(config, share)
    parts = {
        "program": limits.TRAINER_BYTES,
        "weights": 4 * COPIES * worst.parameters,
        "activations": worst.live_bytes,
        "kernel": worst.scratch_bytes,
    }
    step_s = None if rate is None else _step_s(config, batch_samples, nodes, nodes_here or nodes, rate)
    samples = f"{share} samples at once leave" if share > 1 else "a sample leaves"
    why = (
        f"{in_words(parts['weights'])} for {worst.parameters:,} weights with gradient and optimiser, "
        f"{in_words(_passing_bytes(parts))} for what {samples} behind, "
        f"{in_words(parts['program'])} for the program itself"
    )
    return Estimate(worst.parameters, _with_margin(parts), step_s, parts, why)


def _with_margin(parts: Mapping[str, int]) -> int:
    """Their sum, and what an allocator keeps of memory that comes and goes."""
    lasting = sum(size for name, size in parts.items() if name not in PASSING)
    return lasting + _passing_bytes(parts)


def _passing_bytes(parts: Mapping[str, int]) -> int:
    passing = sum(size for name, size in parts.items() if name in PASSING)
    return passing + round(passing * limits.ESTIMATE_MARGIN)


def fits(found: Estimate, available_bytes: int, nodes_here: int = 1) -> str | None:
    """None if so many nodes fit into this machine's free memory; else why not and what to reduce."""
    launcher_bytes = limits.TRAINER_BYTES if nodes_here > 1 else 0  # the process that starts the nodes
    needed = found.memory_bytes * nodes_here + launcher_bytes
    if needed <= available_bytes:
        return None
    heaviest = max(("weights", "activations"), key=lambda part: found.parts.get(part, 0))
    advice = {
        "weights": "a smaller width or fewer layers",
        "activations": "fewer samples a step (--batch), a shorter --sequence, or fewer layers",
    }[heaviest]
    each = f"{nodes_here} nodes with {in_words(found.memory_bytes)} each" if nodes_here > 1 else "the run"
    fewer = "fewer --nodes here, " if nodes_here > 1 else ""
    return (
        f"{each} would take {in_words(needed)} of memory, {in_words(available_bytes)} are free here "
        f"({found.why}); use {fewer}{advice}."
    )


def largest_share(batch_samples: int, nodes: int) -> int:
    """What a node may be given in the first steps, whose shares are uneven on purpose (cluster/plan.py)."""
    tilts = [[1.5 if (place + turn) % 2 else 0.5 for place in range(nodes)] for turn in (0, 1)]
    tilted = [share for tilt in tilts for share in divide(batch_samples, tilt)]
    uneven = nodes > 1 and min(tilted) > 0
    return max(1, max(tilted) if uneven else -(-batch_samples // nodes))


@lru_cache(maxsize=512)
def step_of(config: SpikeWhaleConfig, samples: int) -> DryRun:
    """A step of so many samples; from two smaller ones where there are many, for each adds the same.

    Not before the head has as many rows as it takes at once: up to there its logits grow with the samples.
    """
    few = max(2, limits.SPIKEWHALE_LOGIT_ROWS // config.sequence)
    if samples > 3 * few:
        less, more = step_of(config, 2 * few), step_of(config, 3 * few)
        return more.extended(less, (samples - 3 * few) / few)
    windows = torch.empty((samples, config.sequence + 1), dtype=torch.int64, device=META)
    with _dry_runs:
        return dry_run(lambda: SpikeWhale(config), lambda model: _loss(model, windows), samples)


def _loss(model: torch.nn.Module, windows: torch.Tensor) -> tuple[torch.Tensor, int]:
    assert isinstance(model, SpikeWhale)
    return model.loss(windows)


def _step_s(config: SpikeWhaleConfig, batch_samples: int, nodes: int, nodes_here: int, rate: Rate) -> float:
    """Nodes on one machine share its cores, so their work adds up; what an operation takes beside does not."""
    share = max(1, round(batch_samples / nodes))
    step = step_of(config, share)
    work_s = step.multiplied / rate.products_per_s + step.moved_bytes / rate.bytes_per_s
    update_s = ADAM_BYTES * step.parameters / rate.bytes_per_s
    return nodes_here * (work_s + update_s) + step.operations * rate.operation_s


def corrected(rate: Rate, estimated_s: float, measured_s: float) -> Rate:
    """The rate that would have given the step time that a run had."""
    factor = measured_s / estimated_s
    return Rate(
        rate.products_per_s / factor,
        rate.bytes_per_s / factor,
        rate.operation_s * factor,
        f"{rate.reason}; corrected by a run whose steps took {factor:.2g} times as long",
    )


def measure_rate(now_s: Callable[[], float] = time.perf_counter) -> Rate:
    """Measure this machine by a few steps of small models. Takes some seconds where nothing else runs.

    One is mostly operations, one mostly bytes, one mostly products; what each takes is what explains all three best,
    none of it negative.
    """
    registry = kernels.default()
    registry.choose(quiet=True)
    narrow, broad = config_for("tiny", layers=2), config_for(None, width=256, layers=2, sequence=128)
    work, times_s = [], []
    with counts.paused(), torch.random.fork_rng(devices=[]):
        for config, samples in ((narrow, 1), (narrow, 12), (broad, 2)):
            step = step_of(config, samples)
            work.append([step.multiplied, step.moved_bytes, step.operations])
            times_s.append(_measured_step_s(config, samples, now_s))
    unit_s = _explained(np.array(work, float), np.array(times_s))
    reason = f"measured on {registry.name} with {torch.get_num_threads()} threads"
    return Rate(float(1 / unit_s[0]), float(1 / unit_s[1]), float(unit_s[2]), reason)


def _explained(work: NDArray[np.float64], times_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds a unit of each kind of work (columns), from steps (rows); relative errors count alike.

    None is negative: projected coordinate descent, a kind of work after the other. A kind that explains nothing keeps a
    thousandth of the shortest time, so that it has a rate.
    """
    share = work / times_s[:, None]
    least = 1e-3 / share.max(0)
    unit_s = least.copy()
    for _ in range(2_000):
        for kind in range(len(unit_s)):
            column = share[:, kind]
            rest = 1.0 - share @ unit_s + column * unit_s[kind]
            unit_s[kind] = max(least[kind], float(column @ rest) / float(column @ column))
    return unit_s


def _measured_step_s(config: SpikeWhaleConfig, samples: int, now_s: Callable[[], float]) -> float:
    model = SpikeWhale(config)
    windows = torch.zeros((samples, config.sequence + 1), dtype=torch.int64)

    def step() -> None:
        kernels.default().begin_step()
        model.zero_grad(set_to_none=False)
        model.loss(windows)[0].backward()

    step()  # the first warms up
    return min(_timed(step, now_s) for _ in range(MEASURED_STEPS))


def _timed(action: Callable[[], object], now_s: Callable[[], float]) -> float:
    start_s = now_s()
    action()
    return now_s() - start_s


def in_words(size_bytes: float) -> str:
    """`1.4 GB`, `820 MB`."""
    if size_bytes < 1e9:
        return f"{size_bytes / 1e6:.0f} MB"
    return f"{size_bytes / 1e9:.2g} GB" if size_bytes < 9.95e10 else f"{size_bytes / 1e9:,.0f} GB"
