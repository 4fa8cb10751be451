"""float32 matrix products of one block each, exact by construction: the portable backend.

Over one block of values `q·2^k` every partial sum is a multiple of 2^(ka+kb) below 2^21 of them, so float32
holds it exactly, and neither order, fusion, threads nor vendor can matter. No int8 tensor is ever made.
"""

from itertools import pairwise

import torch

from daisychain.kernels.backend import Operand
from daisychain.kernels.elementwise import Elementwise, FastBackend
from daisychain.numerics.blocks import I64


class Sgemm(FastBackend):
    def __init__(self, elementwise: Elementwise) -> None:
        super().__init__("sgemm", elementwise)

    def product(self, a: Operand, b: Operand, edges: I64) -> torch.Tensor:
        left, right = self._values("a", a, edges), self._values("b", b, edges)
        y = torch.empty(a.rows, b.rows, device=a.data.device)
        further = self.scratch.take("product", (a.rows, b.rows), y.dtype, y.device)
        for start, end in pairwise(edges.tolist()):
            one_block = further if start else y
            torch.mm(left.part(start, end), right.part(start, end).t(), out=one_block)
            y.add_(one_block if start else 0.0)  # the first to +0, so that a −0 out of the library becomes +0
        return y

    def _values(self, name: str, x: Operand, edges: I64) -> Operand:
        out = self.scratch.take(name, x.data.shape, x.data.dtype, x.data.device)
        self.elementwise.values(x, edges, out)
        return Operand(out, x.axis)
