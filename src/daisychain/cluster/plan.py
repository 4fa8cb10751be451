"""Who computes how many samples of a step. Pure: the same records give the same plan on every node.

A step of n samples takes a node (overhead + n) / speed seconds. The overhead, in samples, is what a step costs
whatever its size; it belongs to the task and is measured once, by the first steps, whose shares are uneven on
purpose. Speeds follow the measurements all along, and shares follow the speeds.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from daisychain.base import limits
from daisychain.base.errors import CheckpointError, ConfigError
from daisychain.cluster.fleet.links import Link


def divide(total: int, weights: Sequence[float]) -> tuple[int, ...]:
    """Cut `total` into integer shares in proportion to `weights`, by largest remainder; they sum to `total`.

    Equal remainders go to the lower place. Exact rational arithmetic, so the same everywhere. Raises ConfigError
    for a negative total and for weights that are negative, not finite, or all zero.
    """
    if total < 0 or any(not math.isfinite(w) or w < 0 for w in weights) or not any(weights):
        raise ConfigError(f"{total} samples cannot be divided by the weights {list(weights)}.")
    exact = [Fraction(weight) for weight in weights]
    quotas = [total * weight / sum(exact) for weight in exact]
    shares = [math.floor(quota) for quota in quotas]
    by_remainder = sorted(range(len(shares)), key=lambda i: (shares[i] - quotas[i], i))
    for i in by_remainder[: total - sum(shares)]:
        shares[i] += 1
    return tuple(shares)


def step_time_s(shares: Sequence[int], speeds: Sequence[float], overhead_samples: float) -> float:
    """How long a step computes: as long as its slowest node."""
    return max((overhead_samples + n) / v for n, v in zip(shares, speeds, strict=True) if n)


def divide_by_speed(
    batch_samples: int, speeds: Sequence[float], share_min_samples: int = 1
) -> tuple[tuple[int, ...], list[int]]:
    """Shares in proportion to `speeds` (0: not measured, gets nothing), and the places left out as too slow.

    A node is too slow if its part is more than half a sample short of the least share. The last one stays.
    """
    weights, left_out = list(speeds), list[int]()
    while True:
        shares = divide(batch_samples, weights)
        members = [i for i, weight in enumerate(weights) if weight]
        slowest = min(members, key=lambda i: (weights[i], -i))
        quota = batch_samples * weights[slowest] / sum(weights)
        enough = quota >= share_min_samples - 0.5 and shares[slowest] >= share_min_samples
        if enough or len(members) == 1:
            return shares, sorted(left_out)
        weights[slowest] = 0.0
        left_out.append(slowest)


def overhead_from(soundings: Sequence[Mapping[int, float]], cap_samples: float) -> float:
    """Fixed time of a step, in samples, from each node's time by share: the median over nodes, in 0…cap.

    From t = (overhead + n) / v at two shares: overhead = (r·high − low) / (1 − r), r = t_low / t_high.
    """
    estimates = []
    for times in soundings:
        low, high = min(times), max(times)
        ratio = times[low] / times[high]
        estimate = (ratio * high - low) / (1.0 - ratio) if low < high and ratio < 1.0 else cap_samples
        estimates.append(min(max(estimate, 0.0), cap_samples))
    return sorted(estimates)[len(estimates) // 2]


def link_times_s(links: Sequence[Link], gradient_bytes: int) -> tuple[float, ...]:
    """What one sum of the gradient takes over each node's link: nearly every byte in and out, twice over a ring."""
    nodes = len(links)
    return tuple(2 * gradient_bytes * (nodes - 1) / nodes / (link.rate_mb_s * 1e6) for link in links)


def _is_plan(state: Mapping[str, Any]) -> bool:
    """Whether every part of a saved plan has the type and the range of one."""

    def counts(value: object) -> bool:
        return type(value) is int and 0 <= value < 1 << 53

    def measures(value: object) -> bool:
        return counts(value) or (type(value) is float and math.isfinite(value) and value >= 0.0)

    kinds: dict[str, Callable[[object], bool]] = {"roster": counts, "shares": counts, "speeds": measures}
    return (
        all(isinstance(state.get(name), list) and all(map(kind, state[name])) for name, kind in kinds.items())
        and counts(state.get("batch_samples"))
        and counts(state.get("observed_steps"))
        and measures(state.get("overhead_samples"))
    )


