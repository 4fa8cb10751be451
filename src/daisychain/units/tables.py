"""The units as look-up tables made from the nets, and certified against integer arithmetic whenever made."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from daisychain.base import limits
from daisychain.units.blocked import in_blocks
from daisychain.units.counts import MULTIPLY, RELU, REQUANTISE
from daisychain.units.domain import complete_domain
from daisychain.units.perceptron import I8, I16, Nets
from daisychain.units.store import shipped_nets


@dataclass(frozen=True)
class Tables:
    """Tables of a unit's results in the order of its complete domain. A wrong entry cannot be constructed.

    `products` int16 (65,536,), `requantised` int8 (65,536,), `rectified` int8 (256,); read-only copies are kept.
    Raises UnitError naming the first wrong entry.
    """

    products: I16
    requantised: I8
    rectified: I8

    def __post_init__(self) -> None:
        for unit, name in ((MULTIPLY, "products"), (REQUANTISE, "requantised"), (RELU, "rectified")):
            table = np.array(getattr(self, name))
            complete_domain(unit).check(table, "table refused")
            table.setflags(write=False)
            object.__setattr__(self, name, table)

    def multiply(self, a: I8, b: I8) -> I16:
        """a·b, int8 and int8 of one shape → int16."""

        def block(a: I8, b: I8) -> I16:
            pairs = (a.view(np.uint8).astype(np.uint16) << 8) | b.view(np.uint8)
            return np.take(self.products, pairs)

        return in_blocks(MULTIPLY, block, (a, b), (np.int8, np.int16), limits.UNIT_BLOCK_ELEMENTS)

    def requantise(self, x: I16) -> I8:
        """sat8((x + 128) >> 8), int16 → int8."""

        def block(x: I16) -> I8:
            return np.take(self.requantised, x.view(np.uint16))

        return in_blocks(REQUANTISE, block, (x,), (np.int16, np.int8), limits.UNIT_BLOCK_ELEMENTS)

    def relu(self, x: I8) -> I8:
        """max(x, 0), int8 → int8."""

        def block(x: I8) -> I8:
            return np.take(self.rectified, x.view(np.uint8))

        return in_blocks(RELU, block, (x,), (np.int8, np.int8), limits.UNIT_BLOCK_ELEMENTS)


def tables_from(nets: Nets) -> Tables:
    """Evaluate `nets` on their complete domains. Raises UnitError if any result is wrong."""
    multiply, requantise, relu = (complete_domain(unit).operands for unit in (MULTIPLY, REQUANTISE, RELU))
    return Tables(nets.multiply(*multiply), nets.requantise(*requantise), nets.relu(*relu))


@lru_cache(maxsize=1)
def load_tables() -> Tables:
    """The tables of the shipped nets; made and certified once a process, then immutable."""
    return tables_from(shipped_nets())
