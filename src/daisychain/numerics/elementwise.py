"""Requantise and ReLU: the two elementwise units, in integer arithmetic (docs/NUMERICS.md, rules 2 and 5)."""

import numpy as np
import numpy.typing as npt

I8 = npt.NDArray[np.int8]
I16 = npt.NDArray[np.int16]


def requantise(x: I16) -> I8:
    """`sat8((x + 128) >> 8)`: 16 to 8 bits, half rounds up. Any shape."""
    return np.clip((x.astype(np.int32) + 128) >> 8, -128, 127).astype(np.int8)


def relu(x: I8) -> I8:
    """`max(x, 0)` on 8-bit codes. Any shape."""
    return np.maximum(x, np.int8(0))
