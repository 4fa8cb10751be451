"""How often each unit ran, and on which backend.

A product of (m, K) and (n, K) is m·n·K multiplications, whichever backend computes it: the table keeps backends
apart, so that the printed figure says honestly what ran where.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from daisychain.base.errors import CountingError

MULTIPLY = "multiply"
REQUANTISE = "requantise"
RELU = "relu"
UNITS = (MULTIPLY, REQUANTISE, RELU)

Table = dict[str, dict[str, int]]


class Counts:
    """Unit invocations by unit and backend. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._table: Table = {unit: {} for unit in UNITS}
        self._pauses = 0
        self._complete = True

    @property
    def enabled(self) -> bool:
        """Whether `add` counts; `paused` turns it off."""
        return self._pauses == 0

    @property
    def complete(self) -> bool:
        """Whether counting has been on without a gap since `reset`."""
        return self._complete

    def add(self, unit: str, backend: str, n: int) -> None:
        """Count `n` ≥ 0 invocations of `unit` on `backend`; does nothing while counting is off."""
        if self.enabled:
            self.merge({unit: {backend: n}})

    def total(self, unit: str) -> int:
        """Invocations of `unit` on every backend together."""
        with self._lock:
            return sum(self._table[_known(unit)].values())

    def table(self) -> Table:
        """A copy: unit → backend → invocations. Every unit is there, also one that never ran."""
        with self._lock:
            return {unit: dict(backends) for unit, backends in self._table.items()}

    def merge(self, table: Mapping[str, Mapping[str, int]]) -> None:
        """Add another node's `table`. Raises CountingError for an unknown unit or a negative count."""
        entries = [(_known(unit), backend, n) for unit in table for backend, n in table[unit].items()]
        for unit, backend, n in entries:
            if n < 0:
                raise CountingError(
                    f"unit {unit} cannot have run {n} times on {backend}; a count is 0 or more."
                )
        with self._lock:
            for unit, backend, n in entries:
                self._table[unit][backend] = self._table[unit].get(backend, 0) + n

    def reset(self) -> None:
        """Forget every count, and every pause that is over."""
        with self._lock:
            self._table = {unit: {} for unit in UNITS}
            self._complete = self._pauses == 0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count inside; `require` then refuses to answer until the next `reset`."""
        with self._lock:
            self._pauses += 1
            self._complete = False
        try:
            yield
        finally:
            with self._lock:
                self._pauses -= 1

    def require(self, minimums: Mapping[str, int]) -> None:
        """Raise CountingError unless each unit ran at least as often as `minimums` says.

        Also raised, whatever the counts, if counting is off or was off at any time since `reset`.
        """
        if not self.complete:
            state = "was off for a while" if self.enabled else "is off"
            raise CountingError(
                f"unit counting {state}, so the counts prove nothing; reset them and run again."
            )
        for unit, minimum in minimums.items():
            if (count := self.total(unit)) < minimum:
                raise CountingError(
                    f"unit {unit} ran {count} times, fewer than the required {minimum}; "
                    "look for layers that bypass the verified units."
                )


def _known(unit: str) -> str:
    if unit not in UNITS:
        raise CountingError(f"unit {unit!r} is not known; use one of {', '.join(UNITS)}.")
    return unit


#: What this process ran.
counts = Counts()
