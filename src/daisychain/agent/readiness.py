"""What the banner says: whether the nodes are ready to train together, and if not, what is missing. Pure."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations

from daisychain.agent.fleet import FleetState, Matrix, NodeView, Pool
from daisychain.agent.links import BLOCKED, SLOW, UNKNOWN, seconds
from daisychain.agent.report import FAILED, PROVING, READY
from daisychain.base import limits
from daisychain.cluster.fleet.network import is_loopback

OK, WARN, BAD = "ok", "warn", "bad"


@dataclass(frozen=True)
class Finding:
    """One line of the banner."""

    level: str
    text: str


def readiness(state: FleetState, now_s: float, expected_nodes: int | None = None) -> list[Finding]:
    """The lines of the banner, the first of which sums up. `expected_nodes` is how many shall take part, if known."""
    nodes = state.nodes(now_s)
    alive = [node for node in nodes if not node.dead]
    findings = [
        *_absent(nodes),
        *_clashing(state.clashes(now_s)),
        *_differing(alive),
        *_loopback(alive),
        *(finding for node in alive for finding in _own(node)),
        *_ways(state.matrix(now_s), {node.report.name: node for node in alive}),
    ]
    unready = {node.report.name for node in alive if node.report.proof != READY}
    first = _sum_up(state.pool(now_s), len(unready), expected_nodes or len(nodes), findings)
    order = {BAD: 0, WARN: 1, OK: 2}
    return [first, *sorted(findings, key=lambda finding: order[finding.level])]


def _sum_up(pool: Pool, unready: int, expected: int, findings: Sequence[Finding]) -> Finding:
    if not pool.nodes and not expected:
        how = (
            f"start one on each machine: daisychain agent --dashboard http://ADDRESS:{limits.DASHBOARD_PORT}"
        )
        return Finding(BAD, f"No node reports yet; {how}")
    ready = pool.nodes - unready
    gib = 1 << 30
    have = f"{pool.cores} cores, {pool.memory_bytes / gib:.3g} GiB memory ({pool.memory_free_bytes / gib:.3g} GiB free)"
    levels = {finding.level for finding in findings}
    wanted = max(expected, pool.nodes)
    # That some are missing says why not by itself.
    but = ", but not to train together" if BAD in levels and ready == wanted else ""
    text = f"{ready} of {wanted} {'node' if expected == 1 else 'nodes'} ready{but}: {have}"
    if pool.nodes < expected or BAD in levels:
        return Finding(BAD, text)
    return Finding(WARN if WARN in levels else OK, text)


def _absent(nodes: Sequence[NodeView]) -> list[Finding]:
    return [
        Finding(
            BAD,
            f"node {node.report.name} has been silent for {seconds(node.silent_s)}: "
            "is it switched off, asleep or off the network, or has its agent ended?",
        )
        for node in nodes
        if node.dead
    ]


def _clashing(clashes: Sequence[tuple[str, str]]) -> list[Finding]:
    return [
        Finding(
            BAD, f"the node at {address} calls itself {name} too: start its agent with a --name of its own"
        )
        for name, address in clashes
    ]


def _differing(alive: Sequence[NodeView]) -> list[Finding]:
    """Versions, which have to be the same, and kernels, which need not be."""
    findings = []
    versions = _by(alive, lambda node: node.report.version)
    if len(versions) > 1:
        findings.append(
            Finding(BAD, f"versions of DaisyChain differ ({_listed(versions)}): install the same on all")
        )
    backends = _by([node for node in alive if node.report.backend], lambda node: str(node.report.backend))
    if len(backends) > 1:
        findings.append(
            Finding(OK, f"kernels differ ({_listed(backends)}); that is fine, they give the same bits")
        )
    return findings


def _loopback(alive: Sequence[NodeView]) -> list[Finding]:
    """Nodes that only their own machine can reach, unless all are on one machine."""
    lonely = [node.report for node in alive if is_loopback(node.report.address)]
    if len(lonely) == len(alive):
        return []
    return [
        Finding(
            BAD,
            f"node {report.name} gives the address {report.address}, which no other machine can reach: "
            "start its agent with the dashboard's address in your network, or with --address",
        )
        for report in lonely
    ]


def _own(node: NodeView) -> list[Finding]:
    """What a node's own report says about it."""
    report, name = node.report, f"node {node.report.name}"
    findings = []
    if report.proof == PROVING:
        findings.append(Finding(WARN, f"{name} is still proving its kernels"))
    if report.proof == FAILED:
        findings.append(Finding(BAD, f"{name} cannot train: {report.backend_reason or report.device_reason}"))
    if node.unreported_s > limits.AGENT_SILENT_AFTER_S:
        ago = seconds(node.unreported_s)
        findings.append(Finding(WARN, f"{name} answers other nodes, but has not reported for {ago}"))
    if report.memory_free_bytes < limits.FEW_FREE_BYTES:
        findings.append(Finding(WARN, f"{name} has only {report.memory_free_bytes >> 20} MiB of memory free"))
    if report.temperature_c is not None and report.temperature_c >= limits.HOT_C:
        findings.append(Finding(WARN, f"{name} is {report.temperature_c:.0f} °C hot and may slow down"))
    if abs(node.clock_off_s) > limits.CLOCK_OFF_S:
        way = "ahead" if node.clock_off_s > 0 else "behind"
        findings.append(Finding(WARN, f"{name}'s clock is {seconds(abs(node.clock_off_s))} {way}"))
    return findings


def _ways(matrix: Matrix, alive: dict[str, NodeView]) -> list[Finding]:
    """Ways between nodes that are alive which are blocked, slow, or not known yet."""
    place = {name: index for index, name in enumerate(matrix.names)}
    findings, unknown = [], 0
    blocked: dict[str, list[str]] = defaultdict(list)
    for a, b in permutations(alive, 2):
        cell = matrix.rows[place[a]][place[b]]
        if cell.state == BLOCKED:
            blocked[b].append(a)
        elif cell.state == SLOW:
            findings.append(Finding(WARN, f"the way {a} → {b} would slow a run: {cell.words}"))
        unknown += cell.state == UNKNOWN
    for b, sources in blocked.items():
        findings.append(_unreachable(alive[b], sources, len(alive), matrix, place))
    if unknown:
        findings.append(
            Finding(
                WARN, f"{unknown} of {len(alive) * (len(alive) - 1)} ways between nodes are being measured"
            )
        )
    return findings


def _unreachable(
    node: NodeView, sources: Sequence[str], alive: int, matrix: Matrix, place: dict[str, int]
) -> Finding:
    name, port = node.report.name, node.report.probe_port
    if len(sources) > 1 and len(sources) == alive - 1:
        who = "no other node"
        return Finding(
            BAD,
            f"{who} can reach node {name} at {node.report.address}: does a firewall on it block port {port}?",
        )
    words = "; ".join(matrix.rows[place[source]][place[name]].words for source in sources)
    return Finding(BAD, f"{words}. Does a firewall block port {port}?")


def _by(nodes: Sequence[NodeView], key: Callable[[NodeView], str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        groups[key(node)].append(node.report.name)
    return groups


def _listed(groups: dict[str, list[str]]) -> str:
    return "; ".join(f"{what}: {', '.join(names)}" for what, names in sorted(groups.items()))
