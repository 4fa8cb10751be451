"""Proof that every path of every unit gives the integer result on the unit's complete domain."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from daisychain.units.blocked import Array
from daisychain.units.counts import UNITS
from daisychain.units.domain import Domain, complete_domain
from daisychain.units.perceptron import Nets
from daisychain.units.store import shipped_nets
from daisychain.units.tables import Tables, load_tables

Path = Literal["scalar", "batched", "table"]


@dataclass(frozen=True)
class Certificate:
    """`right` of `total` cases of a unit on one path.

    `margin` is how far from the right integer the net can be, whatever the order of summation; 0 for a table.
    """

    unit: str
    path: Path
    right: int
    total: int
    margin: float

    @property
    def complete(self) -> bool:
        """Whether every case is right."""
        return self.right == self.total


def verify_units(nets: Nets | None = None, tables: Tables | None = None) -> list[Certificate]:
    """Run every unit over its complete domain on every path: nets one case at a time, nets on arrays, tables.

    The shipped nets and their tables are taken unless others are given. Takes some seconds.
    """
    nets, tables = nets or shipped_nets(), tables or load_tables()
    return [_certify(unit, path, nets, tables) for unit in UNITS for path in get_args(Path)]


def _certify(unit: str, path: Path, nets: Nets, tables: Tables) -> Certificate:
    domain = complete_domain(unit)
    function: Callable[..., Array] = getattr(tables if path == "table" else nets, unit)
    results = _one_by_one(function, domain) if path == "scalar" else function(*domain.operands)
    margin = 0.0 if path == "table" else nets.by_unit[unit].margin()
    return Certificate(unit, path, domain.right(results), len(domain.truth), margin)


def _one_by_one(function: Callable[..., Array], domain: Domain) -> Array:
    results = np.empty_like(domain.truth)
    for case in range(len(results)):
        results[case] = function(*(np.asarray(operand[case]) for operand in domain.operands))
    return results
