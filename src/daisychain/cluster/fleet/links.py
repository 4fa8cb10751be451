"""How fast each node's link is, measured at the start of a run, so that the plan can name a slow one."""

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from daisychain.base import limits
from daisychain.cluster.fleet import Fleet

LATENCY_PROBE_BYTES = 64
Times = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Link:
    """One node's link: what it can send and receive, whichever is slower, and its best delay."""

    rate_mb_s: float
    latency_s: float


def measure_links(
    fleet: Fleet,
    payload_bytes: int = limits.LINK_PROBE_BYTES,
    limit_s: float = limits.LINK_PROBE_LIMIT_S,
) -> list[Link]:
    """Every node's link in roster order; the same numbers on every node. A fleet of one has no link: empty.

    Each node in turn sends to all. Nodes whose turn has not come when the coordinator has spent `limit_s` are
    judged by what they received.
    """
    if len(fleet.roster) < 2:
        return []
    started_s = time.perf_counter()
    rows: list[tuple[float, float]] = []
    for source in fleet.roster:
        rows.append((_receive(fleet, source, LATENCY_PROBE_BYTES), _receive(fleet, source, payload_bytes)))
        spent_s = np.frombuffer(
            fleet.gather(np.float64(time.perf_counter() - started_s).tobytes())[0], "<f8"
        )[0]
        if spent_s >= limit_s:
            break
    own = np.array(rows, dtype="<f8")
    gathered = [np.frombuffer(text, "<f8").reshape(-1, 2) for text in fleet.gather(own.tobytes())]
    times_s = np.stack(gathered, axis=1)  # (sources measured, receivers, 2)
    return links_from_times(times_s[:, :, 0], times_s[:, :, 1], payload_bytes)


def links_from_times(short_s: Times, long_s: Times, payload_bytes: int) -> list[Link]:
    """Links from the times at which receiver r had what source s sent; entry (s, r), with fewer rows than columns
    where not every node had its turn. A node is as good as its best partner shows it to be, each way, so that one
    slow node does not make the others look slow.
    """
    sources, nodes = short_s.shape
    latency_s = np.full((nodes, nodes), np.inf)
    seconds = np.full((nodes, nodes), np.inf)
    latency_s[:sources] = short_s
    seconds[:sources] = np.maximum(long_s - short_s, long_s / 2)
    for table in (latency_s, seconds):
        np.fill_diagonal(table, np.inf)
    links = []
    for node in range(nodes):
        ways = [seconds[:, node].min(), seconds[node].min()]  # down, up
        slowest_s = max(way for way in ways if np.isfinite(way)) if np.isfinite(ways).any() else np.inf
        links.append(
            Link(payload_bytes / slowest_s / 1e6, float(min(latency_s[:, node].min(), latency_s[node].min())))
        )
    return links


def _receive(fleet: Fleet, source: int, length_bytes: int) -> float:
    """Seconds from a common start until this node has `length_bytes` of `source`."""
    payload = torch.zeros(length_bytes, dtype=torch.uint8)
    fleet.gather(b"")
    started_s = time.perf_counter()
    fleet.broadcast(payload, source)
    return time.perf_counter() - started_s
