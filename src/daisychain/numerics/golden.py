"""How golden vectors are written: an array is {"type", "shape", "base64"}, little-endian, for any language to read."""

import base64
from typing import Any

import numpy as np
import numpy.typing as npt

from daisychain.numerics.blocks import F32

Array = npt.NDArray[np.generic]


def encode(array: Array) -> dict[str, Any]:
    """An array as JSON."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    data = base64.b64encode(little.tobytes()).decode()
    return {"type": array.dtype.name, "shape": list(array.shape), "base64": data}


def decode(value: dict[str, Any]) -> Array:
    """The array of `encode`."""
    dtype = np.dtype(value["type"]).newbyteorder("<")
    return np.frombuffer(base64.b64decode(value["base64"]), dtype).reshape(value["shape"])


def random_numbers(shape: tuple[int, ...], seed: int, spread: int = 6) -> F32:
    """Normal numbers, each times a power of two from 2^-spread on to below 2^spread."""
    generator = np.random.Generator(np.random.PCG64(seed))
    scale = np.exp2(generator.integers(-spread, spread, shape).astype(np.float32))
    return np.asarray(generator.standard_normal(shape).astype(np.float32) * scale, np.float32)
