"""The elementwise halves of a fast product in plain torch operations: quantise, epilogue, ReLU.

`compiled.py` has the same in one pass each. Both give codes as int8 or as the float32 values `q·2^k`.
"""

import math
import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import torch

from daisychain.base import limits
from daisychain.kernels.backend import Operand
from daisychain.numerics.blocks import I64, MAGNITUDE_LIMIT, block_edges, check_quantisable

_MAGNITUDE_LIMIT = float(MAGNITUDE_LIMIT)


def refuse_unfit(x: torch.Tensor) -> None:
    """Raise the contract's error for what the block format cannot hold."""
    check_quantisable(x.detach().cpu().numpy())


class Scratch(threading.local):
    """Memory used again from product to product, a set a thread: fresh pages cost as much as a pass over them."""

    def __init__(self) -> None:
        self._buffers: dict[str, torch.Tensor] = {}

    def forget(self) -> None:
        """Let this thread's memory go."""
        self._buffers.clear()

    def take(self, name: str, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """An uninitialised tensor, valid until the same name is taken again."""
        buffer, count = self._buffers.get(name), math.prod(shape)
        if buffer is None or buffer.numel() < count or buffer.device != device:
            buffer = self._buffers[name] = torch.empty(count, dtype=dtype, device=device)
        return buffer[:count].view(*shape)


class Elementwise(Protocol):
    suffix: str  # of the names of the backends that use it

    def unavailable(self) -> str | None:
        """Why this machine cannot run it, or None."""

    def codes(self, x: Operand, edges: I64, out: torch.Tensor) -> torch.Tensor:
        """int8 codes into `out`, laid out as `x.data`; returns float32 scales (blocks, rows)."""

    def values(self, x: Operand, edges: I64, out: torch.Tensor) -> None:
        """The float32 values `q·2^k` into `out`, laid out as `x.data`."""

    def accumulate(
        self, total: torch.Tensor, a: torch.Tensor, b: torch.Tensor, y: torch.Tensor, first: bool
    ) -> None:
        """y (m, n) += f32(total)·a[:, None]·b, power-of-two scales a (m,), b (n,); with `first`, y is written."""

    def relu(self, x: torch.Tensor, edges: I64) -> torch.Tensor:
        """numerics.block_relu of a contiguous (rows, length) matrix."""


class FastBackend:
    """What backends share that leave the elementwise work to one of the implementations here."""

    for_proof = False

    def __init__(self, library: str, elementwise: Elementwise) -> None:
        self.name = library + elementwise.suffix
        self.elementwise = elementwise
        self.scratch = Scratch()

    def unavailable(self) -> str | None:
        return self.elementwise.unavailable()

    def rounded(self, x: Operand, edges: I64) -> torch.Tensor:
        out = torch.empty_like(x.data)
        self.elementwise.values(x, edges, out)
        return out

    def relu(self, x: torch.Tensor) -> torch.Tensor:
        return self.elementwise.relu(x, block_edges(x.shape[1]))

    def forget(self) -> None:
        self.scratch.forget()


class PlainElementwise:
    """Several passes over memory, any device."""

    suffix = "-plain"

    def unavailable(self) -> str | None:
        return None

    def codes(self, x: Operand, edges: I64, out: torch.Tensor) -> torch.Tensor:
        scales = torch.empty(len(edges) - 1, x.rows, device=x.data.device)
        target = Operand(out, x.axis)
        for b, (start, end) in enumerate(pairwise(edges.tolist())):
            codes, scales[b] = _block_codes(x.part(start, end))
            target.part(start, end).copy_(codes)
        return scales

    def values(self, x: Operand, edges: I64, out: torch.Tensor) -> None:
        target = Operand(out, x.axis)
        for start, end in pairwise(edges.tolist()):
            codes, scale = _block_codes(x.part(start, end))
            torch.mul(codes, scale[:, None], out=target.part(start, end))

    def accumulate(
        self, total: torch.Tensor, a: torch.Tensor, b: torch.Tensor, y: torch.Tensor, first: bool
    ) -> None:
        term = total.to(torch.float32).mul_(a[:, None]).mul_(b)
        if first:
            y.copy_(term)
        else:
            y.add_(term)

    def relu(self, x: torch.Tensor, edges: I64) -> torch.Tensor:
        out = torch.empty_like(x)
        self.values(Operand(x, 1), edges, out)
        return out.clamp_min_(0.0)


def _block_codes(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes of one block (rows, ≤ 128) as whole float32 numbers, and its scales (rows,)."""
    magnitude = x.abs().amax(1)
    if not bool((magnitude < _MAGNITUDE_LIMIT).all()):
        refuse_unfit(x)
    exponent = (((magnitude.view(torch.int32) + 0x10000) >> 23) - 133).clamp_min_(limits.EXPONENT_MIN)
    scale = ((exponent + 127) << 23).view(torch.float32)
    factor = ((135 - exponent) << 23).view(torch.float32)  # 2^(8−k)
    codes = (x * factor[:, None]).floor_().add_(128.0).mul_(1 / 256).floor_()
    return codes, scale
