"""What is held out, and proof that two nodes hold the same data."""

import hashlib

import numpy as np
import numpy.typing as npt

from daisychain.base import limits
from daisychain.numerics import sample_ids, tensor_digest

I64 = npt.NDArray[np.int64]
SPLIT_STREAM = 0x48454C44  # sets the split's permutation apart from those of the epochs


def held_out_split(count: int, most: int, seed: int) -> tuple[I64, I64]:
    """(training, held-out) places of 0 … count − 1, each in rising order; at least one of each.

    A seeded permutation in integers decides, so that it is the same on every machine. `count` is at least 2.
    """
    held_out = min(max(1, int(count * limits.HELD_OUT_FRACTION)), most, count - 1)
    order = sample_ids(np.arange(count, dtype=np.int64), count, seed ^ (SPLIT_STREAM << 32))
    return np.sort(order[held_out:]), np.sort(order[:held_out])


def data_hash(*arrays: npt.NDArray[np.generic]) -> str:
    """SHA-256, in hex, over type, shape and bytes of arrays."""
    return hashlib.sha256(b"".join(map(tensor_digest, arrays))).hexdigest()
