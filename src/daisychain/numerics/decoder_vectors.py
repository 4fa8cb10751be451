"""Golden vectors of the decoder: each operation, a whole small model, initial weights, sampling."""

from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from daisychain.numerics import layers
from daisychain.numerics.blocks import F32, block_relu
from daisychain.numerics.decoder import (
    Decoder,
    DecoderConfig,
    initial_weights,
    named_tensors,
    parameter_count,
    random_bits,
    sample_count,
    sample_windows,
    stream_key,
)
from daisychain.numerics.golden import Array, encode, random_numbers
from daisychain.numerics.optimizer import DaisyAdam
from daisychain.numerics.roster import roster_mean, sample_ids
from daisychain.numerics.sampling import generate, pick
from daisychain.numerics.state_hash import state_hash, tensor_digest

SMALL = DecoderConfig(vocabulary=300, width=20, layers=2, heads=4, sequence=12)
TRAINING = {"seed": 7, "samples": 3, "roster": 2, "rate_thousandths": 10}
STEPS = 3


def _encoded(numbers: dict[str, int], arrays: dict[str, Array]) -> dict[str, Any]:
    return {**numbers, **{name: encode(array) for name, array in arrays.items()}}


def _integers(count: int, below: int, seed: int) -> npt.NDArray[np.uint16]:
    return np.random.Generator(np.random.PCG64(seed)).integers(0, below, count).astype(np.uint16)


def _embed() -> dict[str, Any]:
    ids = np.array([4, 1, 4, 4, 0, 1, 6, 4], np.uint16)
    tokens, positions, g = (random_numbers((n, 5), seed) for seed, n in ((20, 7), (21, 4), (22, 8)))
    arrays: dict[str, Array] = {"ids": ids, "tokens": tokens, "positions": positions, "g": g}
    d_tokens, d_positions = random_numbers((7, 5), 23), np.zeros_like(positions)
    arrays["d_tokens_before"] = d_tokens.copy()
    layers.embed_backward(ids, g, d_tokens, d_positions)
    arrays |= {"out": layers.embed(ids, tokens, positions), "d_tokens": d_tokens, "d_positions": d_positions}
    return _encoded({}, arrays)


def _norm(rows: int, width: int) -> dict[str, Any]:
    x, g, gain = (
        random_numbers((rows, width), 30),
        random_numbers((rows, width), 31),
        random_numbers((width,), 32),
    )
    x[0] = 0.0
    out, inverse = layers.norm(x, gain)
    dx, d_gain = layers.norm_backward(g, x, gain, inverse)
    return _encoded(
        {}, {"x": x, "gain": gain, "out": out, "inverse": inverse, "g": g, "dx": dx, "d_gain": d_gain}
    )


def _linear(rows: int, inner: int, outer: int, period: int) -> dict[str, Any]:
    x, w, g = (
        random_numbers(s, 40 + i) for i, s in enumerate(((rows, inner), (outer, inner), (rows, outer)))
    )
    dx, dw = layers.linear_backward(g, x, w, period)
    return _encoded(
        {"period": period}, {"x": x, "w": w, "out": layers.linear(x, w), "g": g, "dx": dx, "dw": dw}
    )


def _relu() -> dict[str, Any]:
    x, g = random_numbers((3, 150), 50), random_numbers((3, 150), 51)
    out = block_relu(x)
    return _encoded({}, {"x": x, "out": out, "g": g, "dx": layers.relu_backward(g, out)})


def _attention(samples: int, sequence: int, heads: int, size: int) -> dict[str, Any]:
    rows, width = samples * sequence, heads * size
    qkv, g = random_numbers((rows, 3 * width), 60, 2), random_numbers((rows, width), 61, 2)
    out, weights = layers.attention(qkv, samples, heads)
    dqkv = layers.attention_backward(g, qkv, weights)
    return _encoded(
        {"samples": samples, "heads": heads},
        {"qkv": qkv, "weights": weights, "out": out, "g": g, "dqkv": dqkv},
    )


def _head_loss() -> dict[str, Any]:
    rows, width, vocabulary, sequence = 15, 7, 141, 5
    x, tokens = random_numbers((rows, width), 70, 2), random_numbers((vocabulary, width), 71, 1)
    targets = _integers(rows, vocabulary, 72)
    losses, dx, d_tokens = layers.head_loss(x, tokens, targets, sequence)
    arrays: dict[str, Array] = {
        "x": x,
        "tokens": tokens,
        "targets": targets,
        "losses": losses,
        "dx": dx,
        "d_tokens": d_tokens,
    }
    return _encoded({"sequence": sequence}, arrays)


