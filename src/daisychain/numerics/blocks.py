"""Power-of-two block format: how numbers are held when they are multiplied (docs/NUMERICS.md, rules 1, 2 and 5).

The contraction axis is cut into blocks of 128. A block is 8-bit codes `q` in ±127 and one scale `2^k`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from daisychain.base import limits
from daisychain.base.errors import BlockRangeError, NonFiniteError
from daisychain.numerics.elementwise import relu, requantise

F32 = npt.NDArray[np.float32]
I8 = npt.NDArray[np.int8]
I64 = npt.NDArray[np.int64]
Requantise = Callable[[npt.NDArray[np.int16]], I8]

#: The first magnitude that no exponent holds: 127.5 · 2^53. Everything from here on is refused.
MAGNITUDE_LIMIT = np.float32(127.5 * 2.0**limits.EXPONENT_MAX)


@dataclass(frozen=True)
class Blocks:
    """A matrix in block format, contraction axis last.

    `codes` int8 (rows, length); `exponents` int8 (rows, blocks); block b covers `edges[b]:edges[b + 1]`.
    """

    codes: I8
    exponents: I8
    edges: I64

    def values(self) -> F32:
        """The numbers that the codes stand for, `q·2^k`: float32 (rows, length), exact."""
        scale = np.repeat(power_of_two(self.exponents), np.diff(self.edges), axis=1)
        return np.asarray(self.codes.astype(np.float32) * scale)


def block_edges(length: int, period: int | None = None) -> I64:
    """Where blocks begin and end along a contraction of `length`: [0, 128, …, length].

    With `period`, blocks restart at every multiple of it, so that no block holds rows of two sequences.
    """
    period = length if period is None else period
    starts = [
        start
        for segment in range(0, length, max(period, 1))
        for start in range(segment, min(segment + period, length), limits.BLOCK_LENGTH)
    ]
    return np.array([*starts, length], dtype=np.int64)


def power_of_two(exponent: npt.NDArray[np.integer]) -> F32:
    """`2^exponent` as float32, built from bits; exponent within −126…127."""
    return ((exponent.astype(np.int32) + 127) << 23).view(np.float32)


def scale_exponent(magnitude: F32) -> I8:
    """The smallest k ≥ −60 with floor(a·2^(8−k)) ≤ 32,639, read from the bits of the magnitude `a`.

    a = 1.f · 2^e fits k = e − 6 unless 1.f ≥ 127.5/64, which is where adding 2^16 carries into the exponent.
    """
    bits = magnitude.view(np.int32)
    exponent = ((bits + 0x10000) >> 23) - 133
    return np.maximum(exponent, limits.EXPONENT_MIN).astype(np.int8)


def quantise(x: F32, edges: I64 | None = None, requantise: Requantise = requantise) -> Blocks:
    """Quantise float32 `x` (rows, length) along its last axis, in blocks of 128 or those of `edges`.

    `requantise` is the unit that rounds. Raises NonFiniteError for NaN or infinity, BlockRangeError for
    magnitudes of 127.5·2^53 or more.
    """
    check_quantisable(x)
    edges = block_edges(x.shape[1]) if edges is None else edges
    magnitude = np.zeros((x.shape[0], len(edges) - 1), np.float32)
    for b, (start, end) in enumerate(pairwise(edges.tolist())):
        magnitude[:, b] = np.abs(x[:, start:end]).max(axis=1, initial=0.0)
    exponents = scale_exponent(magnitude)
    factor = np.repeat(power_of_two(8 - exponents.astype(np.int32)), np.diff(edges), axis=1)
    codes = requantise(np.floor(x * factor).astype(np.int16))
    return Blocks(codes, exponents, edges)


def block_relu(x: F32, relu: Callable[[I8], I8] = relu, requantise: Requantise = requantise) -> F32:
    """ReLU on the unit: quantise (rows, length) along the last axis, ReLU of the codes, their values.

    What comes out is held exactly by the block format, so that quantising it again loses nothing.
    """
    blocks = quantise(x, requantise=requantise)
    return replace(blocks, codes=relu(blocks.codes)).values()


def check_quantisable(x: F32) -> None:
    """Refuse what the block format cannot hold, saying how many values are bad and where the first is."""
    finite = np.isfinite(x)
    if not finite.all():
        bad = np.argwhere(~finite)
        raise NonFiniteError(
            f"{len(bad)} of {x.size} values are NaN or infinite, the first at {tuple(map(int, bad[0]))}; "
            "they cannot be quantised. Lower the learning rate or look for bad input."
        )
    large = np.abs(x) >= MAGNITUDE_LIMIT
    if large.any():
        bad = np.argwhere(large)
        raise BlockRangeError(
            f"{len(bad)} of {x.size} values have a magnitude of 127.5·2^{limits.EXPONENT_MAX} or more, the first "
            f"at {tuple(map(int, bad[0]))}; the block format cannot hold them. Training has diverged: lower the "
            "learning rate."
        )
