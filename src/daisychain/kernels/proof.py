"""Inputs chosen to break a kernel, and the comparison that decides whether it may work.

All −128 times all −128 passes on a kernel that saturates, so the extremes here have mixed signs. One row, one
column, both layouts, squares and odd sizes make a library choose different kernels. Lengths lie around every
block edge.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from daisychain.base.errors import BlockRangeError, NonFiniteError
from daisychain.kernels.backend import Backend, Operand
from daisychain.numerics import block_edges, block_product, block_relu, quantise
from daisychain.numerics.blocks import F32, I8, I64, MAGNITUDE_LIMIT
from daisychain.numerics.product import I32

LENGTHS = (1, 2, 3, 33, 127, 128, 129, 255, 256, 257, 384, 513, 1000)
SIDES = ((1, 1), (1, 7), (5, 1), (3, 4), (33, 33), (130, 70))
PATTERNS = ("normal", "wide", "plus", "mixed", "extremes", "spike", "ties", "tiny", "huge", "negative_zero")
CROSSED = (("tiny", "huge"), ("huge", "tiny"), ("wide", "spike"), ("spike", "normal"))
LAYOUTS = ((1, 1), (1, 0), (0, 1), (0, 0))
PROOF_BACKEND_WORK = 12_000  # multiplications of one case that a backend of units can do in a blink


@dataclass(frozen=True)
class Case:
    """Two float32 matrices (m, K) and (n, K), the block edges, and the contract's answer (m, n)."""

    name: str
    a: F32
    b: F32
    edges: I64
    answer: F32

    @property
    def work(self) -> int:
        return self.a.size * len(self.b)


