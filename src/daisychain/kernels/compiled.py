"""The elementwise halves of a fast product in one pass each, compiled by numba where it is installed.

Strict IEEE: no fast-math, so that LLVM neither reassociates nor fuses. Proven like everything else before use.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from daisychain.base import limits
from daisychain.kernels.backend import Operand
from daisychain.kernels.elementwise import refuse_unfit
from daisychain.numerics.blocks import F32, I64, MAGNITUDE_LIMIT
from daisychain.numerics.optimizer import AdamScalars

_F = TypeVar("_F", bound=Callable[..., Any])

if TYPE_CHECKING:

    def _compile(function: _F) -> _F: ...

    MISSING: str | None = None
else:
    try:
        from numba import njit

        _compile = njit(cache=True, nogil=True, error_model="numpy")  # no test for zero before a division
        MISSING = None
    except ImportError:
        MISSING = "numba is not installed (pip install 'daisychain[fast]')"

        def _compile(function):
            return function


_ABS = np.int32(0x7FFFFFFF)
_CARRY = np.int32(0x10000)
_EXPONENT_SHIFT = np.int32(23)
_BIAS_CODE = np.int32(133)
_BIAS = np.int32(127)
_BIAS_FACTOR = np.int32(135)
_HALF = np.int32(128)
_EIGHT = np.int32(8)
_K_MIN = np.int32(limits.EXPONENT_MIN)
_ZERO = np.int32(0)
_BITS_LIMIT = int(MAGNITUDE_LIMIT.view(np.int32))


@_compile
def _exponent(bits: Any) -> Any:
    return max(((bits + _CARRY) >> _EXPONENT_SHIFT) - _BIAS_CODE, _K_MIN)


@_compile
def _code(x: Any, factor: Any) -> Any:
    return (np.int32(np.floor(x * factor)) + _HALF) >> _EIGHT


@_compile
def _largest(bits: Any) -> Any:
    largest = _ZERO
    for j in range(len(bits)):
        magnitude = bits[j] & _ABS
        largest = magnitude if magnitude > largest else largest
    return largest


@_compile
def codes_last(x: F32, edges: I64, codes: npt.NDArray[np.int8], scales: F32) -> int:
    """Quantise along the last axis. Returns the bits of the largest magnitude, by which NaN is found."""
    bits, worst = x.view(np.int32), _ZERO
    for i in range(x.shape[0]):
        for b in range(len(edges) - 1):
            source, target = x[i, edges[b] : edges[b + 1]], codes[i, edges[b] : edges[b + 1]]
            largest = _largest(bits[i, edges[b] : edges[b + 1]])
            worst = max(worst, largest)
            k = _exponent(largest)
            scales[b, i] = np.int32((k + _BIAS) << _EXPONENT_SHIFT).view(np.float32)
            factor = np.int32((_BIAS_FACTOR - k) << _EXPONENT_SHIFT).view(np.float32)
            for j in range(len(source)):
                target[j] = np.int8(_code(source[j], factor))
    return int(worst)


@_compile
def values_last(x: F32, edges: I64, values: F32, floor_at_zero: bool) -> int:
    """As codes_last, but the values `q·2^k`; with `floor_at_zero`, of the ReLU of the codes."""
    bits, worst = x.view(np.int32), _ZERO
    least = np.float32(0.0) if floor_at_zero else np.float32(-np.inf)
    for i in range(x.shape[0]):
        for b in range(len(edges) - 1):
            source, target = x[i, edges[b] : edges[b + 1]], values[i, edges[b] : edges[b + 1]]
            largest = _largest(bits[i, edges[b] : edges[b + 1]])
            worst = max(worst, largest)
            k = _exponent(largest)
            scale = np.int32((k + _BIAS) << _EXPONENT_SHIFT).view(np.float32)
            factor = np.int32((_BIAS_FACTOR - k) << _EXPONENT_SHIFT).view(np.float32)
            for j in range(len(source)):
                value = np.float32(_code(source[j], factor)) * scale
                target[j] = value if value > least else least
    return int(worst)


@_compile
def _column_scales(bits: Any, start: int, end: int, scales: Any, factors: Any) -> Any:
    """Scales and factors of one block along the first axis; both are int32 views. Returns the worst bits."""
    worst = _ZERO
    scales[:] = _ZERO
    for i in range(start, end):
        row = bits[i]
        for j in range(len(row)):
            magnitude = row[j] & _ABS
            scales[j] = magnitude if magnitude > scales[j] else scales[j]
    for j in range(len(scales)):
        worst = max(worst, scales[j])
        k = _exponent(scales[j])
        scales[j] = (k + _BIAS) << _EXPONENT_SHIFT
        factors[j] = (_BIAS_FACTOR - k) << _EXPONENT_SHIFT
    return worst


@_compile
def codes_first(x: F32, edges: I64, codes: npt.NDArray[np.int8], scales: F32) -> int:
    """Quantise along the first axis. Returns the bits of the largest magnitude."""
    bits, worst = x.view(np.int32), _ZERO
    factors = np.empty(x.shape[1], np.float32)
    for b in range(len(edges) - 1):
        scale = scales[b]
        largest = _column_scales(bits, edges[b], edges[b + 1], scale.view(np.int32), factors.view(np.int32))
        worst = max(worst, largest)
        for i in range(edges[b], edges[b + 1]):
            source, target = x[i], codes[i]
            for j in range(len(source)):
                target[j] = np.int8(_code(source[j], factors[j]))
    return int(worst)


@_compile
def values_first(x: F32, edges: I64, values: F32) -> int:
    """As codes_first, but the values `q·2^k`."""
    bits, worst = x.view(np.int32), _ZERO
    factors, scale = np.empty(x.shape[1], np.float32), np.empty(x.shape[1], np.float32)
    for b in range(len(edges) - 1):
        largest = _column_scales(bits, edges[b], edges[b + 1], scale.view(np.int32), factors.view(np.int32))
        worst = max(worst, largest)
        for i in range(edges[b], edges[b + 1]):
            source, target = x[i], values[i]
            for j in range(len(source)):
                target[j] = np.float32(_code(source[j], factors[j])) * scale[j]
    return int(worst)


@_compile
def accumulate(total: npt.NDArray[np.int32], a: F32, b: F32, y: F32, first: bool) -> None:
    """y (m, n) += f32(total)·(a[:, None]·b); with `first`, y is written."""
    for i in range(total.shape[0]):
        source, target, scale = total[i], y[i], a[i]
        if first:
            for j in range(len(source)):
                target[j] = np.float32(source[j]) * (scale * b[j])
        else:
            for j in range(len(source)):
                target[j] += np.float32(source[j]) * (scale * b[j])


@_compile
def _cell(a: F32, b: F32, edges: I64) -> Any:
    """One cell of the contract's product from its two rows, by plain scalar integers."""
    y = np.float32(0.0)
    for block in range(len(edges) - 1):
        start, end = edges[block], edges[block + 1]
        ka, kb = (
            _exponent(_largest(a[start:end].view(np.int32))),
            _exponent(_largest(b[start:end].view(np.int32))),
        )
        fa = np.int32((_BIAS_FACTOR - ka) << _EXPONENT_SHIFT).view(np.float32)
        fb = np.int32((_BIAS_FACTOR - kb) << _EXPONENT_SHIFT).view(np.float32)
        total = _ZERO
        for i in range(start, end):
            total += _code(a[i], fa) * _code(b[i], fb)
        y += np.float32(total) * np.int32((ka + kb + _BIAS) << _EXPONENT_SHIFT).view(np.float32)
    return y


