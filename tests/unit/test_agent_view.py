"""The fleet's view: what is said about nodes and ways, whatever comes in whatever order."""

import contextlib
import random
from dataclasses import replace

import pytest

from daisychain.agent.fleet import bandwidth_every_s
from daisychain.agent.report import CUT, NO_ANSWER, OUTCOMES, REACHED, REFUSED, STRANGER
from daisychain.agent.view import (
    BAD,
    BLOCKED,
    DEAD,
    OK,
    REACHABLE,
    SELF,
    SLOW,
    STATES,
    UNKNOWN,
    WARN,
    FleetState,
    Probe,
    readiness,
)
from daisychain.base import limits
from daisychain.base.errors import ReportError

from ..agent_help import GIB, report

SILENT_S = limits.AGENT_SILENT_AFTER_S


def fleet_of(names="abc", now_s=0.0, **changes):
    fleet = FleetState("0" * 64)
    for name in names:
        fleet.observe(report(name, **changes), now_s)
    return fleet


def found(to, outcome=REACHED, age_s=0.0, latency_s=0.001, bandwidth_mb_s=None, instance=None):
    return Probe(to, instance or to * 16, age_s, outcome, latency_s, bandwidth_mb_s)


def all_reached(fleet, now_s, names="abc", bandwidth_mb_s=50.0):
    for name in names:
        others = [found(other, bandwidth_mb_s=bandwidth_mb_s) for other in names if other != name]
        fleet.observe_probes(name, others, now_s)


def states(fleet, now_s):
    matrix = fleet.matrix(now_s)
    rows = zip(matrix.names, matrix.rows, strict=True)
    return {a + b: row[j].state for a, row in rows for j, b in enumerate(matrix.names) if a != b}


# Cells


def test_a_way_is_unknown_until_it_is_dialled_and_then_reachable() -> None:
    fleet = fleet_of("ab")
    assert states(fleet, 1.0) == {"ab": UNKNOWN, "ba": UNKNOWN}
    assert fleet.cell("a", "a", 1.0).state == SELF
    fleet.observe_probes("a", [found("b", age_s=0.5)], 1.0)
    cell = fleet.cell("a", "b", 2.0)
    assert (cell.state, cell.latency_s, cell.bandwidth_mb_s, cell.measured_ago_s) == (
        REACHABLE,
        0.001,
        None,
        1.5,
    )
    assert cell.words == "a reaches b: an answer takes 1 ms, bandwidth not measured yet"
    assert fleet.cell("b", "a", 2.0).state == UNKNOWN


@pytest.mark.parametrize("outcome", [outcome for outcome in OUTCOMES if outcome != REACHED])
def test_a_way_that_fails_twice_to_a_node_that_still_reports_is_blocked(outcome) -> None:
    fleet = fleet_of("ab")
    all_reached(fleet, 0.0, "ab")
    fleet.observe_probes("a", [found("b", outcome)], 1.0)
    for name in "ab":
        fleet.observe(report(name, 2), 1.5)
    assert states(fleet, 1.5) == {"ab": UNKNOWN, "ba": REACHABLE}
    fleet.observe_probes("a", [found("b", outcome)], 2.0)
    assert states(fleet, 2.0) == {"ab": BLOCKED, "ba": REACHABLE}
    words = fleet.cell("a", "b", 2.0).words
    assert words.startswith("a cannot reach b at 10.0.0.2 port 29570: ")
    assert words.endswith("The other way is open: b reaches a")
    fleet.observe_probes("a", [found("b")], 3.0)
    assert states(fleet, 3.0)["ab"] == REACHABLE


def test_what_a_failed_dial_says_depends_on_how_it_failed() -> None:
    words = set()
    for outcome in (REFUSED, NO_ANSWER, STRANGER, CUT):
        fleet = fleet_of("ab")
        for at_s in (0.1, 0.2):
            fleet.observe_probes("a", [found("b", outcome)], at_s)
        fleet.observe(report("b", 2), 1.0)
        words.add(fleet.cell("a", "b", 1.0).words)
    assert len(words) == 4


def test_a_node_that_dies_is_never_blocked_on_the_way() -> None:
    fleet = fleet_of("ab")
    all_reached(fleet, 0.0, "ab")
    seen = []
    for tenth in range(1, 60):
        now_s = tenth / 10
        if tenth % 10 == 0:
            fleet.observe(report("a", 1 + tenth), now_s)
            fleet.observe_probes("a", [found("b", NO_ANSWER)], now_s)
        seen.append(states(fleet, now_s)["ab"])
    assert [state for i, state in enumerate(seen) if not i or seen[i - 1] != state] == [
        REACHABLE,
        UNKNOWN,
        DEAD,
    ]
    assert seen.index(DEAD) + 1 == SILENT_S * 10 + 1
    assert states(fleet, 6.0)["ba"] == UNKNOWN
    assert "a" in fleet.cell("a", "b", 6.0).words
    assert "silent for 6 s" in fleet.cell("a", "b", 6.0).words


