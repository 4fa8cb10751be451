"""Records: what is read back, what is refused, and what all nodes conclude."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.base import limits
from daisychain.base.errors import CountingError, DataError, FleetError, NonFiniteError, TaskError
from daisychain.cluster.records import (
    Fault,
    Record,
    check_faults,
    decode_all,
    first_unequal,
    mean_loss,
    merged_units,
    outvoted,
)
from daisychain.units.counts import UNITS


@given(
    st.integers(0, 99),
    st.floats(allow_nan=False),
    st.floats(0, 1e9),
    st.text(max_size=20),
    st.lists(st.integers(0, 99)),
)
def test_records_come_back(rank, loss_sum, compute_s, text, buffers):
    record = Record(
        rank,
        7,
        "ab",
        3,
        3,
        loss_sum,
        compute_s,
        Fault("DataError", text),
        True,
        tuple(buffers),
        {"relu": {"x": 1}},
    )
    assert Record.decode(record.encode()) == record
    assert Record.decode(Record(rank, 7, "ab").encode()).fault is None


def test_a_usual_record_fits_one_small_gather():
    units = {unit: {"sgemm-plain": 10**15, "table": 10**12} for unit in UNITS}
    times_s = {"compute_s": 0.123456789012, "exchange_s": 0.123456789012}
    record = Record(63, 10**9, "f" * 64, 1024, 10**6, 123456.789012345, units=units, **times_s)
    assert len(record.encode()) < limits.RECORD_BYTES - 256  # with room for a fault in a few words


def test_units_of_all_nodes_add_up():
    tables = [{"relu": {"x": 1}}, None, {"relu": {"x": 2, "y": 3}}]
    records = [Record(rank, 1, "a", units=units) for rank, units in enumerate(tables)]
    assert merged_units(records) == {"multiply": {}, "requantise": {}, "relu": {"x": 3, "y": 3}}
    with pytest.raises(CountingError):
        merged_units([Record(0, 1, "a", units={"relu": {"x": -1}})])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff",
        b'{"rank": 1}',
        json.dumps({"rank": 0, "step": 1, "x": 2}).encode(),
    ],
)
def test_what_is_no_record_is_refused(data):
    with pytest.raises(FleetError, match="cannot be read"):
        Record.decode(data)


def test_a_node_at_another_step_is_named():
    with pytest.raises(FleetError, match="node 1 is at step 8, not 7"):
        decode_all([Record(0, 7, "a").encode(), Record(1, 8, "a").encode()], 7)


@pytest.mark.parametrize(
    ("hashes", "outcome"),
    [
        ("aaa", (0, [])),
        ("aab", (0, [2])),
        ("abb", (1, [0])),
        ("ab", (0, [1])),
        ("abc", (0, [1, 2])),
        ("abab", (0, [1, 3])),
    ],
)
def test_the_majority_is_right_and_ties_go_to_the_lowest_rank(hashes, outcome):
    assert outvoted([Record(rank, 1, h) for rank, h in enumerate(hashes)]) == outcome


def test_errors_keep_their_kind_on_every_node_and_strangers_become_task_errors():
    for error, kind in (
        (NonFiniteError("x"), NonFiniteError),
        (DataError("x"), DataError),
        (KeyError("x"), TaskError),
    ):
        fault = Record.decode(Record(2, 5, "a", fault=Fault.of(error)).encode())
        with pytest.raises(kind, match="node 2 could not do step 5"):
            check_faults([Record(0, 5, "a"), fault])
    for kind in ("Exception", "limits", "__builtins__", "nothing"):
        assert type(Fault(kind, "x").as_error("there")) is TaskError
    assert "\n" not in Fault.of(ValueError("a\nb")).text


def test_the_loss_is_weighted_like_the_gradient():
    records = [Record(0, 1, "a", 5, 5, 50.0), Record(1, 1, "a", 27, 27, 27.0)]
    assert mean_loss(records) == 77 / 32
    with pytest.raises(TaskError, match="counted 0 items"):
        mean_loss([Record(0, 1, "a")])


def test_the_first_unequal_tensor_is_found_in_name_order():
    assert first_unequal({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "x", "c": "y"}) == "b"
    assert first_unequal({"a": "1"}, {"a": "1", "0": "2"}) == "0"
    assert first_unequal({}, {}) == "the step number"