@_compile
def audit_cells(a: F32, axis_a: int, b: F32, axis_b: int, edges: I64, cells: I64, y: F32) -> int:
    """The first of `cells` (count, 2) whose bits in `y` are not the contract's, or −1."""
    bits, out = y.view(np.int32), np.empty(1, np.float32)
    for c in range(len(cells)):
        i, j = cells[c, 0], cells[c, 1]
        row_a = a[i] if axis_a == 1 else a[:, i].copy()
        row_b = b[j] if axis_b == 1 else b[:, j].copy()
        out[0] = _cell(row_a, row_b, edges)
        if out.view(np.int32)[0] != bits[i, j]:
            return c
    return -1


@_compile
def _adam(
    w: F32,
    g: F32,
    mean: F32,
    square: F32,
    keep: Any,
    b1: Any,
    r1: Any,
    b2: Any,
    r2: Any,
    root: Any,
    size: Any,
    eps: Any,
) -> None:
    for i in range(len(w)):
        m = mean[i] * b1 + g[i] * r1
        v = square[i] * b2 + (g[i] * g[i]) * r2
        mean[i], square[i] = m, v
        w[i] = w[i] * keep - m / (np.sqrt(v) * root + eps) * size


def adam_update(weights: F32, gradient: F32, mean: F32, square: F32, s: AdamScalars) -> None:
    """numerics.optimizer.adam_update in one pass."""
    _adam(
        weights, gradient, mean, square, s.keep, s.beta1, s.rest1, s.beta2, s.rest2, s.root, s.size, s.epsilon
    )


class CompiledElementwise:
    """One pass over memory, CPU only. The same interface as PlainElementwise."""

    suffix = ""

    def unavailable(self) -> str | None:
        if os.environ.get("DAISY_COMPILED") == "0":
            return "switched off by DAISY_COMPILED=0"
        return MISSING

    def codes(self, x: Operand, edges: I64, out: torch.Tensor) -> torch.Tensor:
        scales = torch.empty(len(edges) - 1, x.rows)
        run = codes_last if x.axis == 1 else codes_first
        if run(x.data.numpy(), edges, out.numpy(), scales.numpy()) >= _BITS_LIMIT:
            refuse_unfit(x.data)
        return scales

    def values(self, x: Operand, edges: I64, out: torch.Tensor) -> None:
        if x.axis == 1:
            worst = values_last(x.data.numpy(), edges, out.numpy(), False)
        else:
            worst = values_first(x.data.numpy(), edges, out.numpy())
        if worst >= _BITS_LIMIT:
            refuse_unfit(x.data)

    def accumulate(
        self, total: torch.Tensor, a: torch.Tensor, b: torch.Tensor, y: torch.Tensor, first: bool
    ) -> None:
        accumulate(total.numpy(), a.numpy(), b.numpy(), y.numpy(), first)

    def relu(self, x: torch.Tensor, edges: I64) -> torch.Tensor:
        out = torch.empty_like(x)
        if values_last(x.numpy(), edges, out.numpy(), True) >= _BITS_LIMIT:
            refuse_unfit(x)
        return out
