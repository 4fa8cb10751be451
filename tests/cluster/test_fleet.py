"""The gloo fleet with real processes: sums, gathers, and the death, frost and absence of nodes."""

import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

LOST_AFTER_S = 2.0  # as in conftest.BOUNDS
MARGIN_S = 8.0  # beyond that limit; a loaded machine may need it, a hang would not keep to it
FOREVER = [["sum", 100], ["forever", 60.0]]


def test_sums_gathers_and_broadcasts_are_the_same_everywhere(nodes: Any) -> None:
    long = [5_000, 0, 1_016, 40_000]
    program = [
        ["sum", 1_000],
        ["sum", 300_000],
        ["gather", [1, 0, 1_016, 20]],
        ["gather", long],
        ["gather", [0, 0, 0, 0]],
        ["broadcast", 2],
        ["links", 1 << 14],
    ]
    nodes.start_cluster([program] * 4)
    outcomes = nodes.outcomes()
    assert [outcome["error"] for outcome in outcomes] == [None] * 4
    values = outcomes[0]["values"]
    assert all(outcome["values"] == values for outcome in outcomes)
    once = 999 * 1_000 / 2
    assert values[0] == [4 * once + 6 * 1_000, 4 * once + 406 * 1_000]
    assert values[2] == ["A1A", "0", "C1016C", "D20D"]
    assert values[3] == ["A5000A", "0", "C1016C", "D40000D"]
    assert values[4] == ["0"] * 4
    assert values[5] == [2, 2, 2]
    assert len(values[6]) == 4
    assert all(rate_mb_s > 0 and latency_s > 0 for rate_mb_s, latency_s in values[6])


@pytest.mark.parametrize("victim", [0, 2])
def test_a_node_killed_in_mid_operation_is_named(nodes: Any, victim: int) -> None:
    nodes.start_cluster([FOREVER] * 4)
    nodes.await_joined()
    time.sleep(0.2)
    nodes.signal(victim, signal.SIGKILL)
    assert_survivors_name(nodes, victim, 4)


def test_a_coordinator_frozen_in_mid_operation_is_named(nodes: Any) -> None:
    """And the others' processes can end in the plain way, though threads of their groups wait for it."""
    nodes.start_cluster([FOREVER] * 3, plain_exit=True)
    nodes.await_joined()
    time.sleep(0.2)
    nodes.signal(0, signal.SIGSTOP)
    assert_survivors_name(nodes, 0, 3)
    assert nodes.ended(1)
    assert nodes.ended(2)


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("blow", ["SIGKILL", "SIGSTOP"])
def test_a_node_lost_between_join_and_first_operation_is_named(nodes: Any, victim: int, blow: str) -> None:
    programs = [[["sleep", 0.3], *FOREVER] for _ in range(3)]
    programs[victim] = [["signal", blow]]
    nodes.start_cluster(programs)
    assert_survivors_name(nodes, victim, 3)


def assert_survivors_name(nodes: Any, victim: int, world_size: int) -> None:
    for rank in range(world_size):
        if rank == victim:
            continue
        outcome = nodes.outcome(rank)
        assert outcome["error"] == "PeerLostError", (outcome, nodes.log(rank))
        assert outcome["nodes"] == [victim]
        assert f"node {victim} (" in outcome["message"]
        assert "\n" not in outcome["message"]
        assert outcome.get("close_s", 0.0) < MARGIN_S  # absent where connecting failed


def test_a_killed_node_is_named_before_its_silence_would_show(nodes: Any) -> None:
    nodes.start_cluster([FOREVER] * 4, bounds={"lost_after_s": 25.0})
    nodes.await_joined()
    time.sleep(0.2)
    nodes.signal(3, signal.SIGKILL)
    started_s = time.monotonic()
    outcomes = [nodes.outcome(rank) for rank in range(3)]
    assert [outcome["nodes"] for outcome in outcomes] == [[3]] * 3
    assert "killed or crashed" in outcomes[1]["message"]
    assert time.monotonic() - started_s < 20.0  # less than the silence that would be needed otherwise


def test_a_node_that_fails_by_itself_tells_the_others_why(nodes: Any) -> None:
    nodes.start_cluster([FOREVER, [["sum", 100], ["fail", "the file x.csv is empty"]], FOREVER])
    for rank in (0, 2):
        outcome = nodes.outcome(rank)
        assert outcome["nodes"] == [1]
        assert "the file x.csv is empty" in outcome["message"]
    assert nodes.outcome(1)["error"] == "DataError"


def test_a_coordinator_that_fails_by_itself_tells_the_others_why(nodes: Any) -> None:
    nodes.start_cluster([[["sum", 100], ["fail", "no space left"]], FOREVER, FOREVER])
    for rank in (1, 2):
        outcome = nodes.outcome(rank)
        assert outcome["nodes"] == [0]
        assert "no space left" in outcome["message"]


def test_a_slow_node_is_not_dropped(nodes: Any) -> None:
    """Busy in Python for longer than the silence that is allowed, and never in an operation meanwhile."""
    slow = [["sum", 10], ["busy", 1.5 * LOST_AFTER_S], ["sum", 10]]
    nodes.start_cluster([[["sum", 10], ["sum", 10]], slow])
    assert [outcome["error"] for outcome in nodes.outcomes()] == [None, None]


