"""Going on with a text, token by token, with a cache or without: the same tokens."""

import math
from collections.abc import Iterator, Sequence

import torch

from daisychain.base import limits
from daisychain.base.errors import ConfigError, NonFiniteError
from daisychain.nn.spikewhale.model import SpikeWhale


def generate(
    model: SpikeWhale,
    ids: Sequence[int],
    tokens: int,
    temperature: float,
    seed: int,
    *,
    cached: bool = True,
) -> Iterator[int]:
    """`tokens` ids that go on from `ids`, one by one. Temperature 0 takes the likeliest.

    When the model's sequence is full, the last half of it is the context that goes on. The same seed gives the same
    tokens on one machine. `model` must be in eval mode. Raises ConfigError for bad arguments at once.
    """
    if (
        isinstance(tokens, bool)
        or not isinstance(tokens, int)
        or not 0 <= tokens <= limits.MAX_GENERATED_TOKENS
    ):
        raise ConfigError(
            f"tokens {tokens!r} must be a whole number from 0 to {limits.MAX_GENERATED_TOKENS}."
        )
    if not (math.isfinite(temperature) and 0 <= temperature <= limits.MAX_TEMPERATURE):
        raise ConfigError(f"temperature {temperature} must be a number from 0 to {limits.MAX_TEMPERATURE:g}.")
    if not ids or not all(0 <= id < model.config.vocabulary for id in ids):
        raise ConfigError(
            f"a text of ids from 0 to {model.config.vocabulary - 1} is needed to go on from, not {list(ids)!r:.80}."
        )
    if model.training:
        raise ConfigError("the model is in training mode; call eval() before it generates.")
    return _continue(model, shortened(list(ids), model.config.sequence), tokens, temperature, seed, cached)


def shortened(context: list[int], sequence: int) -> list[int]:
    """The context that a model is shown: its last half sequence once it is longer than the sequence."""
    return context if len(context) <= sequence else context[-max(1, sequence // 2) :]


def _continue(
    model: SpikeWhale, context: list[int], tokens: int, temperature: float, seed: int, cached: bool
) -> Iterator[int]:
    device = model.tokens.weight.device
    generator = torch.Generator().manual_seed(seed)
    cache, new = model.start_cache(), context
    for _ in range(tokens):
        with torch.no_grad():
            if cached:
                logits = model.forward_cached(torch.tensor([new], device=device), cache)
            else:
                logits = model(torch.tensor([context], device=device))[0, -1]
        token = pick(logits.cpu().double(), temperature, generator)
        yield token
        longer = [*context, token]
        context = shortened(longer, model.config.sequence)
        new = [token]
        if len(context) < len(longer):
            cache, new = model.start_cache(), context


def pick(logits: torch.Tensor, temperature: float, generator: torch.Generator) -> int:
    """One of the likeliest tokens, by its logit: float64 (vocabulary,). NonFiniteError for NaN or infinity."""
    if not torch.isfinite(logits).all():
        raise NonFiniteError(
            "the model's logits are NaN or infinite; its training has diverged, use another checkpoint."
        )
    if temperature < limits.MIN_TEMPERATURE:
        return int(logits.argmax())
    best, tokens = logits.topk(min(limits.SAMPLING_TOP_K, len(logits)))
    likelihood = torch.softmax((best - best.max()) / temperature, 0)
    return int(tokens[torch.multinomial(likelihood, 1, generator=generator)])