def test_a_node_that_others_still_reach_is_not_dead_though_it_does_not_report() -> None:
    fleet = fleet_of("ab")
    for second in range(1, 10):
        fleet.observe(report("a", 1 + second), float(second))
        fleet.observe_probes("a", [found("b")], float(second))
    assert states(fleet, 9.0)["ab"] == REACHABLE
    assert "node b answers other nodes, but has not reported for 9 s" in [
        f.text for f in readiness(fleet, 9.0)
    ]


@pytest.mark.parametrize(
    ("latency_s", "bandwidth_mb_s", "word"),
    [(0.001, 0.64, "only at 5.12 Mbit/s (0.64 MB/s)"), (0.2, 50.0, "an answer takes 200 ms")],
)
def test_a_slow_way_is_named_with_its_figure(latency_s, bandwidth_mb_s, word) -> None:
    fleet = fleet_of("ab")
    fleet.observe_probes("a", [found("b", latency_s=latency_s, bandwidth_mb_s=bandwidth_mb_s)], 0.0)
    cell = fleet.cell("a", "b", 1.0)
    assert (cell.state, cell.bandwidth_mb_s) == (SLOW, bandwidth_mb_s)
    assert word in cell.words
    fleet.observe_probes("a", [found("b")], 2.0)  # a dial without a payload keeps the bandwidth
    assert fleet.cell("a", "b", 2.0).bandwidth_mb_s == bandwidth_mb_s


def test_an_old_result_is_not_believed() -> None:
    fleet = fleet_of("ab")
    all_reached(fleet, 0.0, "ab")
    late_s = limits.PROBE_STALE_S + 2 * limits.PROBE_LIMIT_S + 1
    for name in "ab":
        fleet.observe(report(name, 2), late_s)
    assert set(states(fleet, late_s).values()) == {UNKNOWN}


# Nodes


def test_late_and_repeated_reports_change_nothing() -> None:
    fleet = fleet_of("a")
    fleet.observe(report("a", 5, cores=8), 1.0)
    for sequence in (5, 4, 1):
        fleet.observe(report("a", sequence, cores=2), 3.0)
    [node] = fleet.nodes(3.0)
    assert (node.report.cores, node.silent_s) == (8, 2.0)


def test_an_old_result_that_comes_late_changes_nothing() -> None:
    fleet = fleet_of("ab")
    fleet.observe_probes("a", [found("b", age_s=0.0)], 2.0)
    fleet.observe_probes("a", [found("b", REFUSED, age_s=1.0)], 2.5)
    assert states(fleet, 2.5)["ab"] == REACHABLE


def test_a_restarted_agent_takes_its_place_and_is_measured_anew() -> None:
    fleet = fleet_of("ab")
    all_reached(fleet, 0.0, "ab")
    fleet.observe(report("b", 1, instance="f" * 16, probe_port=40_000), 1.0)
    assert states(fleet, 1.0) == {"ab": UNKNOWN, "ba": REACHABLE}
    fleet.observe_probes("a", [found("b")], 1.1)  # of the agent that was
    assert states(fleet, 1.1)["ab"] == UNKNOWN
    assert [peer.port for peer in fleet.answer("a", 1.1).peers] == [40_000]
    with pytest.raises(ReportError, match="another agent on this machine has taken the name b") as caught:
        fleet.observe(report("b", 9), 1.2)
    assert caught.value.reason == "name_taken"


def test_a_second_machine_of_the_same_name_is_refused_until_the_first_is_dead() -> None:
    fleet = fleet_of("ab")
    twin = {"instance": "e" * 16, "host": "other", "address": "10.0.0.77"}
    with pytest.raises(ReportError, match=r"belongs to the node at 10\.0\.0\.1") as caught:
        fleet.observe(report("a", 1, **twin), 1.0)
    assert caught.value.reason == "name_taken"
    assert "the node at 10.0.0.77 calls itself a too" in " ".join(f.text for f in readiness(fleet, 1.0))
    fleet.observe(report("a", 2, **twin), SILENT_S + 0.1)
    assert [n.report.address for n in fleet.nodes(SILENT_S + 0.1)] == ["10.0.0.77", "10.0.0.2"]


