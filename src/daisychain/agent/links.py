"""What is known of the way from one node to another, and what that makes of its cell in the matrix. Pure."""

from dataclasses import dataclass

from daisychain.agent.report import CUT, NO_ANSWER, NO_ROUTE, REACHED, REFUSED, STRANGER, Probe, Report
from daisychain.base import limits

REACHABLE, BLOCKED, SLOW, DEAD, UNKNOWN, SELF = "reachable", "blocked", "slow", "dead", "unknown", "self"
LATENCIES_KEPT = 3
STATES = (REACHABLE, BLOCKED, SLOW, DEAD, UNKNOWN)


@dataclass(frozen=True)
class Cell:
    """One direction. `words` is a sentence for people; the figures are the newest there are, or None."""

    state: str
    words: str
    latency_s: float | None = None
    bandwidth_mb_s: float | None = None
    measured_ago_s: float | None = None


@dataclass
class Link:
    """All that was found on one way, on the dashboard's clock. `instance` is the start of the agent dialled."""

    instance: str
    measured_s: float = -1.0
    outcome: str = NO_ANSWER
    failures: int = 0  # in a row
    failing_since_s: float = 0.0
    latencies_s: tuple[float, ...] = ()  # of the last dials: a busy machine answers late now and then
    bandwidth_mb_s: float | None = None
    bandwidth_s: float | None = None  # when that was measured

    @property
    def latency_s(self) -> float | None:
        """The best of the last dials."""
        return min(self.latencies_s, default=None)

    def take(self, probe: Probe, at_s: float) -> None:
        """One more dial, which ended at `at_s`. One that is older than what is known changes nothing."""
        if at_s <= self.measured_s:
            return
        self.measured_s, self.outcome = at_s, probe.outcome
        if probe.outcome != REACHED:
            self.failing_since_s = self.failing_since_s if self.failures else at_s
            self.failures += 1
            return
        self.failures = 0
        if probe.latency_s is not None:
            self.latencies_s = (*self.latencies_s[1 - LATENCIES_KEPT :], probe.latency_s)
        if probe.bandwidth_mb_s is not None:
            self.bandwidth_mb_s, self.bandwidth_s = probe.bandwidth_mb_s, at_s


@dataclass
class Node:
    """One agent as the dashboard knows it. Times are the dashboard's."""

    report: Report
    heard_s: float
    reached_s: float = -1.0  # when another node last reached it
    clock_off_s: float = 0.0  # how far its clock is ahead

    def silent_s(self, now_s: float) -> float:
        """Seconds since anything was heard of it, by its own report or by another node's dial."""
        return max(0.0, now_s - max(self.heard_s, self.reached_s))

    def is_dead(self, now_s: float) -> bool:
        return self.silent_s(now_s) > limits.AGENT_SILENT_AFTER_S


def judge(
    source: Node, target: Node, there: Link | None, back: Link | None, stale_s: float, now_s: float
) -> Cell:
    """The cell of the way from `source` to `target`. `back` is the other way; results age by `stale_s`."""
    a, b = source.report.name, target.report.name
    if source is target:
        return Cell(SELF, f"{a} itself")
    if target.is_dead(now_s):
        return Cell(DEAD, f"{b} has been silent for {seconds(target.silent_s(now_s))}, and nobody reaches it")
    if source.is_dead(now_s):
        return Cell(UNKNOWN, f"{a} has been silent for {seconds(source.silent_s(now_s))}, so it cannot say")
    if there is None:
        return Cell(UNKNOWN, f"{a} has not dialled {b} yet")
    ago_s = max(0.0, now_s - there.measured_s)
    if ago_s > stale_s:
        return Cell(UNKNOWN, f"{a} last dialled {b} {seconds(ago_s)} ago", measured_ago_s=ago_s)
    if there.failures:
        return _failing(source, target, there, back, ago_s)
    slow = _slowness(there)
    figures = _figures(there)
    state, words = (
        (SLOW, f"{a} reaches {b}, but {slow}") if slow else (REACHABLE, f"{a} reaches {b}: {figures}")
    )
    return Cell(state, words, there.latency_s, there.bandwidth_mb_s, ago_s)


def _failing(source: Node, target: Node, there: Link, back: Link | None, ago_s: float) -> Cell:
    """A way is blocked if it failed often enough, and its target has reported since the failures began.

    Without that a node that has just died would count as blocked until it counts as dead.
    """
    a, b = source.report.name, target.report.name
    if there.failures < limits.PROBE_FAILURES or target.heard_s <= there.failing_since_s:
        return Cell(UNKNOWN, f"{a} has just failed to reach {b}; it is dialled again", measured_ago_s=ago_s)
    place = f"{target.report.address} port {target.report.probe_port}"
    words = f"{a} cannot reach {b} at {place}: {_reason(there.outcome, b)}"
    if back and not back.failures and back.outcome == REACHED:
        words += f". The other way is open: {b} reaches {a}"
    return Cell(BLOCKED, words, measured_ago_s=ago_s)


def _reason(outcome: str, target: str) -> str:
    return {
        REFUSED: f"refused, so a firewall on {target} rejects it, or the address leads to another machine",
        NO_ANSWER: f"no answer, as when a firewall on {target} or on the way drops new connections",
        NO_ROUTE: "there is no route, so they are on networks that do not know each other, or a firewall says no",
        STRANGER: f"something else answers there, so the address leads to another program than {target}'s agent",
        CUT: f"it connects, but {target}'s agent does not answer in time, or something on the way cuts it off",
    }[outcome]


def _slowness(link: Link) -> str:
    """What is slow about a way that is open, in words; empty if nothing is."""
    found = []
    if link.bandwidth_mb_s is not None and link.bandwidth_mb_s < limits.LINK_SLOW_MB_S:
        found.append(
            f"only at {rate(link.bandwidth_mb_s)}; below {rate(limits.LINK_SLOW_MB_S)} a run has to wait"
        )
    if link.latency_s is not None and link.latency_s > limits.LINK_SLOW_LATENCY_S:
        most = milliseconds(limits.LINK_SLOW_LATENCY_S)
        found.append(f"an answer takes {milliseconds(link.latency_s)}; above {most} every step has to wait")
    return ", and ".join(found)


def _figures(link: Link) -> str:
    latency = "no latency" if link.latency_s is None else f"an answer takes {milliseconds(link.latency_s)}"
    bandwidth = "bandwidth not measured yet" if link.bandwidth_mb_s is None else rate(link.bandwidth_mb_s)
    return f"{latency}, {bandwidth}"


def rate(mb_s: float) -> str:
    """5.1 Mbit/s (0.64 MB/s)."""
    return f"{mb_s * 8:.3g} Mbit/s ({mb_s:.2g} MB/s)" if mb_s < 100 else f"{mb_s:,.0f} MB/s"


def milliseconds(duration_s: float) -> str:
    return f"{duration_s * 1e3:.2g} ms" if duration_s < 0.1 else f"{duration_s * 1e3:,.0f} ms"


def seconds(duration_s: float) -> str:
    return f"{duration_s:.0f} s" if duration_s < 120 else f"{duration_s / 60:.0f} min"
