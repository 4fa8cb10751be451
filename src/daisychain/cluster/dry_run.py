"""A training step that is not taken: on torch's device `meta`, where tensors have sizes and no numbers.

The same code runs as in training, so what it would allocate is counted, not guessed, whatever the model is made of.
"""

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from daisychain import kernels
from daisychain.base import limits
from daisychain.kernels.registry import Shape
from daisychain.tasks.task import Loss, loss_sum_and_count

META = torch.device("meta")
_FLOAT_PRODUCTS = (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm)


@dataclass(frozen=True)
class DryRun:
    """What a step takes, beside the weights and their gradient: memory at once, and work in all."""

    parameters: int  # numbers, trainable or not
    live_bytes: int  # of the tensors that exist at once, at the worst moment
    scratch_bytes: int  # that a kernel keeps for its largest operands and its largest result
    moved_bytes: int  # written by all operations together, and within products
    operations: int
    multiplied: int  # pairs of numbers, by all products
    shapes: Mapping[Shape, int]  # of the verified products, and how many there are of each

    def extended(self, less: "DryRun", times: float) -> "DryRun":
        """This step with so many times more of what it has more than the step `less`."""
        longer = {
            name: round(getattr(self, name) + times * max(0, getattr(self, name) - getattr(less, name)))
            for name in ("live_bytes", "scratch_bytes", "moved_bytes", "operations", "multiplied")
        }
        return replace(self, **longer)


class _Ledger(TorchDispatchMode):
    """Every tensor that is made is entered, and crossed out when its memory would be free again; not those `before`."""

    def __init__(self, before: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._before = {tensor.untyped_storage()._cdata for tensor in before}
        self._sizes: dict[int, int] = {}
        self.live_bytes = self.peak_bytes = self.moved_bytes = self.operations = self.multiplied = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Sequence[Any] = (), named: Mapping[str, Any] | None = None
    ) -> Any:
        made = function(*arguments, **(named or {}))
        self.operations += 1
        if function.overloadpacket in _FLOAT_PRODUCTS:
            self.multiplied += made.numel() * arguments[-1].shape[-2]
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self._enter(tensor.untyped_storage())
        return made

    def _enter(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._sizes or key in self._before:
            return
        self._sizes[key] = size
        self.moved_bytes += size
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        weakref.finalize(storage, self._cross_out, key).atexit = False

    def _cross_out(self, key: int) -> None:
        self.live_bytes -= self._sizes.pop(key)


class _CpuAttention(TorchFunctionMode):
    """Attention without a mask takes on `meta` the way that it takes on the CPU, which holds no table of weights."""

    def __torch_function__(
        self, function: Any, types: Any, arguments: Sequence[Any] = (), named: Mapping[str, Any] | None = None
    ) -> Any:
        named = named or {}
        if function is F.scaled_dot_product_attention and named.get("attn_mask") is None:
            causal = bool(named.get("is_causal", False))
            return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*arguments[:3], 0.0, causal)[0]
        return function(*arguments, **named)


def dry_run(
    build: Callable[[], torch.nn.Module], loss: Callable[[torch.nn.Module], Loss], samples: int
) -> DryRun:
    """Forward and backward of `loss` on what `build` makes, without numbers; `loss` gives tensors on `meta`."""
    sizes = kernels.default(META.type)
    sizes.shapes.clear()
    with META:
        model = build().to(META)  # buffers made by NumPy go there too
    model.train()
    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.grad = torch.empty_like(parameter) if parameter.requires_grad else None
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    with _Ledger([*parameters, *gradients, *model.buffers()]) as ledger, _CpuAttention():
        total, _ = loss_sum_and_count(loss(model), samples)
        total.backward()
    shapes = dict(sizes.shapes)
    operands = [(m * k, k * n, m * n) for m, k, n, *_ in shapes]
    return DryRun(
        parameters=sum(parameter.numel() for parameter in parameters),
        live_bytes=ledger.peak_bytes,
        scratch_bytes=4 * sum(max(each) for each in zip(*operands, strict=True)),
        moved_bytes=ledger.moved_bytes
        + sum(count * _product_bytes(*shape[:3]) for shape, count in shapes.items()),
        operations=ledger.operations,
        multiplied=ledger.multiplied + sum(count * m * k * n for (m, k, n, *_), count in shapes.items()),
        shapes=shapes,
    )


def _product_bytes(rows_a: int, length: int, rows_b: int) -> int:
    """What a verified product writes: its operands in block format, and a sum for each block."""
    blocks = -(-length // limits.BLOCK_LENGTH)
    return 4 * (rows_a * length + length * rows_b + rows_a * rows_b * blocks)
