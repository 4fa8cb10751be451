"""Cross-entropy of the head, a few rows at a time: no memory grows with rows · vocabulary."""

from typing import Any

import torch
from torch import nn

from daisychain.base import limits
from daisychain.nn.linear import apply


def head_loss(
    head: nn.Module, x: torch.Tensor, targets: torch.Tensor, rows: int = limits.SPIKEWHALE_LOGIT_ROWS
) -> torch.Tensor:
    """The sum, in nats, of the losses of all tokens: `x` (n, t, width), `targets` int64 (n, t) → float32 scalar.

    `head` is a linear layer without bias. At most `rows` rows have their logits in memory. The gradient is made on
    the way forward, while they are there, so that the head computes nothing twice.
    """
    if torch.is_grad_enabled():
        return apply(_HeadLoss, x, head.weight, targets, head, rows)
    losses = [_part_loss(head, x[part], targets[part], [])[0] for part in _parts(*targets.shape, rows=rows)]
    return torch.stack(losses).sum().float()


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, head: nn.Module, rows: int
    ) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.float64, device=x.device)
        dx = torch.zeros_like(x) if ctx.needs_input_grad[0] else None
        dw = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        for part in _parts(*targets.shape, rows=rows):
            piece = x[part].detach().requires_grad_(dx is not None)
            wanted = ([] if dx is None else [piece]) + ([] if dw is None else [weight])
            loss, gradients = _part_loss(head, piece, targets[part], wanted)
            total += loss
            if dx is not None:
                dx[part] = gradients.pop(0)
            if dw is not None:
                dw += gradients.pop(0)
        ctx.save_for_backward(dx, dw)
        return total.float()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        dx, dw = (None if made is None else made * gradients[0] for made in ctx.saved_tensors)
        return dx, dw, None, None, None


def _parts(samples: int, length: int, *, rows: int) -> list[tuple[slice, slice]]:
    """Whole sequences together, or pieces of one, of at most `rows` rows."""
    together, piece = max(1, rows // max(1, length)), min(rows, max(1, length))
    return [
        (slice(first, first + together), slice(start, start + piece))
        for first in range(0, samples, together)
        for start in range(0, length, piece)
    ]


def _part_loss(
    head: nn.Module, x: torch.Tensor, targets: torch.Tensor, wanted: list[torch.Tensor]
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The loss of some rows, a float64 scalar, and its gradients by the tensors `wanted`.

    The logits become their softmax and then their gradient where they lie: passes over memory are what costs here.
    """
    with torch.set_grad_enabled(bool(wanted)):
        logits = head(x)
    scores, places = logits.data, targets.unsqueeze(-1)  # with `detach`, autograd would copy what is changed
    scores -= scores.amax(-1, keepdim=True)
    right = scores.gather(-1, places)
    sums = scores.exp_().sum(-1, keepdim=True)
    loss = (sums.log() - right).double().sum()
    if not wanted:
        return loss, []
    scores /= sums
    scores.scatter_add_(-1, places, scores.new_full((), -1.0).expand(places.shape))
    return loss, list(torch.autograd.grad(logits, wanted, scores))
