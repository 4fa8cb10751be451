"""The judge of beats: silence, refusals, parting words, and whose word counts."""

import pytest

from daisychain.cluster.fleet import FINISHED
from daisychain.cluster.fleet.liveness import AwakeClock, Beat, Liveness

LOST_AFTER_S = 10.0
ROSTER = (0, 1, 2)


def judge(rank: int) -> Liveness:
    return Liveness(rank, ROSTER, LOST_AFTER_S, 0.0)


def beats(count: int, **changed: Beat) -> dict[int, Beat]:
    """Everybody's beat at a count; `n1=Beat(…)` for a node that differs."""
    return {rank: changed.get(f"n{rank}", Beat(count)) for rank in ROSTER}


def lost(judged: Liveness, now_s: float, at_last: bool = False) -> dict[int, str]:
    verdict = judged.verdict(now_s, at_last)
    return {} if verdict is None else dict(verdict.reasons)


def test_a_beat_survives_its_journey() -> None:
    beat = Beat(3, 7, "it lost node 2", {2: "no sign of life"})
    assert Beat.decode(beat.encode().encode()) == beat


def test_a_node_is_lost_after_the_limit_and_not_before() -> None:
    judged = judge(0)
    for second in range(1, 30):
        judged.hear(beats(second, n2=Beat(min(second, 5))), float(second))
        assert list(lost(judged, float(second))) == ([2] if second - 5 >= LOST_AFTER_S else [])


def test_slow_beats_are_beats() -> None:
    judged = judge(0)
    for second in range(1, 60):
        judged.hear(beats(second, n1=Beat(second // 9)), float(second))
        assert lost(judged, float(second)) == {}


def test_only_the_coordinator_is_blamed_when_the_store_is_silent() -> None:
    judged = judge(1)
    judged.hear(beats(1), 1.0)
    assert lost(judged, 10.5) == {}
    assert list(lost(judged, 11.0)) == [0]
    judged = judge(0)  # the coordinator reads its own store; its own thread being late proves nothing
    judged.hear(beats(1), 1.0)
    assert lost(judged, 60.0) == {}


def test_a_broken_store_and_a_refused_dial_name_the_dead_at_once() -> None:
    judged = judge(1)
    judged.hear(beats(1), 1.0)
    judged.host_gone()
    assert "killed" in lost(judged, 1.0)[0]
    judged = judge(1)
    judged.refused([2])
    assert list(lost(judged, 0.0)) == [2]
    judged.refused([0])  # without the coordinator nobody can say why node 2 left
    assert list(lost(judged, 0.0)) == [0]


def test_a_word_explains_what_would_look_like_death() -> None:
    judged = judge(1)
    judged.refused([2])
    judged.hear(beats(1, n2=Beat(1, word="DataError: empty")), 1.0)
    assert lost(judged, 1.0) == {}  # it may be a moment ahead
    assert lost(judged, 3.0) == {2: "it ended: DataError: empty"}
    assert lost(judged, 1.0, at_last=True) == {2: "it ended: DataError: empty"}


def test_the_lost_are_named_and_not_those_who_left_because_of_them() -> None:
    judged = judge(1)
    witness = Beat(9, word="it lost node 2", lost={2: "froze"})
    judged.hear(beats(9, n0=witness), 9.0)
    judged.host_gone()  # the witness was the coordinator, and has gone
    assert lost(judged, 30.0) == {2: "froze"}


def test_a_node_given_up_by_the_others_learns_it() -> None:
    judged = judge(2)
    judged.hear(beats(9, n0=Beat(9, word="it lost node 2", lost={2: "no sign of life for 10 s"})), 9.0)
    assert lost(judged, 9.0) == {2: "the others went on without it: no sign of life for 10 s"}


def test_a_finished_node_is_missed_only_at_last() -> None:
    judged = judge(0)
    for second in range(1, 9):
        judged.hear(beats(second, n1=Beat(1, word=FINISHED)), float(second))
        assert lost(judged, float(second)) == {}
    assert lost(judged, 8.0, at_last=True) == {1: "it ended: finished"}
    judged.hear(beats(12, n1=Beat(1, word=FINISHED)), 12.0)
    assert list(lost(judged, 12.0)) == [1]
    assert judged.working(12.0) == [2]


def test_laggards_are_counted() -> None:
    judged = judge(0)
    judged.hear(beats(1, n1=Beat(1, operations=7), n2=Beat(1, operations=5)), 1.0)
    assert judged.behind(7) == {2: 2}


class HandClock:
    def __init__(self) -> None:
        self.time_s = 100.0

    def now_s(self) -> float:
        return self.time_s

    def sleep(self, duration_s: float) -> None:
        self.time_s += duration_s


def test_frost_of_its_own_does_not_count() -> None:
    clock = HandClock()
    awake = AwakeClock(clock, longest_tick_s=1.0)
    for _ in range(10):
        clock.sleep(0.5)
        now_s = awake.now_s()
    assert now_s == pytest.approx(5.0)
    clock.sleep(3_600.0)
    assert awake.now_s() == pytest.approx(6.0)
