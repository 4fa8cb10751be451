"""Tables: what is inferred, what is left out, and what is refused."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from daisychain.base import limits
from daisychain.base.errors import DataError
from daisychain.data.schema import ClassTarget, NumberColumn, NumberTarget, TextColumn
from daisychain.data.tables import TableData, load_table

from .table_help import TARGET, write_real_table

ROWS = 40
LABELS = ["no", "yes"] * (ROWS // 2)
WAVE = [float(n % 7) + 0.5 for n in range(ROWS)]


def load(**columns: Any) -> TableData:
    return load_table(pa.table({"wave": WAVE, "y": LABELS} | columns), "y", 0)


def column_of(data: TableData, name: str) -> NumberColumn | TextColumn | None:
    return next((column for column in data.schema.columns if column.name == name), None)


def notes_of(data: TableData) -> str:
    return "; ".join(data.notes)


@pytest.mark.parametrize(
    ("values", "target"),
    [
        (LABELS, ClassTarget("y", ("no", "yes"))),
        (pa.array(LABELS).dictionary_encode(), ClassTarget("y", ("no", "yes"))),
        ([True, False] * 20, ClassTarget("y", (False, True))),
        ([3, -1] * 20, ClassTarget("y", (-1, 3))),
        ([3.0, -1.0] * 20, ClassTarget("y", (-1, 3))),
        ([n % 20 for n in range(40)], ClassTarget("y", tuple(range(20)))),
    ],
)
def test_target_classes(values: Any, target: ClassTarget) -> None:
    data = load(y=values)
    assert data.schema.target == target
    assert [target.classes[code] for code in data.targets] == pa.array(values).to_pylist()


@pytest.mark.parametrize(
    "values",
    [[n % 21 for n in range(ROWS)], list(range(ROWS)), [0.5, 1.5] * 20, [2**62, *range(39)]],
)
def test_target_numbers(values: list[float]) -> None:
    data = load(y=values)
    target = data.schema.target
    assert isinstance(target, NumberTarget)
    back = data.targets.astype(np.float64) * target.deviation + target.mean
    assert np.allclose(back, values, rtol=1e-5, atol=1e-5 * target.deviation)


BAD_TARGETS: dict[str, tuple[Any, str]] = {
    "one text": (["a"] * ROWS, "has one value only, 'a'"),
    "one number": ([7] * ROWS, "has one value only, 7"),
    "one fraction": ([0.5] * ROWS, "has one value only, 0.5"),
    "one truth": ([True] * ROWS, "has one value only, True"),
    "one value and missing": (["a", None] * (ROWS // 2), "has one value only, 'a'"),
    "all missing": ([None] * ROWS, "0 rows with a value of 'y' and 40 without"),
    "nearly all missing": (["a", "b"] * 4 + [None] * 32, "8 rows with a value of 'y' and 32 without"),
    "free text": ([f"text {n}" for n in range(ROWS)], "40 different texts in 40 rows, such as 'text 0'"),
    "date": ([datetime.date(2020, 1, 1 + n % 9) for n in range(ROWS)], "type date32"),
    "list": ([[1]] * ROWS, "type list"),
    "infinite": ([1.0, float("inf")] * 20, "20 infinite values, the first in row 2"),
}


@pytest.mark.parametrize("name", BAD_TARGETS)
def test_bad_target_is_refused_on_one_line(name: str) -> None:
    values, words = BAD_TARGETS[name]
    with pytest.raises(DataError, match=words) as caught:
        load(y=values)
    assert "\n" not in str(caught.value)


def test_absent_target_names_the_near_ones() -> None:
    with pytest.raises(DataError, match="target column 'Wav' is not in the data; did you mean 'wave'"):
        load_table(pa.table({"wave": WAVE, "y": LABELS}), "Wav", 0)


def test_too_few_rows_and_too_large_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="at least 10"):
        load_table(pa.table({"x": [1, 2], "y": [0, 1]}), "y", 0)
    monkeypatch.setattr(limits, "MAX_TABLE_CELLS", 39)
    with pytest.raises(DataError, match="40 rows × 1 features"):
        load()


def test_rows_without_target_are_left_out_and_said() -> None:
    data = load(y=[None, *LABELS[1:]])
    assert set(data.train) | set(data.held_out) == set(range(1, ROWS))
    assert "1 rows without a value of 'y' left out" in notes_of(data)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([5] * ROWS, "one value only"),
        (["same"] * ROWS, "one value only"),
        ([None] * ROWS, "no values"),
        ([float("nan")] * ROWS, "no values"),
        ([""] * ROWS, "no values"),
        ([f"name {n}" for n in range(ROWS)], "no text occurs twice"),
        ([[n] for n in range(ROWS)], "type list"),
        ([{"a": n} for n in range(ROWS)], "type struct"),
        ([bytes([n]) for n in range(ROWS)], "type binary"),
    ],
)
def test_useless_columns_are_left_out_and_said(values: list[Any], why: str) -> None:
    data = load(z=values)
    assert column_of(data, "z") is None
    assert why in notes_of(data)
    assert "'z'" in notes_of(data)


def test_row_numbers_are_left_out_but_not_other_counts() -> None:
    data = load(id=list(range(ROWS)), age=list(range(ROWS)))
    assert column_of(data, "id") is None
    assert "numbers the rows: 'id'" in notes_of(data)
    assert column_of(data, "age") is not None


def test_table_without_a_useful_column_is_refused() -> None:
    with pytest.raises(DataError, match=r"no column can be learned from; .*one value only: 'z'"):
        load_table(pa.table({"z": [1] * ROWS, "y": LABELS}), "y", 0)
    with pytest.raises(DataError, match="there is only the target"):
        load_table(pa.table({"y": LABELS}), "y", 0)


def test_missing_numbers_are_marked() -> None:
    data = load(z=[None, *WAVE[1:]], w=[5, None] * 20)
    z = column_of(data, "z")
    w = column_of(data, "w")
    assert isinstance(w, NumberColumn)
    assert w.indicator
    assert (w.mean, w.deviation) == (5, 1)
    assert isinstance(z, NumberColumn)
    assert "values are missing in" in notes_of(data)


def test_many_categories_are_bounded_and_said() -> None:
    values = [f"c{n // 2:04}" for n in range(2_000)]
    table = pa.table({"z": values, "y": ["no", "yes"] * 1_000})
    data = load_table(table, "y", 0)
    z = column_of(data, "z")
    assert isinstance(z, TextColumn)
    assert len(z.categories) == limits.MAX_CATEGORIES
    assert z.other
    assert (data.features.sum(axis=1) == 1).all()
    assert "64 of" in notes_of(data)


def test_commonest_categories_come_first_and_rare_ones_are_other() -> None:
    values = ["b"] * 15 + ["a"] * 23 + ["rare1", "rare2"]
    data = load(z=values)
    z = column_of(data, "z")
    assert isinstance(z, TextColumn)
    assert z.categories == ("a", "b")


def test_dates_are_numbers() -> None:
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(days=n) for n in range(ROWS)]
    data = load(z=days)
    z = column_of(data, "z")
    assert isinstance(z, NumberColumn)
    assert z.kind == "date"
    encoded = data.features[:, 1].astype(np.float64)
    assert np.allclose(np.diff(encoded), np.diff(encoded)[0], rtol=1e-4)


def test_infinite_feature_is_refused_by_its_row_in_the_file() -> None:
    values = [1.0] * 20 + [float("inf")] + [2.0] * 19
    with pytest.raises(DataError, match="column 'z' has 1 infinite values, the first in row 21"):
        load(z=values, y=[None, *LABELS[1:]])


def test_schema_is_fitted_on_training_rows_alone() -> None:
    clean = load()
    values = list(WAVE)
    for row in clean.held_out:
        values[row] = 1e6
    assert load(wave=values).schema == clean.schema


@pytest.mark.parametrize("name", ["breast_cancer", "wine", "diabetes"])
def test_real_tables(tmp_path: Path, name: Any) -> None:
    path = tmp_path / "data.csv"
    write_real_table(path, name)
    data = load_table(path, TARGET, 3)
    assert column_of(data, "note") is None
    size = column_of(data, "size")
    assert isinstance(size, TextColumn)
    assert set(size.categories) == {"large", "small"}
    assert isinstance(data.schema.target, NumberTarget if name == "diabetes" else ClassTarget)
    assert np.isfinite(data.features).all()
    from pyarrow import csv

    parquet.write_table(csv.read_csv(path), tmp_path / "data.parquet")
    same = load_table(tmp_path / "data.parquet", TARGET, 3)
    assert same.schema == data.schema
    assert np.array_equal(same.features, data.features)
    assert np.array_equal(same.targets, data.targets)
