"""The schema: what it learns survives JSON, and new rows are encoded as the training rows were."""

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain.base import limits
from daisychain.base.errors import DataError
from daisychain.data.schema import (
    ClassTarget,
    NumberColumn,
    NumberTarget,
    TableSchema,
    TextColumn,
    mean_and_deviation,
    schema_from_json,
)
from daisychain.data.tables import load_table

numbers = st.one_of(st.none(), st.floats(allow_infinity=False, width=64), st.integers(-(2**63), 2**63 - 1))
texts = st.one_of(
    st.none(), st.sampled_from(["a", "b", " a ", "", "ä\n", "1", "01", "None"]), st.text(max_size=3)
)
ROWS = 24


def column(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, min_size=ROWS, max_size=ROWS)


def table_of(columns: dict[str, list[Any]]) -> Any:
    return pa.table(
        {
            name: pa.array(values, pa.string())
            if name.startswith("t")
            else pa.array([None if v is None else float(v) for v in values], pa.float64())
            for name, values in columns.items()
        }
    )


@settings(deadline=None, max_examples=60)
@given(
    columns=st.fixed_dictionaries(
        {"n1": column(numbers), "n2": column(numbers), "t1": column(texts), "t2": column(texts)}
    ),
    shuffled=st.permutations(["n1", "n2", "t1", "t2", "extra"]),
    seed=st.integers(0, 3),
)
def test_fitted_schema_survives_json_and_any_order_of_columns(
    columns: dict[str, list[Any]], shuffled: list[str], seed: int
) -> None:
    table = table_of({**columns, "extra": list(range(ROWS))})
    data = load_table(table.append_column("y", pa.array([0, 1] * (ROWS // 2))), "y", seed)
    again = schema_from_json(json.loads(json.dumps(data.schema.to_json())))
    assert again == data.schema
    assert data.features.shape == (ROWS, data.schema.features)
    assert np.isfinite(data.features).all()
    assert np.abs(data.features).max() <= limits.MAX_DEVIATIONS
    assert np.array_equal(again.encode(table.select(shuffled)), data.features)
    assert data.schema.encode(table.slice(3, 1)).tolist() == data.features[3:4].tolist()


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_mean_and_deviation_are_finite_and_do_not_depend_on_order(values: list[float]) -> None:
    mean, deviation = mean_and_deviation(np.array(values))
    assert math.isfinite(mean)
    assert 0 < deviation < math.inf
    assert (mean, deviation) == mean_and_deviation(np.array(values[::-1]))


SCHEMA = TableSchema(
    (
        NumberColumn("n", "number", 10.0, 2.0, True),
        TextColumn("t", ("x", "y"), True),
        TextColumn("u", ("1", "01"), False),
    ),
    ClassTarget("c", ("no", "yes")),
)


def test_encoding_of_known_missing_unknown_and_extreme_values() -> None:
    rows = pa.table(
        {
            "u": ["01", "1", "2", None],
            "t": ["x", "unseen", None, " y "],
            "n": [12.0, None, 1e308, 6.0],
        }
    )
    assert SCHEMA.encode(rows).tolist() == [
        [1, 0, 1, 0, 0, 0, 1],
        [0, 1, 0, 0, 1, 1, 0],
        [10, 0, 0, 0, 0, 0, 0],
        [-2, 0, 0, 1, 0, 0, 0],
    ]


def test_absent_column_and_changed_type_are_refused() -> None:
    with pytest.raises(DataError, match="'t' is not in the data"):
        SCHEMA.encode(pa.table({"n": [1.0], "u": ["1"]}))
    with pytest.raises(DataError, match=r"'n' must hold numbers.*'many'"):
        SCHEMA.encode(pa.table({"n": ["many"], "t": ["x"], "u": ["1"]}))


def test_targets() -> None:
    column = pa.chunked_array([["yes", "no", None, "maybe"]])
    assert SCHEMA.target.encode(column).tolist() == [1, 0, -1, -1]
    whole = ClassTarget("c", (-1, 3, 7))
    assert whole.encode(pa.chunked_array([[7.0, -1.0, 3.5, None, 9.0]])).tolist() == [2, 0, -1, -1, -1]
    truth = ClassTarget("c", (False, True))
    assert truth.encode(pa.chunked_array([[True, False, None]])).tolist() == [1, 0, -1]
    number = NumberTarget("c", 10.0, 2.0)
    assert number.encode(pa.chunked_array([[12, 9]])).tolist() == [1.0, -0.5]


DAMAGE: dict[str, Any] = {
    "nothing": {},
    "a list": [],
    "no target": {"columns": []},
    "number for name": {"columns": [{"name": 1, "categories": ["a"], "other": True}], "target": {}},
    "number for category": {"columns": [{"name": "a", "categories": [1], "other": True}], "target": {}},
    "text for column": {"columns": ["a"], "target": {}},
    "kind": {
        "columns": [{"name": "a", "kind": "eval", "mean": 0, "deviation": 1, "indicator": False}],
        "target": {},
    },
    "deviation 0": {
        "columns": [{"name": "a", "kind": "date", "mean": 0, "deviation": 0, "indicator": False}],
        "target": {},
    },
    "mean NaN": {"columns": [], "target": {"name": "c", "mean": math.nan, "deviation": 1}},
    "mean text": {"columns": [], "target": {"name": "c", "mean": "x", "deviation": 1}},
    "no classes": {"columns": [], "target": {"name": "c", "classes": []}},
    "mixed classes": {"columns": [], "target": {"name": "c", "classes": [1, "a"]}},
    "classes out of order": {"columns": [], "target": {"name": "c", "classes": ["b", "a"]}},
    "class of null": {"columns": [], "target": {"name": "c", "classes": [None]}},
    "classes a number": {"columns": [], "target": {"name": "c", "classes": 5}},
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_schema_is_refused_on_one_line(name: str) -> None:
    with pytest.raises(DataError, match="schema cannot be used") as caught:
        schema_from_json(DAMAGE[name])
    assert "\n" not in str(caught.value)
