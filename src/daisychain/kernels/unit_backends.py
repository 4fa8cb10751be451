"""The proof backends: the contract with every multiply, requantise and ReLU on the trained units.

`table` is 50 to 90 times slower than float32, `neural` about 10^5 times: for proof, not for training.
"""

from collections.abc import Callable

import numpy as np
import torch

from daisychain.base import limits
from daisychain.kernels.backend import Operand
from daisychain.numerics import Blocks, block_product, block_relu, quantise
from daisychain.numerics.blocks import I8, I64
from daisychain.numerics.product import I32
from daisychain.units import Nets, Tables, load_tables, shipped_nets

#: The nets themselves, or their certified tables.
UnitPath = Nets | Tables


class UnitBackend:
    """A path through the units as a backend; memory beyond the operands does not grow with m·n·K."""

    for_proof = True

    def __init__(self, name: str, load: Callable[[], UnitPath]) -> None:
        self.name = name
        self._load = load  # at first use, and proven then

    def unavailable(self) -> str | None:
        return None

    def product(self, a: Operand, b: Operand, edges: I64) -> torch.Tensor:
        left, right = self._blocks(a, edges), self._blocks(b, edges)
        return torch.from_numpy(block_product(left, right, self._integer_product)).to(a.data.device)

    def rounded(self, x: Operand, edges: I64) -> torch.Tensor:
        values = torch.from_numpy(self._blocks(x, edges).values())
        return (values if x.axis == 1 else values.t()).contiguous().to(x.data.device)

    def relu(self, x: torch.Tensor) -> torch.Tensor:
        path = self._load()
        return torch.from_numpy(block_relu(x.cpu().numpy(), path.relu, path.requantise)).to(x.device)

    def forget(self) -> None:
        pass  # nothing is kept

    def _blocks(self, x: Operand, edges: I64) -> Blocks:
        return quantise(x.rows_last().cpu().contiguous().numpy(), edges, self._load().requantise)

    def _integer_product(self, a: I8, b: I8) -> I32:
        """int8 (m, K) · int8 (n, K)ᵀ → int32 (m, n), a bounded number of multiplications at a time."""
        multiply = self._load().multiply
        out = np.zeros((len(a), len(b)), np.int32)
        columns = max(1, limits.UNIT_BLOCK_ELEMENTS // max(a.shape[1], 1))
        rows = max(1, columns // max(len(b), 1))
        for i in range(0, len(a), rows):
            for j in range(0, len(b), columns):
                left, right = np.broadcast_arrays(a[i : i + rows, None], b[None, j : j + columns])
                out[i : i + rows, j : j + columns] = multiply(left, right).sum(axis=-1, dtype=np.int32)
        return out


def table_backend() -> UnitBackend:
    """Tables made from the nets, checked entry by entry when they are loaded."""
    return UnitBackend("table", load_tables)


def neural_backend() -> UnitBackend:
    """The nets themselves."""
    return UnitBackend("neural", shipped_nets)
