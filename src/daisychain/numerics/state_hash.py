"""One hash for the whole state of a replica (docs/NUMERICS.md, rule 14)."""

import hashlib
import struct
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

State = Mapping[str, npt.NDArray[np.generic]]


def tensor_digest(array: npt.NDArray[np.generic]) -> bytes:
    """SHA-256 over type, shape and little-endian bytes of one array."""
    little = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
    head = f"{little.dtype.str}{list(little.shape)}".encode()
    total = hashlib.sha256(head + b"\0")
    total.update(little.reshape(-1).view(np.uint8).data)  # without a copy of the bytes
    return total.digest()


def state_hash(state: State, step: int) -> bytes:
    """SHA-256 over the step and, in name order (by UTF-8 bytes), each name and its tensor's digest: 32 bytes."""
    total = hashlib.sha256(b"daisychain state 1\0" + struct.pack("<Q", step))
    for name in sorted(state, key=lambda n: n.encode()):
        encoded = name.encode()
        total.update(struct.pack("<I", len(encoded)) + encoded + tensor_digest(state[name]))
    return total.digest()


def first_difference(mine: Mapping[str, object], other: Mapping[str, object]) -> str | None:
    """The first name, in name order, whose digest is not the same in both tables."""
    names = sorted(mine.keys() | other.keys(), key=lambda name: name.encode())
    return next((name for name in names if mine.get(name) != other.get(name)), None)
