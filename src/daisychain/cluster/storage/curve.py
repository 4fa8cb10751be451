"""A run's curve in bounded memory: quiet stretches are thinned, and no peak or trough of any column is lost."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from daisychain.base import limits

COLUMNS = ("step", "trained_s", "loss", "samples_per_s")
_VALUES = (2, 3)  # columns whose extremes are kept
Rows = npt.NDArray[np.float64]  # (rows, COLUMNS), by rising step


def thin(rows: Rows, points: int) -> Rows:
    """At most `points` of `rows`, or a handful where `points` is less: of each stretch of steps those with the least
    and the greatest of every column, and of all the first and the last."""
    if len(rows) <= points:
        return rows
    stretches = max(1, (points - 2) // (2 * len(_VALUES)))
    edges = np.linspace(rows[0, 0], rows[-1, 0], stretches + 1)[1:-1]
    starts = [0, *np.searchsorted(rows[:, 0], edges, side="right").tolist(), len(rows)]
    kept = {0, len(rows) - 1}
    for first, last in itertools.pairwise(starts):
        if first < last:
            part = rows[first:last, _VALUES]
            kept.update((first + part.argmin(0)).tolist(), (first + part.argmax(0)).tolist())
    return rows[sorted(kept)]


class Curve:
    """Rows of a run as they come; at most HISTORY_ROWS are held."""

    def __init__(self) -> None:
        self._rows = np.empty((1024, len(COLUMNS)))
        self._count = 0
        self.steps_seen = 0  # rows that came in all

    @property
    def rows(self) -> Rows:
        return self._rows[: self._count]

    def add(self, step: int, step_s: float, loss: float, samples_per_s: float) -> None:
        """One more step, later than all before; `trained_s` adds up what the steps took."""
        if self._count == limits.HISTORY_ROWS:
            kept = thin(self.rows, limits.HISTORY_ROWS // 2)
            self._rows[: len(kept)], self._count = kept, len(kept)
        if self._count == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        trained_s = (self._rows[self._count - 1, 1] if self._count else 0.0) + step_s
        self._rows[self._count] = step, trained_s, loss, samples_per_s
        self._count += 1
        self.steps_seen += 1

    def columns(self, points: int) -> dict[str, list[Any]]:
        """Column by column, as plain numbers; at most about `points` of each."""
        table: Mapping[str, list[Any]] = dict(zip(COLUMNS, thin(self.rows, points).T.tolist(), strict=True))
        return {**table, "step": [int(step) for step in table["step"]]}
