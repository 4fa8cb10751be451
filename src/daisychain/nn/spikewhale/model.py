"""SpikeWhale: a decoder-only language model of verified linear layers, each of its parts with a switch."""

from functools import lru_cache
from typing import cast

import torch
from torch import nn

from daisychain.base import limits
from daisychain.base.errors import ConfigError
from daisychain.nn.spikewhale.attention import Attention, Cache, rotary_width, turns
from daisychain.nn.spikewhale.config import SpikeWhaleConfig
from daisychain.nn.spikewhale.extras import MultiToken, Refinement
from daisychain.nn.spikewhale.hashing import LONGEST, NOTHING, Engram, HashLookup, table
from daisychain.nn.spikewhale.head import head_loss
from daisychain.nn.spikewhale.layers import FeedForward, RMSNorm, linear, wide
from daisychain.nn.spikewhale.streams import connection, narrow, widen

ENGRAM_BEFORE = 1  # the block before which the engram speaks: its gate has seen one round of attention

#: Standard deviation of the logits before training. With 0.02 for each number of an embedding, as is usual, all tokens
#: first become alike, and a tiny model stays at the tokens' frequencies for hundreds of steps (docs/NOTES.md).
FIRST_LOGITS_STD = 0.5


class Block(nn.Module):
    """Attention, then an MLP; each reads the residual through a norm and adds to it."""

    def __init__(self, config: SpikeWhaleConfig, layer: int) -> None:
        super().__init__()
        self.attention_connection = connection(config, 2 * layer)
        self.attention_norm = RMSNorm(config.width)
        self.attention = Attention(config, layer)
        self.mlp_connection = connection(config, 2 * layer + 1)
        self.mlp_norm = RMSNorm(config.width)
        self.mlp = FeedForward(config)

    def forward(self, residual: torch.Tensor, turned: torch.Tensor, cache: Cache | None) -> torch.Tensor:
        x = self.attention_norm(self.attention_connection.read(residual))
        residual = self.attention_connection.write(residual, self.attention(x, turned, cache))
        x = self.mlp_norm(self.mlp_connection.read(residual))
        return self.mlp_connection.write(residual, self.mlp(x))


class SpikeWhale(nn.Module):
    """Token ids int64 (n, t ≤ sequence) → logits float32 (n, t, vocabulary)."""

    turned: torch.Tensor

    def __init__(self, config: SpikeWhaleConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = table(config.vocabulary, config.width, FIRST_LOGITS_STD / config.width**0.5)
        self.lookup = HashLookup(config) if config.has("hash_lookup") else None
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.layers))
        self.engram = Engram(config) if config.has("engram") else None
        if self.engram:
            self.engram_norm = RMSNorm(config.width)
            self.engram_connection = connection(config, 0)
        self.refinement = Refinement(config) if config.has("refinement") else None
        self.norm = RMSNorm(config.width)
        self.head = linear(config, config.width, config.vocabulary)
        self.head.weight = self.tokens.weight
        self.multi_token = MultiToken(config) if config.has("multi_token") else None
        self.register_buffer("turned", turns(config.sequence, rotary_width(config)), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.head(self.norm(self._hidden(ids))))

    def loss(self, windows: torch.Tensor) -> tuple[torch.Tensor, int]:
        """Sum of the next tokens' cross-entropy in nats, and how many they are: int64 (n, t + 1) → float32 scalar.

        In training the multi-token head adds to the gradient, and nothing to the value.
        """
        ids, targets = windows[:, :-1], windows[:, 1:]
        hidden = self._hidden(ids)
        total = head_loss(self.head, self.norm(hidden), targets)
        if self.multi_token and self.training and torch.is_grad_enabled() and targets.shape[1] > 1:
            following = self.multi_token(hidden[:, :-1], self.tokens(ids[:, 1:]))
            further = limits.SPIKEWHALE_MULTI_TOKEN_WEIGHT * head_loss(self.head, following, targets[:, 1:])
            total = total + (further - further.detach())
        return total, targets.numel()

    def start_cache(self) -> Cache:
        """A cache that has seen no token."""
        return Cache.empty(self.config, self.tokens.weight.device)

    def forward_cached(self, ids: torch.Tensor, cache: Cache) -> torch.Tensor:
        """Go on with int64 (1, t): logits (vocabulary,) of what follows; the cache then holds these tokens too.

        ConfigError if they are more than the cache has room for.
        """
        cache.check_room(ids.shape[1])
        hidden = self._hidden(ids, cache)
        cache.advance(ids)
        return cast(torch.Tensor, self.head(self.norm(hidden[:, -1:]))[0, 0])

    def _hidden(self, ids: torch.Tensor, cache: Cache | None = None) -> torch.Tensor:
        """(n, t) → (n, t, width), what the last norm and the head are given."""
        start = cache.length if cache else 0
        if (end := start + ids.shape[1]) > self.config.sequence:
            raise ConfigError(f"{end} tokens are more than the model's sequence {self.config.sequence}.")
        before = cache.last if cache else ids.new_full((len(ids), LONGEST - 1), NOTHING)
        x = self.tokens(ids)
        if self.lookup:
            x = x + self.lookup(ids)
        residual = widen(self.config, wide(x, self.training))
        engram_at = min(ENGRAM_BEFORE, len(self.blocks) - 1)
        for number, block in enumerate(self.blocks):
            if number == engram_at:
                residual = self._remember(residual, torch.cat([before, ids], 1))
            residual = block(residual, self.turned[:, start:end], cache)
        x = narrow(self.config, residual)
        return cast(torch.Tensor, self.refinement(x)) if self.refinement else x

    def _remember(self, residual: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
        """The residual after the engram has spoken; `history` (n, 2 + t)."""
        if not self.engram:
            return residual
        x = self.engram_norm(self.engram_connection.read(residual))
        return self.engram_connection.write(residual, self.engram(x, history))


@lru_cache(maxsize=256)
def parameter_count(config: SpikeWhaleConfig) -> int:
    """How many numbers a model learns. Takes no memory for them."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in SpikeWhale(config).parameters())
