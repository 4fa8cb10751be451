"""Counting unit invocations."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from daisychain.base.errors import CountingError
from daisychain.units.counts import MULTIPLY, RELU, REQUANTISE, UNITS, Counts


def test_counts_by_unit_and_backend() -> None:
    counts = Counts()
    counts.add(MULTIPLY, "sgemm", 10)
    counts.add(MULTIPLY, "table", 5)
    counts.add(MULTIPLY, "sgemm", 1)
    assert counts.table() == {MULTIPLY: {"sgemm": 11, "table": 5}, REQUANTISE: {}, RELU: {}}
    assert counts.total(MULTIPLY) == 16
    assert counts.total(RELU) == 0


def test_the_table_is_a_copy() -> None:
    counts = Counts()
    counts.add(RELU, "table", 1)
    counts.table()[RELU]["table"] = 100
    assert counts.total(RELU) == 1


def test_merge_adds_the_table_of_another_node() -> None:
    mine, other = Counts(), Counts()
    mine.add(MULTIPLY, "sgemm", 3)
    other.add(MULTIPLY, "sgemm", 4)
    other.add(RELU, "int_mm", 2)
    mine.merge(other.table())
    assert mine.table() == {MULTIPLY: {"sgemm": 7}, REQUANTISE: {}, RELU: {"int_mm": 2}}
    assert other.total(MULTIPLY) == 4


@pytest.mark.parametrize(
    "table", [{MULTIPLY: {"sgemm": 1}, "divide": {"sgemm": 1}}, {MULTIPLY: {"a": 1, "b": -1}}]
)
def test_merge_takes_a_whole_table_or_nothing(table: dict[str, dict[str, int]]) -> None:
    counts = Counts()
    with pytest.raises(CountingError, match=r"divide|-1 times"):
        counts.merge(table)
    assert counts.total(MULTIPLY) == 0


def test_require_names_unit_count_and_minimum() -> None:
    counts = Counts()
    counts.add(MULTIPLY, "sgemm", 7)
    counts.require({MULTIPLY: 7, RELU: 0})
    with pytest.raises(CountingError, match="multiply ran 7 times, fewer than the required 8"):
        counts.require({MULTIPLY: 8})
    with pytest.raises(CountingError, match="divide"):
        counts.require({"divide": 0})


def test_require_refuses_to_answer_while_counting_is_off_and_after() -> None:
    counts = Counts()
    counts.add(MULTIPLY, "sgemm", 100)
    with counts.paused():
        assert not counts.enabled
        counts.add(MULTIPLY, "sgemm", 1)
        with pytest.raises(CountingError, match="is off"):
            counts.require({MULTIPLY: 1})
    assert counts.enabled
    assert counts.total(MULTIPLY) == 100
    with pytest.raises(CountingError, match="was off for a while"):
        counts.require({})
    counts.reset()
    assert counts.table() == {unit: {} for unit in UNITS}
    counts.require({MULTIPLY: 0})


def test_pauses_nest_and_a_reset_inside_one_does_not_end_it() -> None:
    counts = Counts()
    with counts.paused():
        with counts.paused():
            counts.reset()
        assert not counts.enabled
        assert not counts.complete
    with pytest.raises(CountingError):
        counts.require({})


def test_an_error_inside_a_pause_turns_counting_on_again() -> None:
    counts = Counts()
    with pytest.raises(KeyError), counts.paused():
        raise KeyError
    assert counts.enabled
    assert not counts.complete


def test_threads_lose_no_count() -> None:
    counts = Counts()

    def work(thread: int) -> None:
        for _ in range(2000):
            counts.add(MULTIPLY, f"backend {thread % 2}", 1)
            counts.merge({RELU: {"table": 2}})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert counts.table()[MULTIPLY] == {"backend 0": 8000, "backend 1": 8000}
    assert counts.total(RELU) == 32_000