def test_a_node_does_not_count_its_own_frost_against_the_others(nodes: Any) -> None:
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(nodes.free_port()), "WORLD_SIZE": "2"}
    patient = {
        "env": env | {"RANK": "0"},
        "program": [["sleep", 3.0], ["sum", 10]],
        "bounds": {"lost_after_s": 20.0},
    }
    frozen = {"env": env | {"RANK": "1"}, "program": [["sum", 10]], "bounds": {"lost_after_s": 1.5}}
    nodes.start([patient, frozen])
    nodes.await_joined()
    nodes.signal(1, signal.SIGSTOP)
    time.sleep(2.0)
    nodes.signal(1, signal.SIGCONT)
    assert [outcome["error"] for outcome in nodes.outcomes()] == [None, None]


def test_a_node_frozen_in_mid_operation_is_named_and_learns_it_when_thawed(nodes: Any) -> None:
    nodes.start_cluster([FOREVER] * 3)
    nodes.await_joined()
    time.sleep(0.2)
    nodes.signal(1, signal.SIGSTOP)
    assert_survivors_name(nodes, 1, 3)
    nodes.signal(1, signal.SIGCONT)
    outcome = nodes.outcome(1)
    assert outcome["error"] in ("PeerLostError", "FleetError")


def test_the_laggard_of_an_operation_is_named_at_its_limit(nodes: Any) -> None:
    nodes.start_cluster(
        [[["sum", 10], ["sum", 10]], [["sum", 10], ["sleep", 20.0]]], bounds={"operation_s": 1.0}
    )
    outcome = nodes.outcome(0)
    assert outcome["error"] == "FleetError"
    assert "node 1 (" in outcome["message"]
    assert "behind" in outcome["message"]


def test_a_missing_node_is_named_at_the_join(nodes: Any) -> None:
    port = nodes.free_port()
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "3"}
    nodes.start([{"env": env | {"RANK": rank}, "program": [], "bounds": {"join_s": 1.5}} for rank in "02"])
    for outcome in nodes.outcomes():
        assert outcome["error"] == "FleetError"
        assert "node 1 missing" in outcome["message"]
        assert "arrived: node 0 (" in outcome["message"]
        assert "node 2 (" in outcome["message"]


def test_an_absent_coordinator_is_named_at_the_join(nodes: Any) -> None:
    port = nodes.free_port()
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANK": "1"}
    nodes.start([{"env": env, "program": [], "bounds": {"join_s": 1.0}}])
    outcome = nodes.outcome(0)
    assert outcome["error"] == "FleetError"
    assert f"127.0.0.1:{port}" in outcome["message"]
    assert "refused" in outcome["message"]


def test_a_coordinator_frozen_during_the_join_holds_nobody(nodes: Any) -> None:
    port = nodes.free_port()
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "3"}
    bounds = {"join_s": 2.5, "dial_s": 0.5}
    nodes.start([{"env": env | {"RANK": rank}, "program": [], "bounds": bounds} for rank in "01"])
    time.sleep(1.2)
    nodes.signal(0, signal.SIGSTOP)
    outcome = nodes.outcome(1)
    assert outcome["error"] == "FleetError"
    assert "node 2 missing" in outcome["message"]


def test_a_node_frozen_during_the_join_is_named(nodes: Any) -> None:
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(nodes.free_port()), "WORLD_SIZE": "3"}
    bounds = {"dial_s": 0.5, "join_s": 3.0}
    nodes.start([{"env": env | {"RANK": rank}, "program": [], "bounds": bounds} for rank in "01"])
    time.sleep(1.0)
    nodes.signal(1, signal.SIGSTOP)
    nodes.start([{"env": env | {"RANK": "2"}, "program": [], "bounds": bounds}])
    for index in (0, 2):
        outcome = nodes.outcome(index)
        assert outcome["error"] == "FleetError"
        assert "node 1 (" in outcome["message"]
        assert "stopped answering" in outcome["message"]


def test_two_nodes_of_one_rank_and_unequal_sizes_are_refused(nodes: Any) -> None:
    port = nodes.free_port()
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "3"}
    bounds = {"join_s": 2.0}
    nodes.start([{"env": env | {"RANK": rank}, "program": [], "bounds": bounds} for rank in "011"])
    messages = [nodes.outcome(index)["message"] for index in (1, 2)]
    assert any("RANK 1 is claimed twice" in message for message in messages)
    port = nodes.free_port()
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    nodes.start(
        [
            {"env": env | {"RANK": "0"}, "program": []},
            {"env": env | {"RANK": "1", "WORLD_SIZE": "3"}, "program": []},
        ]
    )
    for index in (3, 4):
        message = nodes.outcome(index)["message"]
        assert "WORLD_SIZE=2" in message
        assert "WORLD_SIZE=3" in message


def test_the_owner_of_a_busy_port_is_named(nodes: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as squatter:
        port = squatter.getsockname()[1]
        env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "1", "RANK": "0"}
        nodes.start([{"env": env, "program": []}])
        outcome = nodes.outcome(0)
    assert outcome["error"] == "ConfigError"
    assert f"port {port} is in use by" in outcome["message"]
    assert f"pid {Path('/proc/self').resolve().name}" in outcome["message"]


def test_a_fleet_of_one(nodes: Any) -> None:
    nodes.start_cluster([[["sum", 10], ["gather", [3]], ["broadcast", 0], ["links", 10]]])
    assert nodes.outcome(0)["values"] == [[45.0, 1_045.0], ["A3A"], [0, 0, 0], []]


def test_nodes_meet_over_ipv6(nodes: Any) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    env = {"MASTER_ADDR": "::1", "MASTER_PORT": str(nodes.free_port()), "WORLD_SIZE": "2"}
    nodes.start([{"env": env | {"RANK": rank}, "program": [["sum", 10]]} for rank in "01"])
    assert [outcome["error"] for outcome in nodes.outcomes()] == [None, None]
