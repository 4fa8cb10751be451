"""Links from times: a slow node must not make the others look slow."""

import numpy as np
import pytest

from daisychain.cluster.fleet import SoloFleet
from daisychain.cluster.fleet.links import links_from_times, measure_links

PAYLOAD_BYTES = 1_000_000


def times(up_mb_s: list[float], down_mb_s: list[float], latency_s: float) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """Times of a network in which each node has its own way up and down."""
    rates = np.minimum.outer(np.array(up_mb_s), np.array(down_mb_s))
    short_s = np.full_like(rates, latency_s)
    return short_s, short_s + PAYLOAD_BYTES / 1e6 / rates


@pytest.mark.parametrize("nodes", [3, 4, 9])
@pytest.mark.parametrize("way", ["up", "down", "both"])
def test_one_slow_node_is_found_and_the_others_are_not_blamed(nodes: int, way: str) -> None:
    for slow in range(nodes):
        up, down = [50.0] * nodes, [50.0] * nodes
        if way in ("up", "both"):
            up[slow] = 0.5
        if way in ("down", "both"):
            down[slow] = 0.5
        links = links_from_times(*times(up, down, 0.002), PAYLOAD_BYTES)
        assert [round(link.rate_mb_s, 6) for link in links] == [
            0.5 if node == slow else 50.0 for node in range(nodes)
        ]
        assert [link.latency_s for link in links] == [0.002] * nodes


def test_of_two_both_share_the_link() -> None:
    links = links_from_times(*times([50.0, 0.5], [50.0, 50.0], 0.001), PAYLOAD_BYTES)
    assert [round(link.rate_mb_s, 6) for link in links] == [0.5, 0.5]


def test_a_measurement_cut_short_judges_by_what_was_received() -> None:
    short_s, long_s = times([50.0, 50.0, 0.5], [50.0, 50.0, 0.5], 0.001)
    links = links_from_times(short_s[:1], long_s[:1], PAYLOAD_BYTES)
    assert [round(link.rate_mb_s, 6) for link in links] == [50.0, 50.0, 0.5]


def test_one_node_has_no_link() -> None:
    assert measure_links(SoloFleet()) == []
