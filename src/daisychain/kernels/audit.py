"""Recomputing cells of live products exactly, all through training.

Every product has a few cells checked by a compiled scalar checker, where numba is installed. Every few steps (every
step where it is not) a product is checked by the NumPy contract itself.
"""

import random
from collections.abc import Callable

import numpy as np
import torch

from daisychain.base import limits
from daisychain.kernels import compiled
from daisychain.kernels.backend import Operand
from daisychain.kernels.proof import operand, same_bits
from daisychain.numerics import block_edges, block_product, quantise
from daisychain.numerics.blocks import F32, I64

_SETS = 64  # of cells, drawn at once


class _Walk:
    """Places 0 … length − 1 in random order, each once before any comes again."""

    def __init__(self, length: int, generator: np.random.Generator) -> None:
        self._length, self._generator = length, generator
        self._left = generator.permutation(length)

    def take(self, count: int) -> I64:
        while len(self._left) < count:
            self._left = np.concatenate([self._left, self._generator.permutation(self._length)])
        taken, self._left = self._left[:count], self._left[count:]
        return taken


class _Cells:
    """Which cells of the products of one shape are looked at, product after product.

    Opposite corners, an edge of a tile, and places anywhere that cover every row and every column in turn.
    """

    def __init__(self, rows: int, columns: int, generator: np.random.Generator) -> None:
        self._shape, self._generator = (rows, columns), generator
        self._walks = [_Walk(length, generator) for length in self._shape]
        self._sets: list[I64] = []

    def next(self) -> I64:
        """Cells (count, 2) of the next product of this shape."""
        if not self._sets:
            self._sets = list(self._draw())
        return self._sets.pop()

    def _draw(self) -> I64:
        rows, columns = self._shape
        first, second = limits.AUDIT_CORNERS, limits.AUDIT_CORNERS + limits.AUDIT_EDGES
        corners = np.array([(0, 0), (rows - 1, columns - 1), (0, columns - 1), (rows - 1, 0)])
        cells = np.empty((_SETS, second + limits.AUDIT_RANDOM, 2), np.int64)
        cells[:, :first] = corners[np.arange(_SETS * first) % 4].reshape(_SETS, first, 2)
        for axis, length in enumerate(self._shape):
            near = [e + d for e in range(0, length + 1, 16) for d in (-1, 0) if 0 <= e + d < length]
            cells[:, first:second, axis] = self._generator.choice(
                [*near, length - 1], (_SETS, second - first)
            )
            cells[:, second:, axis] = self._walks[axis].take(_SETS * limits.AUDIT_RANDOM).reshape(_SETS, -1)
        return cells


class Auditor:
    """Finds wrong bits in live products.

    Without a `seed` each process looks at other cells, so that many nodes see more than one.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.cells = 0
        self._random = random.Random(seed)
        self._generator = np.random.default_rng(seed)
        self._shapes: dict[tuple[int, int, int], _Cells] = {}
        self._compiled = compiled.CompiledElementwise().unavailable() is None and _checker_works()
        self._steps = 0
        self._this_step = 0  # products so far
        self._chosen: int | None = 0

    def begin_step(self) -> None:
        """Choose which of the coming step's products, if any, the NumPy contract looks at."""
        every = limits.AUDIT_CONTRACT_EVERY_STEPS if self._compiled else 1
        due = self._steps % every == 0
        self._chosen = self._random.randrange(max(self._this_step, 1)) if due else None
        self._steps, self._this_step = self._steps + 1, 0

    def find_fault(self, a: Operand, b: Operand, edges: I64, y: torch.Tensor) -> str | None:
        """A wrong cell of y (m, n), in words, or None."""
        if not y.numel():
            return None
        number, self._this_step = self._this_step, self._this_step + 1
        cells = self.cells_of(a, b)
        by_contract = number == self._chosen
        if self._compiled and y.device.type == "cpu":
            self.cells += len(cells)
            wrong = compiled.audit_cells(
                a.data.numpy(), a.axis, b.data.numpy(), b.axis, edges, cells, y.numpy()
            )
            if wrong >= 0:
                return _words(cells[wrong], a, b)
        if by_contract:
            self.cells += len(cells)
            return _find_by_contract(a, b, edges, cells, y)
        return None

    def cells_of(self, a: Operand, b: Operand) -> I64:
        """The cells (count, 2) to look at in the next product of this shape."""
        shape = (a.rows, a.length, b.rows)
        if shape not in self._shapes:
            self._shapes[shape] = _Cells(a.rows, b.rows, self._generator)
        return self._shapes[shape].next()

    def find_rounding_fault(
        self, what: str, x: torch.Tensor, y: torch.Tensor, wanted: Callable[[F32], F32]
    ) -> str | None:
        """A wrong row of y, which should be `wanted` of x (rows, length), in words, or None.

        Looked at beside the products that the NumPy contract looks at.
        """
        if self._chosen not in (self._this_step, self._this_step - 1) or not y.numel():
            return None
        rows = sorted({0, len(x) - 1, self._random.randrange(len(x))})
        if same_bits(wanted(x[rows].cpu().numpy()), y[rows].cpu().numpy()):
            return None
        return f"wrong bits in the {what} of a matrix {tuple(x.shape)}"

    def find_split_fault(self, x: Operand, edges: I64, high: torch.Tensor) -> str | None:
        """The same for the high half of 3×INT8, laid out as `x.data`."""
        turned = Operand(high, x.axis).rows_last()
        return self.find_rounding_fault(
            "splitting", x.rows_last(), turned, lambda rows: quantise(rows, edges).values()
        )


def _words(cell: I64, a: Operand, b: Operand) -> str:
    return f"wrong bits at cell ({cell[0]}, {cell[1]}) of the product {a.rows}×{a.length}×{b.rows}"


def _find_by_contract(a: Operand, b: Operand, edges: I64, cells: I64, y: torch.Tensor) -> str | None:
    rows, columns = cells[:, 0].tolist(), cells[:, 1].tolist()
    left = a.rows_last(rows).cpu().numpy()
    right = b.rows_last(columns).cpu().numpy()
    wanted = block_product(quantise(left, edges), quantise(right, edges))
    got = y[rows][:, columns].cpu().numpy()
    if same_bits(wanted, got):
        return None
    at = np.argwhere(wanted.view(np.int32) != got.view(np.int32))[0]
    return _words(np.array([rows[at[0]], columns[at[1]]]), a, b)


def _checker_works() -> bool:
    """The compiled checker passes what is right and finds each single flipped bit."""
    generator = np.random.Generator(np.random.PCG64(5))
    a, b = (generator.standard_normal((4, 300)).astype(np.float32) for _ in range(2))
    edges = block_edges(300, 200)
    right = block_product(quantise(a, edges), quantise(b, edges))
    cells = np.argwhere(np.ones((4, 4), bool)).astype(np.int64)
    for axis in (0, 1):
        left, other = operand(a, axis).data.numpy(), operand(b, axis).data.numpy()
        if compiled.audit_cells(left, axis, other, axis, edges, cells, right) != -1:
            return False
        for number, (i, j) in enumerate(cells):
            wrong = right.copy()
            wrong.view(np.int32)[i, j] ^= 1
            if compiled.audit_cells(left, axis, other, axis, edges, cells, wrong) != number:
                return False
    return True