def test_a_thousand_names_are_not_kept() -> None:
    fleet = FleetState()
    refused = 0
    for number in range(1_000):
        try:
            fleet.observe(replace(report("a"), name=f"n{number}", instance=f"{number:016x}"), 0.0)
        except ReportError as error:
            refused += error.reason == "full"
    assert refused == 1_000 - limits.FLEET_NODES
    assert len(fleet.nodes(0.0)) == limits.FLEET_NODES
    later_s = SILENT_S + 1  # all of them are dead, so whoever comes now has room
    fleet.observe(report("b"), later_s)
    assert len(fleet.nodes(later_s)) == limits.FLEET_NODES


def test_results_of_strangers_and_about_strangers_are_passed_over() -> None:
    fleet = fleet_of("ab")
    fleet.observe_probes("z", [found("a")], 0.0)
    fleet.observe_probes("a", [found("z"), found("a"), found("b", instance="9" * 16)], 0.0)
    assert set(states(fleet, 0.0).values()) == {UNKNOWN}


def test_the_pool_is_what_is_alive_and_a_machine_counts_once() -> None:
    fleet = fleet_of("abc")
    fleet.observe(report("d", host="c.lan", address="10.0.0.3"), 0.0)
    pool = fleet.pool(0.0)
    assert (pool.nodes, pool.cores, pool.memory_bytes, pool.memory_free_bytes) == (4, 12, 24 * GIB, 12 * GIB)
    fleet.observe(report("a", 2), SILENT_S + 1)
    assert fleet.pool(SILENT_S + 1).cores == 4


# Turns


def test_a_node_takes_part_in_one_measurement_at_a_time() -> None:
    fleet = fleet_of("abcd")
    assert fleet.answer("a", 0.0).measure is None  # not before the way is known to be open
    all_reached(fleet, 0.0, "abcd", bandwidth_mb_s=None)
    first = fleet.answer("a", 1.0).measure
    others = [name for name in "bcd" if name != first]
    second = fleet.answer(others[0], 1.0).measure
    assert first in "bcd"
    assert second == others[1]
    assert fleet.answer(others[1], 1.0).measure is None
    fleet.observe_probes("a", [found(first, bandwidth_mb_s=50.0)], 2.0)
    assert fleet.answer("a", 2.0).measure is None  # with the other pair there is nobody left …
    assert fleet.answer(first, 2.0).measure == "a"  # … but the one that has just been measured


def test_every_way_gets_its_turn_and_then_all_rest() -> None:
    fleet = fleet_of("abc")
    all_reached(fleet, 0.0, bandwidth_mb_s=None)
    measured = []
    for step in range(20):
        now_s = 0.1 * step
        for name in "abc":
            target = fleet.answer(name, now_s).measure
            if target:
                measured.append(name + target)
                fleet.observe_probes(name, [found(target, bandwidth_mb_s=9.0)], now_s + 0.01)
    assert sorted(measured) == ["ab", "ac", "ba", "bc", "ca", "cb"]


def test_nothing_is_measured_while_it_is_to_be_quiet() -> None:
    fleet = fleet_of("ab")
    all_reached(fleet, 0.0, "ab", bandwidth_mb_s=None)
    fleet.quiet = True
    assert fleet.answer("a", 1.0).measure is None


def test_a_lost_turn_ends() -> None:
    fleet = fleet_of("ab")
    all_reached(fleet, 0.0, "ab", bandwidth_mb_s=None)
    assert fleet.answer("a", 0.0).measure == "b"
    assert fleet.answer("b", 1.0).measure is None
    end_s = limits.BANDWIDTH_TURN_S + 1
    fleet.observe(report("a", 2), end_s)
    assert fleet.answer("b", end_s).measure == "a"


def test_measuring_costs_a_node_no_more_than_its_budget() -> None:
    for nodes in range(2, limits.FLEET_NODES + 1):
        bytes_per_s = 2 * (nodes - 1) * limits.PROBE_BYTES / bandwidth_every_s(nodes)
        assert bytes_per_s <= limits.BANDWIDTH_BYTES_PER_S
    assert bandwidth_every_s(3) == limits.BANDWIDTH_EVERY_S


# The banner


def banner(fleet, now_s=1.0, expected=None):
    return [(finding.level, finding.text) for finding in readiness(fleet, now_s, expected)]


def test_an_empty_fleet_says_what_to_do() -> None:
    [(level, text)] = banner(FleetState())
    assert level == BAD
    assert "daisychain agent --dashboard" in text


def test_a_fleet_in_which_all_is_well_says_so_in_one_line() -> None:
    fleet = fleet_of()
    all_reached(fleet, 0.5)
    assert banner(fleet) == [(OK, "3 of 3 nodes ready: 12 cores, 24 GiB memory (12 GiB free)")]
    assert banner(fleet, expected=4)[0][0] == BAD
    assert banner(fleet, expected=4)[0][1].startswith("3 of 4 nodes ready")


