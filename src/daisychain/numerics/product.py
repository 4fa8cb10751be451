"""The exact product of two matrices in block format (docs/NUMERICS.md, rules 3, 4, 6 and 7)."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from daisychain.base import limits
from daisychain.base.errors import AccumulatorBoundError
from daisychain.numerics.blocks import F32, I8, I64, Blocks, power_of_two, quantise

I32 = npt.NDArray[np.int32]
IntegerProduct = Callable[[I8, I8], I32]


def check_contraction(length: int) -> None:
    """Refuse a contraction longer than the exact accumulator allows, at every product's entry."""
    if length > limits.ACCUMULATOR_MAX_K:
        raise AccumulatorBoundError(
            f"a contraction of K = {length} is above {limits.ACCUMULATOR_MAX_K}, where 8-bit products no longer "
            "sum exactly; use a smaller layer, or fewer rows (samples × positions) a step."
        )


def integer_product(a: I8, b: I8) -> I32:
    """int8 (m, K) · int8 (n, K)ᵀ → int32 (m, n), exact."""
    check_contraction(a.shape[1])
    return a.astype(np.int32) @ b.astype(np.int32).T


def block_product(a: Blocks, b: Blocks, integer_product: IntegerProduct = integer_product) -> F32:
    """(m, K) · (n, K)ᵀ → float32 (m, n): Σ over blocks, in order, of f32(sum)·2^(ka+kb).

    `integer_product` is the unit that multiplies. The conversion and the multiplication are exact, so each block
    costs one rounding, that of its addition.
    """
    check_contraction(a.codes.shape[1])
    out = np.zeros((a.codes.shape[0], b.codes.shape[0]), np.float32)
    for block, (start, end) in enumerate(pairwise(a.edges.tolist())):
        total = integer_product(a.codes[:, start:end], b.codes[:, start:end])
        exponent = a.exponents[:, block, None].astype(np.int32) + b.exponents[None, :, block]
        # 2^(ka+kb) reaches 2^-120 and 2^106: both normal, so built in one piece.
        out = out + total.astype(np.float32) * power_of_two(exponent)
    return out


def product(a: F32, b: F32, edges: I64 | None = None) -> F32:
    """Quantise float32 `a` (m, K) and `b` (n, K) along K and multiply: float32 (m, n)."""
    check_contraction(a.shape[1])
    return block_product(quantise(a, edges), quantise(b, edges))


def split_high_low(x: F32, edges: I64 | None = None) -> tuple[Blocks, Blocks]:
    """x = high + low + at most 1/16,000 of the block's largest magnitude. The subtraction is exact."""
    high = quantise(x, edges)
    return high, quantise(x - high.values(), edges)


def triple_product(a: F32, b: F32, edges: I64 | None = None) -> F32:
    """3×INT8: (high·high + high·low) + low·high, in that order; nearly float from three 8-bit products."""
    check_contraction(a.shape[1])
    (ah, al), (bh, bl) = split_high_low(a, edges), split_high_low(b, edges)
    return (block_product(ah, bh) + block_product(ah, bl)) + block_product(al, bh)
