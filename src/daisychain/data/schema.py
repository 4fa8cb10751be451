"""How the columns of a table become features: fitted on training rows, kept in the checkpoint as JSON."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from daisychain.base import limits
from daisychain.base.errors import DataError
from daisychain.data.columns import F64, column_named, number_values, text_codes, text_values

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NumberColumn:
    """A number or date: standardised, clipped at ±MAX_DEVIATIONS, 0 where missing; then 1 where missing, if
    the training rows lack some."""

    name: str
    kind: Literal["number", "date"]
    mean: float
    deviation: float
    indicator: bool

    @property
    def features(self) -> int:
        return 1 + self.indicator

    def encode(self, column: Any, out: F32) -> None:
        """Write the features of a column into `out` (rows, features), which is zeros."""
        values = number_values(column, self.name, self.kind)
        missing = np.isnan(values)
        out[:, 0] = np.where(missing, 0, standardise(values, self.mean, self.deviation))
        if self.indicator:
            out[:, 1] = missing


@dataclass(frozen=True)
class TextColumn:
    """A text: one-hot over `categories`, then, if the training rows have rare texts, one for every other text.

    A missing text is all zeros; so is an unknown one where there is no place for others.
    """

    name: str
    categories: tuple[str, ...]
    other: bool

    @property
    def features(self) -> int:
        return len(self.categories) + self.other

    def encode(self, column: Any, out: F32) -> None:
        """Write the features of a column into `out` (rows, features), which is zeros."""
        values = text_values(column, self.name)
        codes = text_codes(values, self.categories)
        if self.other:
            codes[(codes < 0) & pc.is_valid(values).to_numpy()] = len(self.categories)
        known = np.flatnonzero(codes >= 0)
        out[known, codes[known]] = 1


@dataclass(frozen=True)
class ClassTarget:
    """What is predicted is one of `classes`, in rising order: all texts, all whole numbers, or false and true."""

    name: str
    classes: tuple[str | int, ...]

    def encode(self, column: Any) -> I64:
        """The class of each row: int64, −1 where it is missing or unknown."""
        if isinstance(self.classes[0], str):
            return text_codes(text_values(column, self.name), self.classes)
        values = number_values(column, self.name)
        classes = np.array(self.classes, np.float64)
        codes = np.clip(np.searchsorted(classes, values), 0, len(classes) - 1)
        return np.where(classes[codes] == values, codes, -1)


@dataclass(frozen=True)
class NumberTarget:
    """What is predicted is a number; the model learns it standardised."""

    name: str
    mean: float
    deviation: float

    def encode(self, column: Any) -> F32:
        """The standardised number of each row: float32, NaN where it is missing."""
        values = number_values(column, self.name)
        with np.errstate(over="ignore"):
            return np.asarray((values - self.mean) / self.deviation, np.float32)


@dataclass(frozen=True)
class TableSchema:
    """Everything that is needed to turn new rows into features and a model's outputs into answers."""

    columns: tuple[NumberColumn | TextColumn, ...]
    target: ClassTarget | NumberTarget

    @property
    def features(self) -> int:
        return sum(column.features for column in self.columns)

    @property
    def texts(self) -> set[str]:
        """Columns that must be read as text, even where they look like numbers."""
        names = {column.name for column in self.columns if isinstance(column, TextColumn)}
        if isinstance(self.target, ClassTarget) and isinstance(self.target.classes[0], str):
            names.add(self.target.name)
        return names

    def encode(self, table: Any) -> F32:
        """Features of a pyarrow.Table: float32 (rows, features). The order of its columns does not matter, nor
        do others. Raises DataError for a column that is absent or of another kind, or for infinite numbers."""
        out = np.zeros((table.num_rows, self.features), np.float32)
        place = 0
        for column in self.columns:
            column.encode(column_named(table, column.name), out[:, place : place + column.features])
            place += column.features
        return out

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def standardise(values: F64, mean: float, deviation: float) -> F64:
    """(values − mean) / deviation, clipped at ±MAX_DEVIATIONS; NaN stays."""
    with np.errstate(over="ignore"):  # what overflows is clipped
        return np.clip((values - mean) / deviation, -limits.MAX_DEVIATIONS, limits.MAX_DEVIATIONS)


def mean_and_deviation(values: F64) -> tuple[float, float]:
    """Of finite numbers, at least one; the deviation is 1 where all are the same.

    Sums are correctly rounded (`fsum`), so that every machine finds the same features; scaled, so that no
    square overflows.
    """
    largest = float(np.abs(values).max()) or 1.0
    scaled = values / largest
    mean = math.fsum(scaled) / len(scaled)
    deviation = math.sqrt(math.fsum((scaled - mean) ** 2) / len(scaled)) * largest
    return mean * largest, deviation or 1.0


def schema_from_json(description: Mapping[str, Any]) -> TableSchema:
    """The schema that `to_json` described. Raises DataError for anything else, since a file may be hostile."""
    try:
        return TableSchema(
            tuple(map(_column_from_json, description["columns"])), _target_from_json(description["target"])
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"the table schema cannot be used ({error!r:.200}); the file is damaged or not ours."
        ) from None


def _column_from_json(d: Mapping[str, Any]) -> NumberColumn | TextColumn:
    if "categories" in d:
        return TextColumn(_text(d["name"]), tuple(map(_text, d["categories"])), d["other"] is True)
    if d["kind"] not in ("number", "date"):
        raise ValueError(f"kind {d['kind']!r}")
    mean, deviation = _scale(d)
    return NumberColumn(_text(d["name"]), d["kind"], mean, deviation, d["indicator"] is True)


def _target_from_json(d: Mapping[str, Any]) -> ClassTarget | NumberTarget:
    if "classes" not in d:
        return NumberTarget(_text(d["name"]), *_scale(d))
    classes = tuple(d["classes"])
    kinds = {type(label) for label in classes}
    if len(kinds) != 1 or not kinds <= {str, int, bool} or list(classes) != sorted(set(classes)):
        raise ValueError("classes must be different texts, whole numbers or truth values, in order")
    return ClassTarget(_text(d["name"]), classes)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _scale(d: Mapping[str, Any]) -> tuple[float, float]:
    mean, deviation = float(d["mean"]), float(d["deviation"])
    if not (math.isfinite(mean) and 0 < deviation < math.inf):
        raise ValueError(f"mean {mean}, deviation {deviation}")
    return mean, deviation