def _usable(samples: int, compute_s: float) -> bool:
    return samples > 0 and math.isfinite(compute_s) and compute_s > 0.0


@dataclass
class Planner:
    """Shares for the next step, from what every node measured in the steps before.

    `fixed` keeps the first shares for good. `link_s` is what one sum of the gradient takes over each node's own
    link. A node without a share still takes part in every sum. It keeps its last speed, and every
    PLAN_PROBE_EVERY_STEPS steps one such node is measured anew on the least share, so that it can come back.
    """

    roster: tuple[int, ...]
    batch_samples: int
    fixed: bool = False
    share_min_samples: int = 1
    link_s: tuple[float, ...] = ()
    shares: tuple[int, ...] = ()
    speeds: list[float] = field(default_factory=list)  # samples/s; 0: not measured
    overhead_samples: float = 0.0
    observed_steps: int = 0
    left_out: dict[int, str] = field(default_factory=dict)  # rank → why it gets nothing
    _said: tuple[int, ...] = ()  # the shares that a person was told last
    _warm: bool = False
    _times_s: list[dict[int, list[float]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        nodes = len(self.roster)
        even = [1.0] * nodes
        self.shares = self.shares or divide_by_speed(self.batch_samples, even, self.share_min_samples)[0]
        self._said = self.shares
        self.speeds = self.speeds or [0.0] * nodes
        self.fixed = self.fixed or nodes == 1
        self._times_s = [{} for _ in self.roster]
        low = min(*self._tilted(0), *self._tilted(1))
        if not self.fixed and low < self.share_min_samples:  # too few samples to tell anything from them
            self.observed_steps = limits.PLAN_SOUNDING_STEPS

    def next_shares(self) -> tuple[int, ...]:
        """Shares of the next step, in roster order; they sum to the batch."""
        if self.fixed or not self._warm:
            return self.shares
        if self._sounding:
            return self._tilted(self.observed_steps)
        if self.observed_steps % limits.PLAN_PROBE_EVERY_STEPS == limits.PLAN_PROBE_EVERY_STEPS - 1:
            return self._probing()
        return self.shares

    def observe(self, samples: Sequence[int], compute_s: Sequence[float]) -> list[str]:
        """Take in one step, in roster order; what a person should know about the plan, if it changed.

        A time that is zero, negative or not finite is no measurement. The first step warms up and does not count.
        """
        if self.fixed:
            return []
        if not self._warm:
            self._warm = True
            return []
        sounding = self._sounding
        self.observed_steps += 1
        for i, (n, time_s) in enumerate(zip(samples, compute_s, strict=True)):
            if not _usable(n, time_s):
                continue
            if sounding:
                self._times_s[i].setdefault(n, []).append(time_s)
            else:
                self._smooth(i, (self.overhead_samples + n) / time_s)
        if sounding and not self._sounding:
            self._end_sounding()
            return self._plan()
        if not self._sounding and self.observed_steps % limits.PLAN_EVERY_STEPS == 0:
            return self._plan()
        return []

    def state(self) -> dict[str, Any]:
        """JSON that a checkpoint holds; `load` takes it back."""
        return {
            "roster": list(self.roster),
            "batch_samples": self.batch_samples,
            "shares": list(self.shares),
            "speeds": self.speeds,
            "overhead_samples": self.overhead_samples,
            "observed_steps": self.observed_steps,
        }

    def load(self, state: Mapping[str, Any]) -> bool:
        """Go on from `state` if it is of this roster and batch; whether it was. CheckpointError if it is no plan."""
        if self.fixed or not state:
            return False
        if not _is_plan(state) or set(state) != set(self.state()):
            raise CheckpointError("the checkpoint's plan is altered; use an earlier checkpoint.")
        shares, speeds, overhead = state["shares"], state["speeds"], state["overhead_samples"]
        fits = (
            state["roster"] == list(self.roster)
            and state["batch_samples"] == self.batch_samples == sum(shares)
            and len(shares) == len(speeds) == len(self.roster)
            and state["observed_steps"] >= limits.PLAN_SOUNDING_STEPS
        )
        if fits:
            self.shares, self.speeds, self.overhead_samples = tuple(shares), list(speeds), overhead
            self.observed_steps = state["observed_steps"]
        return bool(fits)

    @property
    def _sounding(self) -> bool:
        return self.observed_steps < limits.PLAN_SOUNDING_STEPS

    def _tilted(self, turn: int) -> tuple[int, ...]:
        return divide(self.batch_samples, [1.5 if (i + turn) % 2 else 0.5 for i in range(len(self.roster))])

    def _probing(self) -> tuple[int, ...]:
        """One node without a share, in turn, gets the least share from the one with the largest."""
        shares, least = list(self.shares), self.share_min_samples
        idle = [i for i, n in enumerate(shares) if n == 0]
        if idle:
            probed = idle[self.observed_steps // limits.PLAN_PROBE_EVERY_STEPS % len(idle)]
            richest = max(range(len(shares)), key=lambda i: (shares[i], -i))
            shares[probed] = least if shares[richest] >= 2 * least else shares[richest]
            shares[richest] -= shares[probed]
        return tuple(shares)

    def _smooth(self, place: int, speed: float) -> None:
        known = self.speeds[place]
        newest = limits.PLAN_SMOOTHING if known and self.shares[place] else 1.0
        self.speeds[place] = known * (1.0 - newest) + speed * newest

    def _end_sounding(self) -> None:
        """Medians, because a step may be held up once by something else."""
        medians = [{n: sorted(times)[len(times) // 2] for n, times in node.items()} for node in self._times_s]
        self.overhead_samples = overhead_from(
            [m for m in medians if m] or [{1: 1.0}], float(self.batch_samples)
        )
        for i, node in enumerate(medians):
            for n, time_s in node.items():
                self.speeds[i] += (self.overhead_samples + n) / time_s / len(node)

    def _plan(self) -> list[str]:
        if not any(self.speeds) or any(n and not v for n, v in zip(self.shares, self.speeds, strict=True)):
            return []
        shares, reasons = self._best()
        if self._cost_s(shares) >= self._cost_s(self.shares) * (1.0 - limits.PLAN_HYSTERESIS):
            return []
        notes = []
        if max(abs(new - old) for new, old in zip(shares, self._said, strict=True)) * 4 > self.batch_samples:
            notes.append(f"shares are now {', '.join(map(str, shares))} samples (nodes in order).")
            self._said = shares
        for rank, reason in reasons.items():
            if rank not in self.left_out:
                notes.append(f"node {rank} gets no samples: {reason}; it still receives every update.")
        self.shares, self.left_out = shares, reasons
        return notes

    def _best(self) -> tuple[tuple[int, ...], dict[int, str]]:
        """Shares by speed; then without the node on the slowest link, as long as that makes a step shorter."""
        speeds, reasons = list(self.speeds), dict[int, str]()
        shares, slow = divide_by_speed(self.batch_samples, speeds, self.share_min_samples)
        while self.link_s and sum(map(bool, shares)) > 1:
            by_link = sorted((i for i, n in enumerate(shares) if n), key=lambda i: self.link_s[i])
            last, others = by_link[-1], by_link[:-1]
            # Links are measured once and coarsely: only one that stands out can be to blame.
            slow_s = max(
                limits.SLOW_LINK_MIN_S, limits.SLOW_LINK_FACTOR * max(self.link_s[i] for i in others)
            )
            if self.link_s[last] < slow_s:
                break
            fewer = [0.0 if i == last else v for i, v in enumerate(speeds)]
            without, slow_without = divide_by_speed(self.batch_samples, fewer, self.share_min_samples)
            if self._cost_s(without) >= self._cost_s(shares) * (1.0 - limits.PLAN_HYSTERESIS):
                break
            reasons[self.roster[last]] = (
                f"its link takes {self.link_s[last]:.3g} s a step, more than its {shares[last]} samples save: "
                "without it the run is faster"
            )
            speeds, shares, slow = fewer, without, slow_without
        for i in slow:
            part = self.batch_samples * speeds[i] / sum(speeds)
            reasons[self.roster[i]] = (
                f"at {speeds[i]:.3g} samples/s its part is {part:.2f} of the {self.batch_samples} samples of a step"
            )
        return shares, reasons

    def _cost_s(self, shares: Sequence[int]) -> float:
        link_s = max((time_s for time_s, n in zip(self.link_s, shares, strict=False) if n), default=0.0)
        return step_time_s(shares, self.speeds, self.overhead_samples) + link_s