def _hash(config: DecoderConfig, weights: F32, step: int) -> str:
    return state_hash(named_tensors(config, weights), step).hex()


def _model() -> dict[str, Any]:
    """The first gradient of a device, whole, and steps of a roster of two, which share the batch of a step."""
    decoder, text = Decoder(SMALL), _integers(200, SMALL.vocabulary, 80)
    text[::3] = 17
    weights, optimizer = initial_weights(SMALL, TRAINING["seed"]), DaisyAdam(parameter_count(SMALL))
    out: dict[str, Any] = {"config": asdict(SMALL), **TRAINING, "text": encode(text)}
    out["state_hash_at_step_0"] = _hash(SMALL, weights, 0)
    count, samples, roster = sample_count(text, SMALL.sequence), TRAINING["samples"], TRAINING["roster"]
    steps = []
    for step in range(STEPS):
        gradients, counts, losses = [], [], []
        for place in range(roster):
            start = (step * roster + place) * samples
            chosen = sample_ids(np.arange(start, start + samples), count, TRAINING["seed"])
            ids, targets = sample_windows(text, chosen, SMALL.sequence)
            loss, tokens, gradient = decoder.loss_and_gradient(weights, ids, targets)
            gradients.append(gradient)
            counts.append(tokens)
            losses.append(loss)
            if step == place == 0:
                out["first"] = {
                    **_encoded({}, {"ids": ids, "targets": targets, "gradient": gradient}),
                    "loss_sum": loss,
                    "gradient_digest": tensor_digest(gradient).hex(),
                }
        optimizer.step(weights, roster_mean(gradients, counts), TRAINING["rate_thousandths"] / 1000)
        steps.append({"loss_sums": losses, "state_hash": _hash(SMALL, weights, step + 1)})
    prompt, asked = [17, 250, 3], {"tokens": 20, "temperature": 0.8, "seed": 5}
    generated = list(generate(decoder, weights, prompt, 20, 0.8, 5))
    return {**out, "steps": steps, "generated": {**asked, "prompt": prompt, "ids": generated}}


def _default() -> dict[str, Any]:
    """The default config, whose head sums over 129 blocks: initial weights, and the gradient of two samples."""
    config, seed = DecoderConfig(), 4_000_000_000
    weights = initial_weights(config, seed)
    ids, targets = (_integers(2 * config.sequence, config.vocabulary, seed) for seed in (84, 85))
    loss, _, gradient = Decoder(config).loss_and_gradient(weights, ids, targets)
    return {
        "config": asdict(config),
        "seed": seed,
        "state_hash_at_step_0": _hash(config, weights, 0),
        **_encoded({"samples": 2}, {"ids": ids, "targets": targets}),
        "loss_sum": loss,
        "gradient_digest": tensor_digest(gradient).hex(),
    }


def _sampling() -> dict[str, Any]:
    logits = random_numbers((200,), 90, 2)
    logits[::20] = logits.max()  # ties
    fractions = random_bits(stream_key(9, 0), 24) * np.float32(2.0**-24)
    cases = [
        {
            "temperature": temperature,
            "top_k": top_k,
            "tokens": [pick(logits, temperature, fraction, top_k) for fraction in fractions],
        }
        for temperature, top_k in ((0, 40), (0.01, 200), (0.8, 40), (1.0, 5), (1.5, 200), (100.0, 200))
    ]
    last = np.nextafter(np.float32(1), np.float32(0))
    return {
        "logits": encode(logits),
        "seed": 9,
        "fractions": encode(fractions),
        "cases": cases,
        "largest_fraction": {"temperature": 100.0, "top_k": 200, "token": pick(logits, 100.0, last, 200)},
    }


def decoder() -> dict[str, Any]:
    """Everything about the decoder that must be the same bits everywhere."""
    return {
        "embed": _embed(),
        "norm": [_norm(4, 20), _norm(3, 37)],
        "linear": [_linear(6, 130, 5, 3), _linear(1, 3, 2, 1), _linear(9, 20, 140, 9)],
        "relu": _relu(),
        "attention": [_attention(2, 11, 3, 5), _attention(1, 1, 1, 4), _attention(1, 16, 2, 8)],
        "head_loss": _head_loss(),
        "default": _default(),
        "model": _model(),
        "sampling": _sampling(),
    }
