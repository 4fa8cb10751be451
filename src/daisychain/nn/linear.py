"""`VerifiedLinear`: a drop-in for `nn.Linear` whose products run through the verified kernels."""

from collections.abc import Callable
from typing import Any, Literal, cast

import torch
from torch import nn

from daisychain import kernels
from daisychain.base.errors import ConfigError
from daisychain.kernels import Operand

Backward = Literal["int8", "float"]
Product = Callable[[Operand, Operand, int | None], torch.Tensor]


def _product(a: Operand, b: Operand, period: int | None = None) -> torch.Tensor:
    return kernels.default(a.data.device.type).product(a, b, period)


def _triple(a: Operand, b: Operand, period: int | None = None) -> torch.Tensor:
    """3×INT8, as numerics.triple_product."""
    split = kernels.default(a.data.device.type).split_high_low
    (ah, al), (bh, bl) = split(a, period), split(b, period)
    return (_product(ah, bh, period) + _product(ah, bl, period)) + _product(al, bh, period)


class _Linear(torch.autograd.Function):
    """x (rows, in) · weight (out, in)ᵀ. Backward: the products of the straight-through gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        backward: Backward,
        product: Product,
        period: int | None,
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.exact, ctx.product, ctx.period = backward == "int8", product, period
        return product(Operand(x.detach(), 1), Operand(weight.detach(), 1), None)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        g = gradients[0].contiguous()
        dx = dw = None
        if ctx.needs_input_grad[0]:
            dx = ctx.product(Operand(g, 1), Operand(weight, 0), None) if ctx.exact else g @ weight
        if ctx.needs_input_grad[1]:
            dw = ctx.product(Operand(g, 0), Operand(x, 0), ctx.period) if ctx.exact else g.t() @ x
        return dx, dw, None, None, None


class _UnitReLU(torch.autograd.Function):
    """ReLU on the unit: what passes is 8-bit codes in blocks along the last axis."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = kernels.default(x.device.type).relu(x.detach())
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        (y,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(gradients[0], y, 0.0)


def apply(function: type[torch.autograd.Function], *arguments: object) -> torch.Tensor:
    return cast(torch.Tensor, function.apply(*arguments))


class VerifiedLinear(nn.Linear):
    """`nn.Linear` through verified 8-bit products: float32 (…, in_features) → (…, out_features).

    `relu`: ReLU on the unit afterwards. `triple`: 3×INT8, nearly float from three products. `backward`: the
    gradient's products in 8 bits too, or in float32.

    The weight's gradient is contracted over rows; its blocks restart at every sequence (axis −2), so that the
    gradient of a sequence does not depend on what else is in the batch.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        relu: bool = False,
        triple: bool = False,
        backward: Backward = "int8",
    ) -> None:
        if backward not in ("int8", "float"):
            raise ConfigError(f"backward={backward!r} is not known; use 'int8' or 'float'.")
        super().__init__(in_features, out_features, bias)
        self.relu, self.triple, self.exact_backward = relu, triple, backward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        period = x.shape[-2] if x.dim() > 2 else None
        product = _triple if self.triple else _product
        y = apply(_Linear, rows, self.weight, self.exact_backward, product, period)
        if self.bias is not None:
            y = y + self.bias
        if self.relu:
            y = apply(_UnitReLU, y)
        return y.reshape(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        return (
            f"{super().extra_repr()}, relu={self.relu}, triple={self.triple}, backward={self.exact_backward}"
        )


class _FloatReLU(nn.Linear):
    """ReLU inside, so that weights have the same names in every arithmetic."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).relu()


def make_linear(
    in_features: int,
    out_features: int,
    arithmetic: str = "int8",
    backward: Backward = "int8",
    *,
    bias: bool = True,
    relu: bool = False,
) -> nn.Module:
    """A linear layer, with ReLU if wanted, in `int8`, `int8x3` or `float` arithmetic."""
    if arithmetic == "float":
        return (_FloatReLU if relu else nn.Linear)(in_features, out_features, bias)
    if arithmetic not in ("int8", "int8x3"):
        raise ConfigError(f"arithmetic {arithmetic!r} is not known; use int8, int8x3 or float.")
    return VerifiedLinear(
        in_features, out_features, bias, relu=relu, triple=arithmetic == "int8x3", backward=backward
    )


def verify_model(model: nn.Module, *, triple: bool = False, backward: Backward = "int8") -> nn.Module:
    """Swap every `nn.Linear` in `model` for a `VerifiedLinear` with the same weights, in place; returns it.

    Parameters keep their identity, so tied weights stay tied and an optimiser made before still holds them; a layer
    used in several places stays one layer. Subclasses of `nn.Linear` are left alone, since their forward may do
    something else.
    """
    if type(model) is nn.Linear:
        return _verified(model, triple, backward)
    swapped = {
        linear: _verified(linear, triple, backward) for linear in model.modules() if type(linear) is nn.Linear
    }
    for module in list(model.modules()):
        for name, child in module._modules.items():
            if child in swapped:
                setattr(module, name, swapped[child])
    return model


def _verified(linear: nn.Linear, triple: bool, backward: Backward) -> VerifiedLinear:
    if linear.weight.dtype != torch.float32:
        raise ConfigError(f"a layer of type {linear.weight.dtype} cannot be verified; convert it to float32.")
    with torch.device("meta"):  # no numbers are drawn for weights that are replaced
        new = VerifiedLinear(
            linear.in_features, linear.out_features, linear.bias is not None, triple=triple, backward=backward
        )
    new.weight, new.bias = linear.weight, linear.bias
    return new.train(linear.training)
