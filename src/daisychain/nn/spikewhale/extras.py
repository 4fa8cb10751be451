"""What stands after the blocks: the refinement of the hidden states, and the head that looks one token further."""

import torch
from torch import nn

from daisychain.nn.spikewhale.config import SpikeWhaleConfig
from daisychain.nn.spikewhale.layers import FeedForward, RMSNorm, linear


class Refinement(nn.Module):
    """One more pass over the hidden states: an MLP whose gate, a number a channel, begins closed."""

    def __init__(self, config: SpikeWhaleConfig) -> None:
        super().__init__()
        self.norm = RMSNorm(config.width)
        self.mlp = FeedForward(config)
        self.gate = nn.Parameter(torch.zeros(config.width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.gate * self.mlp(self.norm(x))


class MultiToken(nn.Module):
    """What the token after next is predicted from: the hidden state, and the embedding of the next token.

    Training only. Both are (n, t, width); so is the result, which the model's own head turns into logits.
    """

    def __init__(self, config: SpikeWhaleConfig) -> None:
        super().__init__()
        self.hidden_norm, self.token_norm = RMSNorm(config.width), RMSNorm(config.width)
        self.join = linear(config, 2 * config.width, config.width)
        self.mlp_norm, self.mlp = RMSNorm(config.width), FeedForward(config)
        self.norm = RMSNorm(config.width)

    def forward(self, hidden: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        x = self.join(torch.cat([self.hidden_norm(hidden), self.token_norm(following)], -1))
        normed: torch.Tensor = self.norm(x + self.mlp(self.mlp_norm(x)))
        return normed
