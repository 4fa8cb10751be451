"""Reading tables: every bad file is refused on one line, and every column type is understood."""

import datetime
import decimal
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from daisychain.base import limits
from daisychain.base.errors import DataError
from daisychain.data.columns import as_table, column_kind, column_named, number_values, text_values

BAD_FILES = {
    "empty": (b"", "is empty"),
    "blank lines": (b"\n\n\n", "cannot be read"),
    "header only": (b"a,b\n", "has no rows"),
    "header without line end": (b"a,b", "has no rows|cannot be read"),
    "ragged, too few": (b"a,b\n1,2\n3\n", "Expected 2 columns, got 1"),
    "ragged, too many": (b"a,b\n1,2\n3,4,5\n", "Expected 2 columns, got 3"),
    "open quote": (b'a,b\n"1,2\n3,4\n', "cannot be read"),
    "duplicate names": (b"a,b,a\n1,2,3\n", "more than one column named 'a'"),
    "duplicate names but for spaces": (b"a,b, a\n1,2,3\n", "more than one column named 'a'"),
    "latin-1 cell": ("a,b\nköln,2\n".encode("latin-1"), "'a' is not UTF-8"),
    "latin-1 header": ("ä,b\n1,2\n".encode("latin-1"), "not UTF-8"),
    "utf-16": ("a,b\n1,2\n".encode("utf-16"), "UTF-16"),
    "zip in disguise": (b"PK\3\4\0\0\0\xff" * 20, "cannot be read|not UTF-8|has no rows"),
    "cut parquet": (b"PAR1" + b"\0" * 100, "cannot be read"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_file_is_refused_on_one_line(tmp_path: Path, name: str) -> None:
    content, words = BAD_FILES[name]
    path = tmp_path / "data.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        as_table(path)
    assert "\n" not in str(caught.value)
    assert "data.csv" in str(caught.value)


def test_bad_paths(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, words in {"absent.csv": "does not exist", ".": "is a folder", "pipe": "a pipe"}.items():
        with pytest.raises(DataError, match=words):
            as_table(tmp_path / name)


@pytest.mark.parametrize("length", [0, 4, 50, 300, -5, -1])
def test_cut_parquet_is_refused(tmp_path: Path, length: int) -> None:
    parquet.write_table(pa.table({"a": list(range(100)), "b": ["x"] * 100}), tmp_path / "whole.parquet")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "whole.parquet").read_bytes()[:length])
    with pytest.raises(DataError, match=r"cut.parquet") as caught:
        as_table(tmp_path / "cut.parquet")
    assert "\n" not in str(caught.value)


def test_csv_named_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="cannot be read"):
        as_table(tmp_path / "a.parquet")


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"a": [1, 2, 3]})
    parquet.write_table(table, tmp_path / "a.parquet")
    monkeypatch.setattr(limits, "MAX_TABLE_ROWS", 2)
    for source in (table, tmp_path / "a.parquet"):
        with pytest.raises(DataError, match="has 3 rows; the most is 2"):
            as_table(source)
    monkeypatch.setattr(limits, "MAX_TABLE_BYTES", 10)
    with pytest.raises(DataError, match="bytes; the most is 10"):
        as_table(tmp_path / "a.parquet")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_byte_order_mark_spaces_and_quoted_lines(tmp_path: Path, delimiter: str) -> None:
    rows = [["a", " b "], ["1", '"x, y\nz"'], ["2.5", '"w"']]
    text = "\r\n".join(delimiter.join(row) for row in rows)
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    table = as_table(tmp_path / "a.csv")
    assert table.column_names == ["a", "b"]
    assert number_values(table["a"], "a").tolist() == [1.0, 2.5]
    assert text_values(table["b"], "b").to_pylist() == ["x, y\nz", "w"]