def test_a_silent_node_is_named_with_its_silence() -> None:
    fleet = fleet_of()
    all_reached(fleet, 0.5)
    for name in "ab":
        fleet.observe(report(name, 2), 12.0)
    lines = banner(fleet, 12.5)
    assert lines[0][0] == BAD
    assert lines[0][1].startswith("2 of 3 nodes ready: 8 cores")
    assert lines[1][0] == BAD
    assert lines[1][1].startswith("node c has been silent for 12 s")


def test_a_blocked_way_names_both_ends_and_the_port() -> None:
    fleet = fleet_of()
    all_reached(fleet, 0.0)
    for at_s in (0.2, 0.4):
        fleet.observe_probes("a", [found("b", NO_ANSWER)], at_s)
    fleet.observe(report("b", 2), 0.5)
    first, (level, text) = banner(fleet)[:2]
    assert first[1].startswith("3 of 3 nodes ready, but not to train together: ")
    assert level == BAD
    assert "a cannot reach b" in text
    assert "Does a firewall block port 29570?" in text
    for at_s in (0.6, 0.8):
        fleet.observe_probes("c", [found("b", NO_ANSWER)], at_s)
    fleet.observe(report("b", 3), 0.9)
    assert "no other node can reach node b at 10.0.0.2" in banner(fleet)[1][1]


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        (
            {"version": "0.0.9"},
            BAD,
            "versions of DaisyChain differ (0.0.9: b; 0.1.0: a): install the same on all",
        ),
        (
            {"backend": "int_mm"},
            OK,
            "kernels differ (int_mm: b; sgemm: a); that is fine, they give the same bits",
        ),
        ({"proof": "proving", "backend": None}, WARN, "node b is still proving its kernels"),
        ({"proof": "failed", "backend": None, "backend_reason": "no"}, BAD, "node b cannot train: no"),
        ({"address": "127.0.0.1"}, BAD, "node b gives the address 127.0.0.1"),
        ({"memory_free_bytes": 1 << 28}, WARN, "node b has only 256 MiB of memory free"),
        ({"temperature_c": 97.2}, WARN, "node b is 97 °C hot"),
    ],
)
def test_what_a_node_lacks_is_said(changes, level, words) -> None:
    fleet = fleet_of("a")
    fleet.observe(report("b", **changes), 0.0)
    all_reached(fleet, 0.0, "ab")
    assert [line[0] for line in banner(fleet) if line[1].startswith(words)] == [level]


def test_a_clock_that_is_off_is_named() -> None:
    fleet = FleetState()
    fleet.observe(report("a", time_s=1_000.0), 0.0, wall_s=700.0)
    assert (WARN, "node a's clock is 5 min ahead") in banner(fleet)


def test_any_sequence_of_events_leaves_a_view_that_can_be_shown() -> None:
    """Reports and results in any order, with any age: no exception, and what is certain stays certain."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(12):
        fleet, now_s, heard_s = FleetState(), 100.0, {}
        for _ in range(150):
            now_s += chance.choice((0.0, 0.05, 0.4, 1.0, 4.0))
            name = chance.choice("abcdef")
            if chance.random() < 0.5:
                instance = chance.choice((name * 16, "0" * 16))
                with contextlib.suppress(ReportError):  # an earlier start of the agent
                    fleet.observe(report(name, chance.randrange(60), instance=instance), now_s)
            else:
                to = chance.choice("abcdef")
                probe = found(
                    to,
                    chance.choice(OUTCOMES),
                    chance.uniform(0, 9),
                    bandwidth_mb_s=chance.choice((None, 0.1, 99)),
                )
                fleet.observe_probes(name, [probe], now_s)
            fleet.answer(name, now_s)
            matrix = fleet.matrix(now_s)
            nodes = {node.report.name: node for node in fleet.nodes(now_s)}
            heard_s = {n: max(heard_s.get(n, 0.0), now_s - node.silent_s) for n, node in nodes.items()}
            for i, a in enumerate(matrix.names):
                for j, b in enumerate(matrix.names):
                    cell = matrix.rows[i][j]
                    assert cell.state in (*STATES, SELF)
                    assert (cell.state == SELF) == (a == b)
                    assert a == b or (cell.state == DEAD) == nodes[b].dead
                    assert cell.words
                    assert not nodes[a].dead or a == b or cell.state in (UNKNOWN, DEAD)
            assert all(line.text for line in readiness(fleet, now_s))
