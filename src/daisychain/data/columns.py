"""Reading CSV and Parquet, and turning a column of any Arrow type into numbers or texts.

A missing value is an empty cell, NaN, or one of `NULL_TEXTS` in a CSV file. Infinity is refused.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from daisychain.base import limits
from daisychain.base.errors import DataError
from daisychain.data.files import check_regular, reason
from daisychain.data.names import listed, suggest

#: A CSV or Parquet file, or a pyarrow.Table (pyarrow has no types of its own).
TableSource: TypeAlias = Any
Kind = Literal["number", "date", "text", "empty", "other"]
F64 = npt.NDArray[np.float64]

NULL_TEXTS = ["", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null"]
DELIMITERS = ",;\t|"
SECONDS_OF_UNIT = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
DAY_S = 86_400.0


def as_table(source: TableSource, as_text: Collection[str] = ()) -> Any:
    """A pyarrow.Table of a path or of a table. In a CSV file the columns `as_text` are not read as numbers.

    Raises DataError: no such file, empty, broken, not UTF-8, no rows, two columns of one name, too large.
    """
    if isinstance(source, pa.Table):
        table, name = source, "the table"
    else:
        path = Path(source)
        table, name = _read(path, as_text), repr(str(path))
    table = table.rename_columns([column.strip() for column in table.column_names])
    names = table.column_names
    if len(set(names)) < len(names):
        twice = sorted({column for column in names if names.count(column) > 1})
        raise DataError(f"{name} has more than one column named {listed(twice)}; rename them.")
    if table.num_rows == 0:
        raise DataError(f"{name} has no rows; give one with data below its header.")
    _check_rows(table.num_rows, name)
    return table


def column_named(table: Any, name: str, what: str = "column") -> Any:
    """A column by its name. Raises DataError, with the names that are near."""
    if name not in table.column_names:
        raise DataError(f"{what} {name!r} is not in the data; {suggest(name, table.column_names)}")
    return table[name]


def column_kind(column: Any) -> Kind:
    """What a column can be used as."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    is_a = pa.types
    if is_a.is_null(kind):
        return "empty"
    if is_a.is_boolean(kind) or is_a.is_integer(kind) or is_a.is_floating(kind) or is_a.is_decimal(kind):
        return "number"
    if is_a.is_temporal(kind) and not is_a.is_interval(kind):
        return "date"
    if is_a.is_string(kind) or is_a.is_large_string(kind) or is_a.is_string_view(kind):
        return "text"
    return "other"


def number_values(column: Any, name: str, wanted: Kind = "number") -> F64:
    """A column of numbers, or of dates as seconds, as float64; NaN where it is missing. Raises DataError."""
    kind = column_kind(column)
    if kind == "empty":
        return np.full(len(column), np.nan)
    if kind != wanted:
        raise DataError(_unexpected(column, name, kind, wanted))
    column = _plain(column)
    whole, factor = _whole_seconds(column) if kind == "date" else (column, 1.0)
    values = cast(F64, whole.cast(pa.float64(), safe=False).to_numpy()) * factor
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        raise DataError(
            f"column {name!r} has {len(infinite)} infinite values, the first in row {infinite[0] + 1}; give "
            "numbers, or leave those cells empty to have them treated as missing."
        )
    return values


def text_values(column: Any, name: str) -> Any:
    """A column as Arrow large_string, without spaces around; null where it is missing. Raises DataError."""
    try:
        trimmed = pc.utf8_trim_whitespace(_plain(column).cast(pa.large_string()))
    except pa.ArrowException as error:
        raise DataError(f"column {name!r} cannot be read as text: {reason(error)}.") from None
    return pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.large_string()), trimmed)


def text_codes(values: Any, categories: Collection[str | int]) -> npt.NDArray[np.int64]:
    """The place of each text among `categories`: int64, −1 where it is none of them or missing."""
    codes = pc.index_in(values, value_set=pa.array(categories, pa.large_string()))
    return cast("npt.NDArray[np.int64]", pc.fill_null(codes, -1).to_numpy().astype(np.int64))


def _plain(column: Any) -> Any:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _whole_seconds(column: Any) -> tuple[Any, float]:
    """A column of dates or times as integers, and what one of them is in seconds."""
    kind = column.type
    integers = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    if pa.types.is_date(kind):
        return integers, DAY_S if kind.bit_width == 32 else SECONDS_OF_UNIT["ms"]
    return integers, SECONDS_OF_UNIT[kind.unit]


def _unexpected(column: Any, name: str, kind: Kind, wanted: Kind) -> str:
    example = next(
        (value for value in column.to_pylist() if value is not None and not _is_number(value)), None
    )
    shown = f", such as {str(example)[:40]!r}" if example is not None else ""
    return f"column {name!r} must hold {wanted}s; it has type {column.type}{shown}. Correct or leave out those cells."


def _is_number(value: object) -> bool:
    try:
        float(str(value))
    except ValueError:
        return False
    return True


def _read(path: Path, as_text: Collection[str]) -> Any:
    check_regular(path, limits.MAX_TABLE_BYTES)
    try:
        with open(path, "rb") as file:
            head = file.read(1 << 16)
        if path.suffix.lower() in (".parquet", ".pq") or head.startswith(b"PAR1"):
            return _read_parquet(path)
        return _read_csv(path, head, as_text)
    except UnicodeDecodeError:
        raise DataError(f"{str(path)!r} is not UTF-8 text; save it as UTF-8 CSV.") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{str(path)!r} cannot be read as a table: {reason(error)}.") from None


def _read_parquet(path: Path) -> Any:
    with parquet.ParquetFile(path) as file:
        _check_rows(file.metadata.num_rows, repr(str(path)))
        groups = range(file.metadata.num_row_groups)
        size = sum(file.metadata.row_group(group).total_byte_size for group in groups)
        if size > limits.MAX_TABLE_BYTES:
            raise DataError(
                f"{str(path)!r} unpacks to {size} bytes; the most is {limits.MAX_TABLE_BYTES}. Use a part of it."
            )
        return file.read()


def _read_csv(path: Path, head: bytes, as_text: Collection[str]) -> Any:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{str(path)!r} is UTF-16 text; save it as UTF-8 CSV.")
    header = head.splitlines()[0].decode(errors="replace")
    table = csv.read_csv(
        path,
        parse_options=csv.ParseOptions(
            delimiter=max(DELIMITERS, key=header.count),  # the first, a comma, if there is none
            newlines_in_values=True,
        ),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(as_text, pa.large_string()),
            null_values=NULL_TEXTS,
            strings_can_be_null=True,
        ),
    )
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_binary(column.type):
            raise DataError(f"{str(path)!r}: column {name!r} is not UTF-8 text; save the file as UTF-8 CSV.")
    return table


def _check_rows(rows: int, name: str) -> None:
    if rows > limits.MAX_TABLE_ROWS:
        raise DataError(f"{name} has {rows} rows; the most is {limits.MAX_TABLE_ROWS}. Use a part of it.")
