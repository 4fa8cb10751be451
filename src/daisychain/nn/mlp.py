"""A multi-layer perceptron on verified linear layers."""

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import nn

from daisychain.nn.linear import Backward, make_linear


class MLP(nn.Module):
    """float32 (n, sizes[0]) → (n, sizes[-1]), ReLU between the layers."""

    def __init__(self, sizes: Sequence[int], arithmetic: str = "int8", backward: Backward = "int8") -> None:
        super().__init__()
        last = len(sizes) - 2
        self.layers = nn.Sequential(
            *(
                make_linear(n_in, n_out, arithmetic, backward, relu=number < last)
                for number, (n_in, n_out) in enumerate(pairwise(sizes))
            )
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.layers(x))
