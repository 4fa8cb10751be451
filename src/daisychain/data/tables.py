"""Any CSV or Parquet file as features and targets: types are inferred, and what was decided is said."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from daisychain.base import limits
from daisychain.base.errors import DataError
from daisychain.data.columns import (
    TableSource,
    as_table,
    column_kind,
    column_named,
    number_values,
    text_values,
)
from daisychain.data.names import listed
from daisychain.data.schema import (
    ClassTarget,
    NumberColumn,
    NumberTarget,
    TableSchema,
    TextColumn,
    mean_and_deviation,
)
from daisychain.data.split import held_out_split

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
ROW_NUMBER_NAMES = {"", "id", "index", "unnamed: 0", "__index_level_0__"}


@dataclass(frozen=True)
class TableData:
    """`features` float32 (rows, schema.features); `targets` (rows,): int64 classes or float32 standardised.

    `train` and `held_out` are rows; `notes` says what was decided, a line each.
    """

    schema: TableSchema
    features: F32
    targets: I64 | F32
    train: I64
    held_out: I64
    notes: tuple[str, ...]


def load_table(source: TableSource, target: str, seed: int) -> TableData:
    """Read a table, fit its schema on the training rows and encode it. Raises DataError."""
    table = as_table(source)
    label_column = column_named(table, target, "target column")
    missing = _is_missing(label_column, target)
    rows = np.flatnonzero(~missing)
    if len(rows) < limits.MIN_TABLE_ROWS:
        raise DataError(
            f"the table has {len(rows)} rows with a value of {target!r} and {missing.sum()} without; training "
            f"needs at least {limits.MIN_TABLE_ROWS}."
        )
    train, held_out = (rows[part] for part in held_out_split(len(rows), limits.HELD_OUT_MAX_ROWS, seed))
    fitted_target = _fit_target(label_column, target, rows, train)
    columns, notes = _fit_columns(table.drop_columns([target]), train)
    schema = TableSchema(columns, fitted_target)
    if table.num_rows * schema.features > limits.MAX_TABLE_CELLS:
        raise DataError(
            f"the table becomes {table.num_rows} rows × {schema.features} features; the most is "
            f"{limits.MAX_TABLE_CELLS} cells. Use fewer rows or columns."
        )
    if missing.any():
        notes = (f"{missing.sum()} rows without a value of {target!r} left out", *notes)
    summary = (
        f"table: {len(rows)} rows, {len(held_out)} of them held out; {len(columns)} columns become "
        f"{schema.features} features; {_describe(fitted_target)}"
    )
    features, targets = schema.encode(table), fitted_target.encode(label_column)
    return TableData(schema, features, targets, train, held_out, (summary, *notes))


def _is_missing(column: Any, target: str) -> npt.NDArray[np.bool_]:
    kind = column_kind(column)
    if kind == "text":
        return np.asarray(pc.is_null(text_values(column, target)).to_numpy())
    if kind in ("number", "empty"):
        return np.isnan(number_values(column, target))
    raise DataError(
        f"target column {target!r} has type {column.type}; a target is a number, a text or true and false."
    )


def _fit_target(column: Any, name: str, rows: I64, train: I64) -> ClassTarget | NumberTarget:
    different = _different_values(column, name, rows)
    if len(different) < 2:
        raise DataError(f"target column {name!r} has one value only, {different[0]!r}; give one that varies.")
    is_text = isinstance(different[0], str)
    most = limits.MAX_CLASSES if is_text else limits.MAX_INTEGER_CLASSES
    if len(different) <= most and 2 * len(different) <= len(rows) and not isinstance(different[0], float):
        return ClassTarget(name, different)
    if is_text:
        raise DataError(
            f"target column {name!r} has {len(different)} different texts in {len(rows)} rows, such as "
            f"{str(different[0])[:40]!r}; a class must occur twice on average, and {most} classes are the most."
        )
    return NumberTarget(name, *mean_and_deviation(number_values(column, name)[train]))


def _different_values(column: Any, name: str, rows: I64) -> tuple[str, ...] | tuple[float, ...]:
    """In rising order: texts, truth values, whole numbers as int, or others as float."""
    if column_kind(column) == "text":
        return tuple(sorted(pc.unique(text_values(column, name).take(pa.array(rows))).to_pylist()))
    different = np.unique(number_values(column, name)[rows])
    if pa.types.is_boolean(column.type):
        return tuple(map(bool, different))
    return tuple(map(int if (different % 1 == 0).all() else float, different))


def _describe(target: ClassTarget | NumberTarget) -> str:
    if isinstance(target, ClassTarget):
        return (
            f"{target.name!r} is one of {len(target.classes)} classes: {listed([*map(str, target.classes)])}"
        )
    return f"{target.name!r} is a number, {target.mean:.6g} ± {target.deviation:.6g}"


def _fit_columns(table: Any, train: I64) -> tuple[tuple[NumberColumn | TextColumn, ...], tuple[str, ...]]:
    columns: list[NumberColumn | TextColumn] = []
    left_out: dict[str, list[str]] = {}
    notes: list[str] = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        fitted = _fit_column(name, column, train, notes)
        if isinstance(fitted, str):
            left_out.setdefault(fitted, []).append(name)
        else:
            columns.append(fitted)
    notes += [f"columns left out, {why}: {listed(names)}" for why, names in left_out.items()]
    if not columns:
        raise DataError(f"no column can be learned from; {'; '.join(notes) or 'there is only the target'}.")
    with_missing = [
        c.name for c in columns if (c.indicator if isinstance(c, NumberColumn) else table[c.name].null_count)
    ]
    if with_missing:
        notes.append(
            f"values are missing in {listed(with_missing)}: a number counts as the column's mean and is marked, a "
            "text counts as none of those told apart"
        )
    return tuple(columns), tuple(notes)


def _fit_column(name: str, column: Any, train: I64, notes: list[str]) -> NumberColumn | TextColumn | str:
    """The column fitted on its training rows, or why it is left out."""
    kind = column_kind(column)
    if kind == "text":
        return _fit_text(name, text_values(column, name).take(pa.array(train)), notes)
    if kind not in ("number", "date", "empty"):
        return f"type {column.type}"
    values = number_values(column, name, kind)[train]
    present = values[~np.isnan(values)]
    if len(present) == 0:
        return "no values"
    indicator = len(present) < len(values)
    different = len(np.unique(present))
    if different + indicator < 2:
        return "one value only"
    if name.casefold() in ROW_NUMBER_NAMES and different == len(values) and (values % 1 == 0).all():
        return "numbers the rows"
    return NumberColumn(name, "date" if kind == "date" else "number", *mean_and_deviation(present), indicator)


def _fit_text(name: str, values: Any, notes: list[str]) -> TextColumn | str:
    counts = {entry["values"]: entry["counts"] for entry in pc.value_counts(values).to_pylist()}
    missing = counts.pop(None, 0)
    if not counts:
        return "no values"
    if len(counts) == 1 and not missing:
        return "one value only"
    often = [text for text, count in counts.items() if count >= limits.MIN_CATEGORY_ROWS]
    if not often:
        return "no text occurs twice"
    kept = sorted(sorted(often), key=lambda text: -counts[text])[: limits.MAX_CATEGORIES]
    if len(kept) < len(counts):
        notes.append(f"{name!r}: {len(kept)} of {len(counts)} texts are told apart, the rest count as other")
    return TextColumn(name, tuple(kept), len(kept) < len(counts))
