"""`torch._int_mm`: int8 products with int32 sums, fast where the CPU has VNNI.

With oneDNN held to an instruction set without VNNI it saturates and is wrong; on a CPU that truly lacks VNNI it
is exact and slow. The proof and the timing find out.
"""

from itertools import pairwise

import torch

from daisychain.kernels.backend import Operand
from daisychain.kernels.elementwise import Elementwise, FastBackend
from daisychain.numerics.blocks import I64


class IntMm(FastBackend):
    def __init__(self, elementwise: Elementwise) -> None:
        super().__init__("int_mm", elementwise)

    def unavailable(self) -> str | None:
        if not hasattr(torch, "_int_mm"):
            return "this torch has no _int_mm"
        return super().unavailable()

    def product(self, a: Operand, b: Operand, edges: I64) -> torch.Tensor:
        left, scales_a = self._codes("a", a, edges)
        right, scales_b = self._codes("b", b, edges)
        y = torch.empty(a.rows, b.rows)
        total = self.scratch.take("total", (a.rows, b.rows), torch.int32, y.device)
        for block, (start, end) in enumerate(pairwise(edges.tolist())):
            part_a, part_b = left.part(start, end), right.part(start, end).t()
            torch._int_mm(_plain_strides(part_a), _plain_strides(part_b), out=total)
            self.elementwise.accumulate(total, scales_a[block], scales_b[block], y, block == 0)
        return y

    def _codes(self, name: str, x: Operand, edges: I64) -> tuple[Operand, torch.Tensor]:
        out = self.scratch.take(name, x.data.shape, torch.int8, x.data.device)
        return Operand(out, x.axis), self.elementwise.codes(x, edges, out)


def _plain_strides(x: torch.Tensor) -> torch.Tensor:
    """Strides (columns, 1) for a vector. From those that t() leaves, (1, 1), torch._int_mm reads stray memory."""
    return x if min(x.shape) > 1 else x.reshape(-1).view(x.shape)
