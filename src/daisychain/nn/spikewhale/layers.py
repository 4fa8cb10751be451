"""What the parts of a SpikeWhale are made of: the norm, projections of low rank, and the MLP."""

from typing import cast

import torch
import torch.nn.functional as F
from torch import nn

from daisychain.nn.linear import make_linear
from daisychain.nn.spikewhale.config import SpikeWhaleConfig

NORM_EPSILON = 1e-5


def wide(x: torch.Tensor, training: bool) -> torch.Tensor:
    """`x` in float64 outside training, where only what is multiplied is float32.

    A linear layer gives the same bits for a row, whatever rows lie beside it; torch's sums do not. In float64 they
    differ far below what rounding to float32 leaves, so one token at a time gives what a whole text gives.
    """
    return x if training else x.double()


class RMSNorm(nn.Module):
    """Each row over its root mean square, times a learned gain: (…, width) → float32 (…, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = wide(x, self.training)
        return F.rms_norm(x, self.gain.shape, self.gain.to(x.dtype), NORM_EPSILON).float()


def linear(config: SpikeWhaleConfig, n_in: int, n_out: int, *, relu: bool = False) -> nn.Module:
    """A linear layer without bias in the arithmetic of the model: float32 (…, n_in) → (…, n_out)."""
    return make_linear(n_in, n_out, config.arithmetic, config.backward, bias=False, relu=relu)


def projection(config: SpikeWhaleConfig, n_in: int, n_out: int) -> nn.Module:
    """A linear layer, through `rank` numbers where the part low_rank is on."""
    if not config.has("low_rank"):
        return linear(config, n_in, n_out)
    return nn.Sequential(linear(config, n_in, config.rank), linear(config, config.rank, n_out))


class FeedForward(nn.Module):
    """An MLP with one hidden layer, ReLU on the unit: float32 (…, width) → (…, width)."""

    def __init__(self, config: SpikeWhaleConfig) -> None:
        super().__init__()
        self.up = linear(config, config.width, config.mlp_width, relu=True)
        self.down = linear(config, config.mlp_width, config.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.down(self.up(x)))
