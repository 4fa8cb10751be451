"""Tables that are looked up by a hash: of the token (hash_lookup), and of what was just written (engram)."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import nn

from daisychain.nn.spikewhale.config import SpikeWhaleConfig
from daisychain.nn.spikewhale.layers import RMSNorm, linear

NOTHING = -1  # stands for a token before the first
LONGEST = 3  # tokens of an n-gram
TABLE_STD = 0.02
#: The hash is pinned: a model is of no use with another one. 2³¹ − 1 is prime, so no product passes 2⁶².
PRIME = 2**31 - 1
LOOKUP_MULTIPLIERS = (1_103_515_245, 1_597_334_677)
NGRAM_MULTIPLIERS = {2: 747_796_405, 3: 1_812_433_253}  # by length


def hash_tokens(tokens: Sequence[torch.Tensor], multiplier: int, entries: int) -> torch.Tensor:
    """An entry for each n-gram: int64 tensors of one shape, oldest token first → int64 of that shape, < `entries`.

    The digits of a number to the base `multiplier`, modulo PRIME. Integers only, so the same on every machine.
    """
    hashed = torch.zeros_like(tokens[0])
    for token in tokens:
        hashed = (hashed + (token + 1)) * multiplier % PRIME
    return hashed % entries


def table(entries: int, width: int, std: float = TABLE_STD) -> nn.Embedding:
    """A learned table whose numbers have this standard deviation at first."""
    made = nn.Embedding(entries, width)
    nn.init.normal_(made.weight, std=std)
    return made


class HashLookup(nn.Module):
    """Two tables beside the token embedding, each entered by another hash of the token: int64 (n, t) → (n, t, width).

    Tokens that share an entry of one table share none of the other, as good as always. The token embedding is the
    head too; these tables let what a token means differ from what predicts it.
    """

    def __init__(self, config: SpikeWhaleConfig) -> None:
        super().__init__()
        self.entries = config.hash_entries
        self.tables = nn.ModuleList(table(config.hash_entries, config.width) for _ in LOOKUP_MULTIPLIERS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        first, second = (
            made(hash_tokens([ids], multiplier, self.entries))
            for made, multiplier in zip(self.tables, LOOKUP_MULTIPLIERS, strict=True)
        )
        return cast(torch.Tensor, first + second)


class Engram(nn.Module):
    """A memory of what usually follows: the bigram and the trigram that end at a token enter one table by their hashes.

    What is found goes through a linear layer, and a gate made of the hidden state says how much of it is used, for
    many n-grams share an entry.
    """

    def __init__(self, config: SpikeWhaleConfig) -> None:
        super().__init__()
        self.entries = config.engram_entries
        self.table = table(config.engram_entries, config.width)
        self.norm = RMSNorm(config.width)
        self.gate = linear(config, config.width, config.width)
        self.value = linear(config, config.width, config.width)

    def forward(self, x: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
        """`x` normed (n, t, width), `history` int64 (n, 2 + t): the tokens and the two before them → (n, t, width)."""
        return torch.sigmoid(self.gate(x)) * self.value(self.norm(self.remembered(history)))

    def remembered(self, history: torch.Tensor) -> torch.Tensor:
        """The sum of both entries of each token but the first two: (n, t, width)."""
        length = history.shape[1] - (LONGEST - 1)
        shifted = [history[:, start : start + length] for start in range(LONGEST)]
        bigram, trigram = (
            self.table(hash_tokens(shifted[LONGEST - size :], multiplier, self.entries))
            for size, multiplier in NGRAM_MULTIPLIERS.items()
        )
        return cast(torch.Tensor, bigram + trigram)
