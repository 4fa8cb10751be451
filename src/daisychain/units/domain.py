"""The complete domain of each unit and what integer arithmetic says about it: 65,536, 65,536 and 256 cases."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from daisychain import numerics
from daisychain.base.errors import UnitError
from daisychain.units.blocked import Array
from daisychain.units.counts import MULTIPLY, RELU, REQUANTISE


@dataclass(frozen=True)
class Domain:
    """Every input of a unit, in table order, and the right result of each."""

    unit: str
    operands: tuple[Array, ...]
    truth: Array

    def right(self, results: Array) -> int:
        """How many of `results`, one a case and in order, are right."""
        return int((results == self.truth).sum())

    def check(self, results: Array, what: str) -> None:
        """Raise UnitError, naming the first wrong case of `what`, unless all are right."""
        if results.shape != self.truth.shape or results.dtype != self.truth.dtype:
            raise UnitError(
                f"{what}: {self.unit} has {results.dtype}{list(results.shape)}, not "
                f"{self.truth.dtype}{list(self.truth.shape)}; reinstall, or run `daisychain units train`."
            )
        wrong = np.flatnonzero(results != self.truth)
        if len(wrong):
            first = wrong[0]
            case = ", ".join(str(operand[first]) for operand in self.operands)
            raise UnitError(
                f"{what}: {self.unit}({case}) is {results[first]}, not {self.truth[first]}; {len(wrong)} of "
                f"{len(self.truth)} cases are wrong. Reinstall, or run `daisychain units train`."
            )


@cache
def complete_domain(unit: str) -> Domain:
    """The domain of `unit`. Case i of multiply is the pair of bytes (i div 256, i mod 256)."""
    return _DOMAINS[unit]()


def _multiply() -> Domain:
    a, b = np.divmod(np.arange(1 << 16, dtype=np.uint16), np.uint16(256))
    a8, b8 = a.astype(np.uint8).view(np.int8), b.astype(np.uint8).view(np.int8)
    return Domain(MULTIPLY, (a8, b8), a8.astype(np.int16) * b8)


def _requantise() -> Domain:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.int16)
    return Domain(REQUANTISE, (x,), numerics.requantise(x))


def _relu() -> Domain:
    x = np.arange(1 << 8, dtype=np.uint8).view(np.int8)
    return Domain(RELU, (x,), numerics.relu(x))


_DOMAINS: dict[str, Callable[[], Domain]] = {MULTIPLY: _multiply, REQUANTISE: _requantise, RELU: _relu}
