"""A small decoder-only transformer on verified linear layers."""

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import nn

from daisychain.base.errors import ConfigError
from daisychain.nn.linear import Backward, make_linear


@dataclass(frozen=True)
class TransformerConfig:
    """Shape and arithmetic of a Transformer; JSON by dataclasses.asdict."""

    vocabulary: int = 256
    width: int = 64
    layers: int = 2
    heads: int = 4
    sequence: int = 128
    arithmetic: str = "int8"
    backward: Backward = "int8"

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "layers", "heads", "sequence"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        if self.width % self.heads:
            raise ConfigError(f"width {self.width} is not a multiple of heads {self.heads}.")


class Block(nn.Module):
    """Causal attention and a ReLU MLP, each after a LayerNorm and added to its input."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width, how = config.width, (config.arithmetic, config.backward)
        self.heads = config.heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = make_linear(width, 3 * width, *how)
        self.attention_out = make_linear(width, width, *how)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_up = make_linear(width, 4 * width, *how, relu=True)
        self.mlp_down = make_linear(4 * width, width, *how)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        joined = self.query_key_value(self.attention_norm(x))
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in joined.split(width, dim=-1)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attention_out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + cast(torch.Tensor, self.mlp_down(self.mlp_up(self.mlp_norm(x))))


class Transformer(nn.Module):
    """Token ids int64 (n, t ≤ sequence) → logits float32 (n, t, vocabulary)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.sequence, config.width)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = make_linear(
            config.width, config.vocabulary, config.arithmetic, config.backward, bias=False
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        if ids.shape[1] > self.config.sequence:
            raise ConfigError(
                f"{ids.shape[1]} tokens are more than the model's sequence {self.config.sequence}."
            )
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return cast(torch.Tensor, self.head(self.norm(x)))