def pattern(name: str, rows: int, length: int, random: np.random.Generator) -> F32:
    """A float32 matrix (rows, length) of one kind of difficulty."""
    shape = (rows, length)
    x = random.standard_normal(shape).astype(np.float32)
    if name == "wide":
        x = np.ldexp(x, random.integers(-20, 20, shape)).astype(np.float32)
    elif name == "plus":
        x = np.full(shape, 127.0, np.float32)
    elif name == "mixed":
        x = np.where(random.random(shape) < 0.9, -127.0, 126.0).astype(np.float32)
    elif name == "extremes":
        x = np.where(random.random(shape) < 0.5, -127.0, 127.0).astype(np.float32)
    elif name == "spike":
        x *= np.float32(1e-3)
        x[np.arange(rows), random.integers(0, length, rows)] = -3e4
    elif name == "ties":
        x = (random.integers(-127, 127, shape) + 0.5).astype(np.float32)
        x[:, ::2] = np.nextafter(x[:, ::2], np.float32(0))
    elif name == "tiny":
        x = (x * np.float32(1e-19) * np.float32(1e-19)).astype(np.float32)
        x[:, ::3] = 0.0
        x[::2] *= np.float32(1e30)
    elif name == "huge":
        x = (random.choice([-1, 1], shape) * np.nextafter(MAGNITUDE_LIMIT, np.float32(0))).astype(np.float32)
        x[:, 1::2] *= random.random((rows, length // 2)).astype(np.float32)
    elif name == "negative_zero":
        x = np.where(random.random(shape) < 0.7, -0.0, -np.abs(x)).astype(np.float32)
    return x


def exact_product(a: I8, b: I8) -> I32:
    """numerics.product.integer_product by float64, which holds these sums exactly: a quick reference."""
    return (a.astype(np.float64) @ b.astype(np.float64).T).astype(np.int32)


def contract_product(a: F32, b: F32, edges: I64) -> F32:
    """The contract's answer for float32 (m, K) and (n, K): float32 (m, n)."""
    with np.errstate(over="ignore", invalid="ignore"):
        return block_product(quantise(a, edges), quantise(b, edges), exact_product)


def make_case(
    name: str,
    rows_a: int,
    length: int,
    rows_b: int,
    seed: int,
    period: int | None = None,
    other: str | None = None,
) -> Case:
    """The case of a pattern, or of two, and a shape."""
    random = np.random.Generator(np.random.PCG64(seed))
    a, b = pattern(name, rows_a, length, random), pattern(other or name, rows_b, length, random)
    if name == "plus":
        b[1::2] *= np.float32(-1)
    edges = block_edges(length, period)
    kind = f"{name}×{other}" if other else name
    restarting = f", blocks restarting every {period}" if period else ""
    title = f"{kind} {rows_a}×{length}×{rows_b}{restarting}"
    return Case(title, a, b, edges, contract_product(a, b, edges))


def all_cases() -> Iterator[Case]:
    """Every pattern on every shape class, unlike patterns together, and blocks that restart at a period."""
    for seed, length in enumerate(LENGTHS):
        for rows_a, rows_b in SIDES:
            for name in PATTERNS:
                yield make_case(name, rows_a, length, rows_b, seed)
    for seed, (name, other) in enumerate(CROSSED):
        yield make_case(name, 33, 257, 40, seed, other=other)
    for seed, (length, period) in enumerate(((300, 50), (600, 200), (600, 150))):
        yield make_case("wide", 40, length, 50, seed, period=period)


@lru_cache(maxsize=1)
def admission_cases() -> tuple[Case, ...]:
    """A selection of `all_cases` that takes a moment: every pattern, side and length occurs several times.

    Squares are all there, since a swapped layout shows only in its numbers; so are restarting blocks.
    """
    return tuple(
        case
        for number, case in enumerate(all_cases())
        if number % 7 == 0
        or case.a.shape == case.b.T.shape
        or case.name.count("×") > 2
        or "restarting" in case.name
    )


CPU = torch.device("cpu")


def operand(x: F32, axis: int, device: torch.device = CPU) -> Operand:
    """`x` (rows, length) as an operand in either layout."""
    return Operand(torch.from_numpy(np.ascontiguousarray(x if axis == 1 else x.T)).to(device), axis)


def same_bits(a: F32, b: F32) -> bool:
    """Equal as bit patterns: −0 is not +0."""
    return a.shape == b.shape and np.array_equal(
        np.ascontiguousarray(a).view(np.int32), np.ascontiguousarray(b).view(np.int32)
    )


def find_fault(
    backend: Backend, cases: Iterator[Case] | tuple[Case, ...], device: torch.device = CPU
) -> str | None:
    """What is wrong with a backend, or None: products in every layout, ReLU, and refusals."""
    for case in cases:
        if backend.for_proof and case.work > PROOF_BACKEND_WORK:
            continue
        for axis_a, axis_b in LAYOUTS[:1] if backend.for_proof else LAYOUTS:
            a, b = operand(case.a, axis_a, device), operand(case.b, axis_b, device)
            if not same_bits(_numbers(backend.product(a, b, case.edges)), case.answer):
                return f"wrong bits in the product {case.name}, layout {axis_a}{axis_b}"
        for axis in (1, 0):
            rounded = _numbers(backend.rounded(operand(case.a, axis, device), case.edges))
            if not same_bits(rounded if axis == 1 else rounded.T, quantise(case.a, case.edges).values()):
                return f"wrong bits in quantising {case.name}, axis {axis}"
    return _find_relu_fault(backend, device) or _find_missing_refusal(backend, device)


def _numbers(x: torch.Tensor) -> F32:
    return x.cpu().numpy()


def _find_relu_fault(backend: Backend, device: torch.device) -> str | None:
    random = np.random.Generator(np.random.PCG64(11))
    for name in PATTERNS:
        for rows, length in ((1, 1), (3, 129), (5, 256), (130, 300)):
            x = pattern(name, rows, length, random)
            if not same_bits(_numbers(backend.relu(torch.from_numpy(x).to(device))), block_relu(x)):
                return f"wrong bits in the ReLU of {name} {rows}×{length}"
    return None


def _find_missing_refusal(backend: Backend, device: torch.device) -> str | None:
    good = np.ones((3, 130), np.float32)
    for value, error in (
        (np.nan, NonFiniteError),
        (np.inf, NonFiniteError),
        (-np.inf, NonFiniteError),
        (MAGNITUDE_LIMIT, BlockRangeError),
    ):
        bad = good.copy()
        bad[2, 129] = value
        for axis in (1, 0):
            for a, b in ((bad, good), (good, bad)):
                try:
                    backend.product(operand(a, axis, device), operand(b, axis, device), block_edges(130))
                except error:
                    continue
                return f"let {value} through"
        try:
            backend.relu(torch.from_numpy(bad).to(device))
        except error:
            continue
        return f"let {value} through ReLU"
    return None
