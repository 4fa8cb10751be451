"""exp, log, softmax and cross-entropy from IEEE + − × ÷ and floor alone (docs/NUMERICS.md, rules 9 to 11).

Every operation is a separate, correctly rounded float32 operation in the order written, so that the bits are
the same wherever IEEE arithmetic is. Platform exp and log are not.
"""

import math

import numpy as np
import numpy.typing as npt

from daisychain.base.errors import NonFiniteError
from daisychain.numerics.blocks import F32, power_of_two

LANES = 16
_f = np.float32
LOG2_E = _f(math.log2(math.e))
LN2_HIGH = _f(355 / 512)  # nine bits: n·LN2_HIGH is exact for every n that occurs
LN2_LOW = _f(math.log(2) - 355 / 512)
EXP_COEFFICIENTS = tuple(_f(1 / math.factorial(n)) for n in range(7, -1, -1))
LOG_COEFFICIENTS = (_f(2 / 9), _f(2 / 7), _f(2 / 5), _f(2 / 3))
EXP_MIN = _f(-87.0)  # below: 0, so that no subnormal arises
EXP_MAX = _f(88.0)  # above: infinity


def exp(x: F32) -> F32:
    """e^x within 2 ulp; 0 below −87, infinity above 88, NaN for NaN."""
    inside = np.clip(x, EXP_MIN, EXP_MAX)
    n = np.floor(inside * LOG2_E + _f(0.5))
    r = (inside - n * LN2_HIGH) - n * LN2_LOW
    y = np.full_like(r, EXP_COEFFICIENTS[0])
    for coefficient in EXP_COEFFICIENTS[1:]:
        y = y * r + coefficient
    y = y * power_of_two(np.nan_to_num(n, nan=0.0).astype(np.int32))
    y = np.where(x < EXP_MIN, _f(0), y)
    return np.where(x > EXP_MAX, _f(np.inf), y).astype(np.float32)


def log(x: F32) -> F32:
    """Natural logarithm of positive normal float32 numbers, within 2 ulp."""
    if not ((x >= np.finfo(np.float32).tiny) & (x < np.inf)).all():
        raise NonFiniteError("log needs finite, positive, normal numbers; got one that is not.")
    bits = x.view(np.int32)
    # 0x3504F4 is just above the fraction of √2: mantissas from there on are halved, so that m lies in [√½, √2].
    n = ((bits + (0x800000 - 0x3504F4)) >> 23) - 127
    m = (bits - (n << 23)).view(np.float32)
    f = m - _f(1)
    s = f / (_f(2) + f)
    z = s * s
    tail = np.full_like(z, LOG_COEFFICIENTS[0])
    for coefficient in LOG_COEFFICIENTS[1:]:
        tail = tail * z + coefficient
    n_f = n.astype(np.float32)
    return np.asarray((((s * z) * tail + n_f * LN2_LOW) + (s + s)) + n_f * LN2_HIGH)


def lane_sum(x: F32) -> F32:
    """Sum over the last axis in the pinned order: 16 strided lanes, each in order, then halved 8, 4, 2, 1."""
    length = x.shape[-1]
    padded = np.zeros((*x.shape[:-1], -(-length // LANES) * LANES), np.float32)
    padded[..., :length] = x
    lanes = np.zeros((*x.shape[:-1], LANES), np.float32)
    for start in range(0, padded.shape[-1], LANES):
        lanes = lanes + padded[..., start : start + LANES]
    half = LANES // 2
    while half:
        lanes = lanes[..., :half] + lanes[..., half:]
        half //= 2
    return np.asarray(lanes[..., 0])


def _shifted(x: F32) -> tuple[F32, F32, F32]:
    """x − max, its exponentials, and their sum."""
    if not np.isfinite(x).all():
        raise NonFiniteError(f"{int((~np.isfinite(x)).sum())} of {x.size} logits are NaN or infinite.")
    shifted = x - x.max(axis=-1, keepdims=True)
    exponentials = exp(shifted)
    return shifted, exponentials, lane_sum(exponentials)


def softmax(x: F32) -> F32:
    """Softmax over the last axis of finite float32 `x`."""
    _, exponentials, total = _shifted(x)
    return exponentials / total[..., None]


def log_softmax(x: F32) -> F32:
    """Logarithm of the softmax over the last axis."""
    shifted, _, total = _shifted(x)
    return shifted - log(total)[..., None]


def cross_entropy(logits: F32, targets: npt.NDArray[np.int64]) -> tuple[F32, F32]:
    """Loss of each row in nats and its gradient. `logits` (rows, classes), `targets` (rows,)."""
    shifted, exponentials, total = _shifted(logits)
    rows = np.arange(len(targets))
    loss = log(total) - shifted[rows, targets]
    gradient = exponentials / total[:, None]
    gradient[rows, targets] = gradient[rows, targets] - _f(1)
    return loss, gradient
