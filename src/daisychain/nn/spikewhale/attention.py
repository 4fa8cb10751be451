"""Attention of many query heads over one key/value head, of which a quarter turns with the position."""

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from daisychain.base.errors import ConfigError
from daisychain.nn.spikewhale.config import SpikeWhaleConfig
from daisychain.nn.spikewhale.hashing import LONGEST, NOTHING
from daisychain.nn.spikewhale.layers import RMSNorm, linear, projection, wide

ROTARY_BASE = 10_000.0


@dataclass
class Cache:
    """What generation keeps of the tokens seen: keys and values of every layer (heads, room, head_width), of which the
    first `length` are filled, and the tokens that the next n-gram begins with, (1, 2).

    The room grows with the tokens, up to `sequence`: a description alone, which may be hostile, takes no memory.
    """

    keys: list[torch.Tensor]
    values: list[torch.Tensor]
    sequence: int
    length: int = 0
    last: torch.Tensor = field(
        default_factory=lambda: torch.full((1, LONGEST - 1), NOTHING, dtype=torch.int64)
    )

    @classmethod
    def empty(cls, config: SpikeWhaleConfig, device: torch.device) -> "Cache":
        shape = (key_value_heads(config), 0, config.head_width)
        keys, values = (
            [torch.empty(shape, device=device) for _ in range(config.layers)] for _ in ("keys", "values")
        )
        return cls(keys, values, config.sequence, last=torch.full((1, LONGEST - 1), NOTHING, device=device))

    def check_room(self, tokens: int) -> None:
        """Raises ConfigError if so many tokens do not fit any more."""
        room = self.sequence - self.length
        if not 1 <= tokens <= room:
            raise ConfigError(f"{tokens} tokens do not fit a cache with room for {room}; start another.")

    def extend(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Keep what a layer made of new tokens, (1, heads, t, head_width); returns it with all that was kept before."""
        end = self.length + keys.shape[2]
        joined = []
        for kept, new in ((self.keys, keys), (self.values, values)):
            kept[layer] = self._with_room(kept[layer], end)
            kept[layer][:, self.length : end] = new[0]
            joined.append(kept[layer][None, :, :end])
        return tuple(joined)

    def _with_room(self, kept: torch.Tensor, tokens: int) -> torch.Tensor:
        """The same with room for so many tokens; where it has to grow, for as many again."""
        heads, room, width = kept.shape
        if tokens <= room:
            return kept
        larger = kept.new_empty(heads, min(2 * tokens, self.sequence), width)
        larger[:, : self.length] = kept[:, : self.length]
        return larger

    def advance(self, ids: torch.Tensor) -> None:
        """Every layer has kept these tokens, (1, t)."""
        self.length += ids.shape[1]
        self.last = torch.cat([self.last, ids], 1)[:, -(LONGEST - 1) :]


def key_value_heads(config: SpikeWhaleConfig) -> int:
    """One for all query heads, or one a query head where the part shared_key_value is off."""
    return 1 if config.has("shared_key_value") else config.heads


def rotary_width(config: SpikeWhaleConfig) -> int:
    """Numbers of a head that turn: all of them where the part position_free is off."""
    return config.rotary_width if config.has("position_free") else config.head_width


def turns(sequence: int, width: int) -> torch.Tensor:
    """Cosine and sine of every position's angles: float32 (2, sequence, width / 2).

    A table, so that a position's numbers do not depend on how many are computed together.
    """
    speeds = ROTARY_BASE ** -(np.arange(0, width, 2) / width)
    angles = np.arange(sequence)[:, None] * speeds
    return torch.from_numpy(np.stack([np.cos(angles), np.sin(angles)]).astype(np.float32))


def rotate(x: torch.Tensor, turned: torch.Tensor) -> torch.Tensor:
    """Turn pairs of the first numbers of each head: `x` (…, t, head_width), `turned` (2, t, pairs); the rest stays."""
    cosine, sine = turned
    pairs = cosine.shape[-1]
    first, second, free = x.tensor_split([pairs, 2 * pairs], dim=-1)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine, free], -1)


class Attention(nn.Module):
    """Causal attention: float32 (n, t, width) → (n, t, width)."""

    def __init__(self, config: SpikeWhaleConfig, layer: int) -> None:
        super().__init__()
        self.heads, self.head_width, self.layer = config.heads, config.head_width, layer
        self.key_value_heads = key_value_heads(config)
        all_heads = config.heads * config.head_width
        self.query = projection(config, config.width, all_heads)
        self.key_value = linear(config, config.width, 2 * self.key_value_heads * config.head_width)
        self.out = projection(config, all_heads, config.width)
        normed = config.has("qk_norm")
        self.query_norm = RMSNorm(config.head_width) if normed else nn.Identity()
        self.key_norm = RMSNorm(config.head_width) if normed else nn.Identity()

    def forward(self, x: torch.Tensor, turned: torch.Tensor, cache: Cache | None) -> torch.Tensor:
        """`turned` (2, t, pairs): of the positions of these tokens. A cache puts its tokens before them."""
        keys, values = self._split(self.key_value(x), 2 * self.key_value_heads).chunk(2, dim=1)
        queries = rotate(self.query_norm(self._split(self.query(x), self.heads)), turned)
        keys = rotate(self.key_norm(keys), turned)
        if cache is not None:
            keys, values = cache.extend(self.layer, keys, values)
        attended = self._attend(*(wide(part, self.training) for part in (queries, keys, values))).float()
        joined: torch.Tensor = self.out(attended.transpose(1, 2).reshape(*x.shape[:-1], -1))
        return joined

    def _split(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        """(n, t, heads · head_width) → (n, heads, t, head_width)."""
        return x.view(*x.shape[:-1], heads, self.head_width).transpose(1, 2)

    def _attend(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Every query over the keys up to its own, which are the last ones."""
        new, seen = queries.shape[2], keys.shape[2]
        keys, values = (x.expand(-1, self.heads, -1, -1) for x in (keys, values))
        mask = None
        if 1 < new < seen:
            mask = torch.ones(new, seen, dtype=torch.bool, device=keys.device).tril(seen - new)
        return F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, is_causal=1 < new == seen
        )
