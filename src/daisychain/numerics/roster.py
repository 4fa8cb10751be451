"""The mean gradient of a roster, and which samples each step uses (docs/NUMERICS.md, rules 13 and 15)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from daisychain.base.errors import ConfigError
from daisychain.numerics.blocks import F32

U32 = npt.NDArray[np.uint32]
FEISTEL_ROUNDS = 6


def roster_mean(gradients: Sequence[F32], counts: Sequence[int]) -> F32:
    """Σ of per-sample-sum gradients, in roster order, over Σ counts. All float32, of one shape."""
    total = sum(counts)
    if total < 1:
        raise ConfigError(f"a roster with {total} samples has no mean gradient.")
    out = np.zeros_like(gradients[0])
    for gradient in gradients:
        out = out + gradient
    return out / np.float32(total)


def mix(x: U32) -> U32:
    """A 32-bit mixing function: multiply and xor-shift, invertible."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def _permute(index: U32, half_bits: int, key: U32) -> U32:
    """A Feistel permutation of the numbers below 2^(2·half_bits)."""
    mask = np.uint32((1 << half_bits) - 1)
    left, right = index >> np.uint32(half_bits), index & mask
    for turn in range(FEISTEL_ROUNDS):
        left, right = (
            right,
            left ^ (mix(right ^ mix(key + np.uint32(turn * 0x9E3779B9 & 0xFFFFFFFF))) & mask),
        )
    return (left << np.uint32(half_bits)) | right


def sample_ids(positions: npt.NDArray[np.int64], sample_count: int, seed: int) -> npt.NDArray[np.int64]:
    """The sample at each position of the run: position p is place p mod n of epoch p div n.

    Each epoch is a seeded permutation of 0…n−1, so that a sample is used exactly once an epoch, whatever the
    number of nodes. Computed place by place (no table), in 32-bit integers.
    """
    if not 1 <= sample_count < 2**31:
        raise ConfigError(f"a task needs between 1 and 2^31 − 1 samples; it has {sample_count}.")
    half_bits = max(1, ((sample_count - 1).bit_length() + 1) // 2)
    epoch = (positions // sample_count).astype(np.uint64).astype(np.uint32)
    seeds = np.array([seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF], np.uint32)
    key = mix(mix(seeds[:1] + np.uint32(0x9E3779B9)) ^ mix(seeds[1:] + epoch))
    current = _permute((positions % sample_count).astype(np.uint32), half_bits, key)
    while (outside := current >= sample_count).any():  # cycle-walking: at most a few rounds
        current[outside] = _permute(current[outside], half_bits, key[outside])
    return current.astype(np.int64)
