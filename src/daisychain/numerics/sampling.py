"""The next token from logits: the same one everywhere for a seed (docs/NUMERICS.md, rule 22)."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from daisychain.base import limits
from daisychain.base.errors import ConfigError, NonFiniteError
from daisychain.numerics.blocks import F32
from daisychain.numerics.decoder import Decoder, random_bits, stream_key
from daisychain.numerics.functions import exp, lane_sum

_f = np.float32


def check_sampling(tokens: int, temperature: float, seed: int, top_k: int = limits.SAMPLING_TOP_K) -> None:
    """ConfigError for what cannot be sampled with."""
    for name, value, least, most in (
        ("tokens", tokens, 0, limits.MAX_GENERATED_TOKENS),
        ("seed", seed, 0, 2**32 - 1),
        ("top_k", top_k, 1, limits.VOCABULARY),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ConfigError(f"{name} {value!r:.60} must be a whole number from {least} to {most}.")
    low, high = limits.MIN_TEMPERATURE, limits.MAX_TEMPERATURE
    if temperature != 0 and not (math.isfinite(temperature) and low <= temperature <= high):
        raise ConfigError(f"temperature {temperature} must be 0, or from {low} to {high}.")


def pick(logits: F32, temperature: float, fraction: np.float32, top_k: int = limits.SAMPLING_TOP_K) -> int:
    """One of the tokens from logits (vocabulary,) and a random `fraction` in [0, 1). Temperature 0: the likeliest."""
    if not np.isfinite(logits).all():
        raise NonFiniteError("the model's logits are NaN or infinite; its training has diverged.")
    if temperature == 0:
        return int(logits.argmax())
    kept = np.sort(np.argsort(-logits, kind="stable")[:top_k])
    exponentials = exp((logits[kept] - logits.max()) / _f(temperature))
    cumulative = np.add.accumulate(exponentials / lane_sum(exponentials))
    beyond = np.flatnonzero(cumulative > fraction)
    # Rounding can leave the sum just below 1: then the last token that has a share of its own.
    place = beyond[0] if len(beyond) else np.flatnonzero(exponentials)[-1]
    return int(kept[place])


def generate(
    decoder: Decoder, weights: F32, prompt: Sequence[int], tokens: int, temperature: float, seed: int
) -> Iterator[int]:
    """`tokens` ids that go on from the ids of a prompt, one by one. ConfigError for bad arguments, at once."""
    check_sampling(tokens, temperature, seed)
    if not prompt:
        raise ConfigError("the prompt has no tokens; give the model something to go on.")
    return _continue(decoder, weights, list(prompt), tokens, temperature, seed)


def _continue(
    decoder: Decoder, weights: F32, context: list[int], tokens: int, temperature: float, seed: int
) -> Iterator[int]:
    fractions = random_bits(stream_key(seed, 0), tokens) * _f(2.0**-24)
    for fraction in fractions:
        context = context[-decoder.config.sequence :]
        token = pick(decoder.next_logits(weights, np.array(context)), temperature, fraction)
        context.append(token)
        yield token