def test_type_may_change_far_down(tmp_path: Path) -> None:
    """The type of a column is that of the whole file, not of its first megabyte."""
    (tmp_path / "a.csv").write_text("a,b\n" + "1,2\n" * 400_000 + "x,2.5\n")
    table = as_table(tmp_path / "a.csv")
    assert column_kind(table["a"]) == "text"
    assert number_values(table["b"], "b")[-1] == 2.5


@pytest.mark.parametrize("missing", ["", "NA", "NaN", "nan", "?", "null", "NULL", "N/A", "#N/A"])
def test_missing_values(tmp_path: Path, missing: str) -> None:
    (tmp_path / "a.csv").write_text(f"a,b\n1,x\n{missing},{missing}\n")
    table = as_table(tmp_path / "a.csv")
    assert np.isnan(number_values(table["a"], "a")).tolist() == [False, True]
    assert text_values(table["b"], "b").to_pylist() == ["x", None]


COLUMNS: list[tuple[Any, list[float]]] = [
    (pa.array([True, None, False]), [1, np.nan, 0]),
    (pa.array([1, None, -3], pa.int8()), [1, np.nan, -3]),
    (pa.array([2**63, None], pa.uint64()), [2.0**63, np.nan]),
    (pa.array([0.5, float("nan"), None], pa.float16()), [0.5, np.nan, np.nan]),
    (pa.array([decimal.Decimal("1.25"), None]), [1.25, np.nan]),
    (pa.array([3, None, 3]).dictionary_encode(), [3, np.nan, 3]),
    (pa.array([None, None]), [np.nan, np.nan]),
]


@pytest.mark.parametrize(("array", "values"), COLUMNS, ids=lambda v: str(getattr(v, "type", "")))
def test_number_types(array: Any, values: list[float]) -> None:
    got = number_values(pa.chunked_array([array]), "a")
    assert got.dtype == np.float64
    assert np.array_equal(got, values, equal_nan=True)


DAY = datetime.date(1970, 1, 3)
MOMENT = datetime.datetime(1970, 1, 3)


@pytest.mark.parametrize(
    "array",
    [
        pa.array([DAY, None], pa.date32()),
        pa.array([DAY, None], pa.date64()),
        *(pa.array([MOMENT, None], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")),
        pa.array([MOMENT, None], pa.timestamp("us", "Asia/Tokyo")),
        *(
            pa.array([datetime.timedelta(days=2), None], pa.duration(unit))
            for unit in ("s", "ms", "us", "ns")
        ),
    ],
    ids=lambda array: str(array.type),
)
def test_dates_are_seconds(array: Any) -> None:
    got = number_values(pa.chunked_array([array]), "a", "date")
    assert np.allclose(got, [172_800, np.nan], rtol=1e-12, equal_nan=True)


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_times_of_day_are_seconds(unit: str) -> None:
    array = pa.array([datetime.time(1, 0, 5)], pa.time32(unit))
    assert np.allclose(number_values(pa.chunked_array([array]), "a", "date"), [3_605])


def test_infinity_is_refused_by_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n2\n-inf\ninf\n")
    with pytest.raises(DataError, match="'a' has 2 infinite values, the first in row 3"):
        number_values(as_table(tmp_path / "a.csv")["a"], "a")


def test_text_where_numbers_are_wanted_is_shown(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n2\nthree\n")
    with pytest.raises(DataError, match=r"'a' must hold numbers.*'three'"):
        number_values(as_table(tmp_path / "a.csv")["a"], "a")


def test_invalid_utf8_in_parquet_is_refused() -> None:
    bad = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
    )
    with pytest.raises(DataError, match="'a' cannot be read as text"):
        text_values(pa.chunked_array([bad]), "a")


def test_near_names_are_offered() -> None:
    table = pa.table({"Diagnosis": [1], "age": [2]})
    with pytest.raises(DataError, match="did you mean 'Diagnosis'"):
        column_named(table, "diagnosys", "target column")
    with pytest.raises(DataError, match="there are 'Diagnosis', 'age'"):
        column_named(table, "xyz", "target column")
