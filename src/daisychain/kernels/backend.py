"""What a kernel backend is: fast exact products with the bits of the contract."""

from dataclasses import dataclass
from typing import Protocol

import torch

from daisychain.numerics.blocks import I64


@dataclass(frozen=True)
class Operand:
    """A contiguous float32 matrix and the axis along which it is contracted.

    axis 1: (rows, length), as a weight or an activation lies in memory; axis 0: (length, rows), its transpose.
    """

    data: torch.Tensor
    axis: int

    @property
    def rows(self) -> int:
        return self.data.shape[1 - self.axis]

    @property
    def length(self) -> int:
        return self.data.shape[self.axis]

    def part(self, start: int, end: int) -> torch.Tensor:
        """`data[start:end]` of the contraction, as (rows, end − start). A view."""
        return self.data[:, start:end] if self.axis == 1 else self.data[start:end].t()

    def rows_last(self, indices: list[int] | None = None) -> torch.Tensor:
        """(rows, length), of the rows named or of all. For proof, not for speed."""
        turned = self.data if self.axis == 1 else self.data.t()
        return turned if indices is None else turned[indices]


class Backend(Protocol):
    """Quantises and multiplies. Admitted only when every bit equals `numerics`; see registry.py."""

    name: str
    #: Proof backends run the units themselves; they are never chosen for speed.
    for_proof: bool

    def unavailable(self) -> str | None:
        """Why this machine cannot run it, or None."""

    def product(self, a: Operand, b: Operand, edges: I64) -> torch.Tensor:
        """(m, K) · (n, K)ᵀ → float32 (m, n) in blocks `edges`, as numerics.block_product of the quantised."""

    def rounded(self, x: Operand, edges: I64) -> torch.Tensor:
        """The numbers that the block format makes of `x`, `q·2^k`, laid out as `x.data`."""

    def relu(self, x: torch.Tensor) -> torch.Tensor:
        """float32 (rows, length) → the same, as numerics.block_relu."""

    def forget(self) -> None:
        """Let go of memory that is kept from product to product: another backend works now."""
