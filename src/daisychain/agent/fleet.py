"""Every node that reports, and every way between two of them: a pure state machine. Time is passed in."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from daisychain.agent.answer import Answer, Peer
from daisychain.agent.links import Cell, Link, Node, judge
from daisychain.agent.report import REACHED, Probe, Report
from daisychain.base import limits
from daisychain.base.errors import ReportError

REPLACED_KEPT = (
    8  # earlier starts of an agent that are remembered, so that a late word of theirs does no harm
)


@dataclass(frozen=True)
class NodeView:
    """One node as a page shows it."""

    report: Report
    silent_s: float  # since anything was heard of it
    unreported_s: float  # since its own last report
    dead: bool
    clock_off_s: float


@dataclass(frozen=True)
class Pool:
    """What the nodes that are alive have together; a machine with several agents counts once."""

    nodes: int
    cores: int
    memory_bytes: int
    memory_free_bytes: int


@dataclass(frozen=True)
class Matrix:
    """`rows[i][j]` is the way from `names[i]` to `names[j]`."""

    names: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass
class _Member(Node):
    replaced: list[str] = field(default_factory=list)  # earlier starts of this agent


class FleetState:
    """All that the dashboard knows of its agents.

    `quiet` pauses the measuring of bandwidth; to be set while a run is going on.
    """

    def __init__(self, secret: str | None = None) -> None:
        self.quiet = False
        self.secret = secret or secrets.token_hex(32)  # by which agents know each other
        self._nodes: dict[str, _Member] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._turns: dict[tuple[str, str], float] = {}  # bandwidth being measured, and until when at most
        self._clashes: dict[
            str, tuple[str, float]
        ] = {}  # a name that a second machine wants, its address, when

    # What agents say

    def observe(self, report: Report, now_s: float, wall_s: float | None = None) -> None:
        """A report has come; `wall_s` is the dashboard's Unix time. One that is late or came twice changes nothing.

        Raises ReportError where another machine has the name (name_taken), and where there are too many nodes (full).
        """
        node = self._nodes.get(report.name)
        if node is None:
            self._make_room(now_s)
            node = self._nodes[report.name] = _Member(report, now_s)
        elif node.report.instance == report.instance:
            if report.sequence <= node.report.sequence:
                return
        else:
            self._replace(node, report, now_s)
        node.report, node.heard_s = report, now_s
        node.clock_off_s = 0.0 if wall_s is None else report.time_s - wall_s

    def observe_probes(self, source: str, probes: Sequence[Probe], now_s: float) -> None:
        """What node `source` found when it dialled others. Dials of nodes that are not known are passed over."""
        if source not in self._nodes:
            return
        for probe in probes:
            target = self._nodes.get(probe.to)
            if target is None or probe.to == source or target.report.instance != probe.instance:
                continue
            pair, at_s = (source, probe.to), now_s - probe.age_s
            self._links.setdefault(pair, Link(probe.instance)).take(probe, at_s)
            if probe.outcome == REACHED:
                target.reached_s = max(target.reached_s, at_s)
            if probe.bandwidth_mb_s is not None or probe.outcome != REACHED:
                self._turns.pop(pair, None)

    def answer(self, name: str, now_s: float) -> Answer:
        """What the agent `name` is told: whom to dial, and whose turn it is to be measured by it, if anybody's."""
        peers = [
            Peer(node.report.name, node.report.instance, node.report.address, node.report.probe_port)
            for other, node in self._nodes.items()
            if other != name and node.silent_s(now_s) <= limits.PROBE_DEAD_FOR_S
        ]
        return Answer(self.secret, tuple(peers), self._take_turn(name, now_s))

    def forget(self, name: str) -> None:
        """Strike a node from the list. If it still reports, it is there again."""
        self._nodes.pop(name, None)
        self._drop_links(name)

    # What pages show

    def nodes(self, now_s: float) -> list[NodeView]:
        """By name."""
        return [
            NodeView(
                node.report,
                node.silent_s(now_s),
                max(0.0, now_s - node.heard_s),
                node.is_dead(now_s),
                node.clock_off_s,
            )
            for _, node in sorted(self._nodes.items())
        ]

    def cell(self, source: str, target: str, now_s: float) -> Cell:
        """The way from one known node to another."""
        there, back = self._links.get((source, target)), self._links.get((target, source))
        stale_s = limits.PROBE_STALE_S + limits.PROBE_LIMIT_S * len(self._nodes)
        return judge(self._nodes[source], self._nodes[target], there, back, stale_s, now_s)

    def matrix(self, now_s: float) -> Matrix:
        names = tuple(sorted(self._nodes))
        return Matrix(names, tuple(tuple(self.cell(a, b, now_s) for b in names) for a in names))

    def pool(self, now_s: float) -> Pool:
        reports = [node.report for node in self._nodes.values() if not node.is_dead(now_s)]
        machines = {(report.host, report.address): report for report in reports}.values()
        return Pool(
            len(reports),
            sum(report.cores for report in machines),
            sum(report.memory_bytes for report in machines),
            sum(report.memory_free_bytes for report in machines),
        )

    def clashes(self, now_s: float) -> list[tuple[str, str]]:
        """Names that a second machine wanted lately, and its address."""
        recent_s = now_s - 3 * limits.AGENT_RETRY_MAX_S
        return [(name, address) for name, (address, at_s) in self._clashes.items() if at_s >= recent_s]

    # Names and numbers

    def _replace(self, node: _Member, report: Report, now_s: float) -> None:
        """Another start of an agent has the name of `node`: the same machine's takes its place, another machine's only
        when the first is dead.
        """
        known, alive = node.report, not node.is_dead(now_s)
        if alive and report.instance in node.replaced:
            raise ReportError(
                f"another agent on this machine has taken the name {report.name}: end one of them, or give it a --name",
                "name_taken",
            )
        if alive and (known.host, known.address) != (report.host, report.address):
            self._clashes = dict([*self._clashes.items()][-limits.FLEET_NODES :])
            self._clashes[report.name] = (report.address, now_s)
            raise ReportError(
                f"the name {report.name} belongs to the node at {known.address}: give this one another --name",
                "name_taken",
            )
        node.replaced = [*node.replaced[1 - REPLACED_KEPT :], known.instance]
        for pair in [pair for pair in self._links if pair[1] == report.name]:
            del self._links[pair]
        self._end_turns(report.name)
        node.reached_s = -1.0

    def _make_room(self, now_s: float) -> None:
        for name, node in list(self._nodes.items()):
            if node.silent_s(now_s) > limits.AGENT_FORGOTTEN_AFTER_S:
                self.forget(name)
        if len(self._nodes) < limits.FLEET_NODES:
            return
        name, node = max(self._nodes.items(), key=lambda item: item[1].silent_s(now_s))
        if not node.is_dead(now_s):
            raise ReportError(
                f"{limits.FLEET_NODES} nodes report already, and there is no room for more", "full"
            )
        self.forget(name)

    def _drop_links(self, name: str) -> None:
        self._links = {pair: link for pair, link in self._links.items() if name not in pair}
        self._end_turns(name)

    def _end_turns(self, name: str) -> None:
        self._turns = {pair: until_s for pair, until_s in self._turns.items() if name not in pair}

    # Turns: a node takes part in one measurement of bandwidth at a time

    def _take_turn(self, source: str, now_s: float) -> str | None:
        """Whom `source` shall send a payload to now: the way that was measured longest ago, if one is due."""
        self._turns = {pair: until_s for pair, until_s in self._turns.items() if until_s > now_s}
        busy = {name for pair in self._turns for name in pair}
        if self.quiet or source in busy or source not in self._nodes:
            return None
        due = [
            (measured_s, target)
            for target in self._nodes
            if target != source and target not in busy
            for measured_s in [self._measured_s(source, target, now_s)]
            if measured_s is not None and now_s - measured_s >= bandwidth_every_s(len(self._nodes))
        ]
        if not due:
            return None
        _, target = min(due)
        self._turns[(source, target)] = now_s + limits.BANDWIDTH_TURN_S
        return target

    def _measured_s(self, source: str, target: str, now_s: float) -> float | None:
        """When a way was last measured, -inf if never; None for one that is not open."""
        link = self._links.get((source, target))
        if link is None or link.failures or self._nodes[target].is_dead(now_s):
            return None
        return float("-inf") if link.bandwidth_s is None else link.bandwidth_s


def bandwidth_every_s(nodes: int) -> float:
    """How often each way is measured among so many nodes: each sends and receives a payload a peer in that time."""
    payloads_bytes = 2 * max(0, nodes - 1) * limits.PROBE_BYTES
    return max(limits.BANDWIDTH_EVERY_S, payloads_bytes / limits.BANDWIDTH_BYTES_PER_S)
