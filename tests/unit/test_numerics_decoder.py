"""The decoder of the contract: its gradient against autograd, its bits, its initial weights, sampling."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from daisychain.base.errors import ConfigError, NonFiniteError
from daisychain.numerics import DaisyAdam, layers
from daisychain.numerics.decoder import (
    Decoder,
    DecoderConfig,
    initial_weights,
    named_tensors,
    parameter_count,
    parameter_shapes,
    random_bits,
    sample_count,
    sample_windows,
    stream_key,
)
from daisychain.numerics.golden import random_numbers
from daisychain.numerics.sampling import generate, pick

CONFIG = DecoderConfig(vocabulary=50, width=12, layers=2, heads=3, sequence=7)
SAMPLES = 3


def exact_product(a, b, edges):
    return (a.astype(np.float64) @ b.astype(np.float64).T).astype(np.float32)


def exact_decoder(config=CONFIG):
    return Decoder(config, product=exact_product, relu=lambda x: np.maximum(x, np.float32(0)))


def batch(config=CONFIG, seed=0):
    tokens = np.random.Generator(np.random.PCG64(seed)).integers(0, config.vocabulary, 200)
    return sample_windows(tokens, np.array([4, 0, 9]), config.sequence)


def lively_weights(config=CONFIG):
    """Initial weights with larger embeddings and uneven gains, so that every part of the gradient counts."""
    weights = initial_weights(config, 3)
    tensors = named_tensors(config, weights)
    for place, (name, tensor) in enumerate(tensors.items()):
        if name in ("tokens", "positions"):
            tensor *= np.float32(20)
        elif tensor.ndim == 1:
            tensor += random_numbers(tensor.shape, place, 1) / np.float32(8)
    return weights


def torch_loss(config, w, ids, targets):
    """The same architecture in torch, written independently."""

    def norm(x, gain):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * gain

    batch, (t, heads) = len(ids) // config.sequence, (config.sequence, config.heads)
    x = (w["tokens"][ids] + w["positions"].repeat(batch, 1)).reshape(batch, t, -1)
    for i in range(config.layers):
        b = {name.split(".")[-1]: value for name, value in w.items() if name.startswith(f"blocks.{i}.")}
        q, k, v = (
            part.unflatten(-1, (heads, -1)).transpose(1, 2)
            for part in (norm(x, b["norm1"]) @ b["query_key_value"].T).chunk(3, -1)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + attended.transpose(1, 2).flatten(2) @ b["attention_out"].T
        x = x + F.relu(norm(x, b["norm2"]) @ b["mlp_up"].T) @ b["mlp_down"].T
    return F.cross_entropy((norm(x, w["norm"]) @ w["tokens"].T).flatten(0, 1), targets, reduction="sum")


def torch_gradient(config, weights, ids, targets):
    leaves = {
        name: torch.from_numpy(tensor.astype(np.float64)).requires_grad_()
        for name, tensor in named_tensors(config, weights).items()
    }
    loss = torch_loss(config, leaves, torch.from_numpy(ids), torch.from_numpy(targets))
    loss.backward()
    return loss.item(), {name: leaf.grad.numpy() for name, leaf in leaves.items()}


def test_with_exact_products_the_gradient_is_that_of_autograd():
    weights, (ids, targets) = lively_weights(), batch()
    loss, count, gradient = exact_decoder().loss_and_gradient(weights, ids, targets)
    wanted_loss, wanted = torch_gradient(CONFIG, weights, ids, targets)
    assert count == SAMPLES * CONFIG.sequence
    assert loss == pytest.approx(wanted_loss, rel=1e-5)
    for name, got in named_tensors(CONFIG, gradient).items():
        np.testing.assert_allclose(got, wanted[name], atol=2e-5 * np.abs(wanted[name]).max(), err_msg=name)


def test_with_the_contracts_products_it_is_near():
    weights, (ids, targets) = lively_weights(), batch()
    loss, _, gradient = Decoder(CONFIG).loss_and_gradient(weights, ids, targets)
    wanted_loss, wanted = torch_gradient(CONFIG, weights, ids, targets)
    assert loss == pytest.approx(wanted_loss, rel=0.01)
    exact = np.concatenate([tensor.ravel() for tensor in wanted.values()])
    error = np.linalg.norm(gradient - exact) / np.linalg.norm(exact)
    assert 0.001 < error < 0.08
    for name, got in named_tensors(CONFIG, gradient).items():
        cosine = (got * wanted[name]).sum() / np.linalg.norm(got) / np.linalg.norm(wanted[name])
        assert cosine > 0.96, name  # a ReLU that flips costs a gain the most


def test_the_same_bits_again_and_a_sum_over_sequences():
    weights, (ids, targets) = lively_weights(), batch()
    first, again = (Decoder(CONFIG).loss_and_gradient(weights, ids, targets) for _ in range(2))
    assert first[0] == again[0]
    assert first[2].tobytes() == again[2].tobytes()
    t = CONFIG.sequence
    alone = [
        Decoder(CONFIG).loss_and_gradient(weights, ids[i : i + t], targets[i : i + t])
        for i in range(0, SAMPLES * t, t)
    ]
    assert sum(part[0] for part in alone) == pytest.approx(first[0], rel=1e-12)
    np.testing.assert_allclose(sum(part[2] for part in alone), first[2], atol=1e-4)


def test_the_head_is_the_token_table():
    """A token that the batch never shows still gets a gradient, from the head; one that it shows gets both parts."""
    weights, (ids, targets) = lively_weights(), batch()
    _, _, gradient = Decoder(CONFIG).loss_and_gradient(weights, ids, targets)
    unseen = sorted(set(range(CONFIG.vocabulary)) - set(ids.tolist()) - set(targets.tolist()))
    rows = named_tensors(CONFIG, gradient)["tokens"]
    assert unseen
    assert (np.abs(rows[unseen]).sum(axis=1) > 0).all()
    doubled = weights.copy()
    named_tensors(CONFIG, doubled)["tokens"][unseen[0]] *= np.float32(2)
    before, after = (Decoder(CONFIG).logits(w, ids[:3]) for w in (weights, doubled))
    changed = np.flatnonzero((before != after).any(axis=0))
    assert changed.tolist() == [unseen[0]]


def test_a_later_token_never_changes_an_earlier_logit():
    weights, (ids, _) = lively_weights(), batch()
    ids = ids[: CONFIG.sequence]
    before = exact_decoder().logits(weights, ids)
    for place in range(1, len(ids)):
        other = ids.copy()
        other[place] = (other[place] + 1) % CONFIG.vocabulary
        after = exact_decoder().logits(weights, other)
        np.testing.assert_allclose(after[:place], before[:place], atol=1e-6)
        assert np.abs(after[place] - before[place]).max() > 1e-3
        shorter = exact_decoder().logits(weights, ids[:place])
        np.testing.assert_allclose(shorter, before[:place], atol=1e-6)


def test_attention_of_the_contract_sees_only_magnitudes_of_later_rows():
    """Rows of v that come later share a block, and so a scale, with the earlier ones; nothing else gets through."""
    qkv = random_numbers((9, 3 * 8), 1, 2)
    out, weights = layers.attention(qkv, 1, 2)
    qkv[5:] = -qkv[5:]
    after, after_weights = layers.attention(qkv, 1, 2)
    assert out[:5].tobytes() == after[:5].tobytes()
    assert weights[:, :, :5].tobytes() == after_weights[:, :, :5].tobytes()
    assert not np.array_equal(out[5:], after[5:])
    above = ~np.tri(9, dtype=np.bool_)
    assert (weights[..., above].view(np.uint32) == 0).all()


def test_the_next_logits_are_the_last_row():
    weights, (ids, _) = lively_weights(), batch()
    decoder = Decoder(CONFIG)
    for length in (1, 4, CONFIG.sequence):
        got, rows = decoder.next_logits(weights, ids[:length]), decoder.logits(weights, ids[:length])
        assert got.tobytes() == rows[-1].tobytes()
    for length in (0, CONFIG.sequence + 1):
        with pytest.raises(ConfigError, match="sequence, 7"):
            decoder.logits(weights, np.zeros(length, np.int64))


def test_training_lowers_the_loss():
    decoder, (ids, targets) = Decoder(CONFIG), batch()
    weights, optimizer = initial_weights(CONFIG, 0), DaisyAdam(parameter_count(CONFIG))
    losses = []
    for _ in range(30):
        loss, count, gradient = decoder.loss_and_gradient(weights, ids, targets)
        optimizer.step(weights, gradient / np.float32(count), 0.02)
        losses.append(loss / count)
    assert losses[0] > 3.8
    assert losses[-1] < losses[0] - 2.5


def test_diverged_weights_are_refused():
    weights, (ids, targets) = initial_weights(CONFIG, 0), batch()
    weights[0] = np.nan
    with pytest.raises(NonFiniteError):
        Decoder(CONFIG).loss_and_gradient(weights, np.zeros_like(ids), targets)


def test_parameters_have_their_names_and_order():
    shapes = parameter_shapes(DecoderConfig())
    assert list(shapes)[:3] == ["tokens", "positions", "blocks.0.norm1"]
    assert list(shapes)[-2:] == ["blocks.1.mlp_down", "norm"]
    assert parameter_count(DecoderConfig()) == 554_144
    flat = np.arange(parameter_count(CONFIG), dtype=np.float32)
    joined = np.concatenate([tensor.ravel() for tensor in named_tensors(CONFIG, flat).values()])
    assert joined.tobytes() == flat.tobytes()


def reference_mix(x):
    x &= 0xFFFFFFFF
    x = (x ^ x >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    x = (x ^ x >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return x ^ x >> 16


def test_initial_weights_follow_their_rule_in_integers():
    for seed in (0, 1, 2**32 - 1):
        tensors = named_tensors(CONFIG, initial_weights(CONFIG, seed))
        for place, (name, tensor) in enumerate(tensors.items()):
            if tensor.ndim == 1:
                assert (tensor == 1).all()
                continue
            key = reference_mix(reference_mix(seed + 0x9E3779B9) + place)
            bound = 0.02 * 3**0.5 if place < 2 else tensor.shape[1] ** -0.5
            for i in (0, 1, tensor.size - 1):
                bits = reference_mix(reference_mix(i + key)) >> 8
                assert tensor.flat[i] == pytest.approx((bits - 2**23) / 2**23 * bound, rel=1e-6), name
            assert np.abs(tensor).max() <= np.float32(bound) * 1.0001
            assert abs(tensor.mean()) < 4 * bound / tensor.size**0.5
    assert initial_weights(CONFIG, 0).tobytes() != initial_weights(CONFIG, 1).tobytes()
    for seed in (-1, 2**32):
        with pytest.raises(ConfigError, match="seed"):
            initial_weights(CONFIG, seed)


@pytest.mark.parametrize(
    "wrong",
    [
        {"vocabulary": 0}, {"vocabulary": 16_513}, {"width": 129}, {"width": 13}, {"layers": 9}, {"heads": 0},
        {"heads": 24}, {"sequence": 129}, {"sequence": 1.5}, {"layers": True}, {"width": "12"},
    ],
)  # fmt: skip
def test_a_config_outside_the_limits_is_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        replace(CONFIG, **wrong)


def test_samples_are_windows_side_by_side():
    text = np.arange(23, dtype=np.uint16)
    assert [sample_count(text[:n], 5) for n in (0, 1, 5, 6, 10, 11, 23)] == [0, 0, 0, 1, 1, 2, 4]
    ids, targets = sample_windows(text, np.array([3, 0]), 5)
    assert ids.tolist() == [15, 16, 17, 18, 19, 0, 1, 2, 3, 4]
    assert targets.tolist() == [16, 17, 18, 19, 20, 1, 2, 3, 4, 5]


def test_picked_tokens_are_as_frequent_as_their_probability():
    logits = np.log(np.array([0.5, 0.1, 0.25, 0.15], np.float32))
    fractions = random_bits(stream_key(1, 0), 4000) * np.float32(2.0**-24)
    found = np.bincount([pick(logits, 1.0, fraction) for fraction in fractions], minlength=4) / 4000
    np.testing.assert_allclose(found, [0.5, 0.1, 0.25, 0.15], atol=0.03)
    best = {pick(logits, 1.0, fraction, 2) for fraction in fractions[:200]}
    assert best == {0, 2}


def test_ties_go_to_the_lower_index():
    logits = np.array([1, 3, 3, -3, 3], np.float32)
    assert pick(logits, 0, np.float32(0.9)) == 1
    assert pick(logits, 1.0, np.float32(0.999), 1) == 1
    assert pick(logits, 1.0, np.float32(0.999), 2) == 2
    largest = np.nextafter(np.float32(1), np.float32(0))
    assert pick(logits, 1.0, largest, 5) == 4
    assert pick(np.array([0, -500, 0, -900], np.float32), 1.0, largest, 4) in (0, 2)
    with pytest.raises(NonFiniteError):
        pick(np.array([0, np.inf], np.float32), 1.0, largest)


def test_generation_slides_its_window_and_repeats_itself():
    decoder, weights = Decoder(CONFIG), lively_weights()
    prompt = list(range(20))
    text = list(generate(decoder, weights, prompt, 12, 0.9, 5))
    assert text == list(generate(decoder, weights, prompt[-CONFIG.sequence :], 12, 0.9, 5))
    assert text != list(generate(decoder, weights, prompt, 12, 0.9, 6))
    likeliest = next(generate(decoder, weights, prompt, 1, 0, 0))
    assert likeliest == decoder.next_logits(weights, np.array(prompt[-CONFIG.sequence :])).argmax()
    assert list(generate(decoder, weights, prompt, 0, 0, 0)) == []


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("prompt", ([], 1, 1.0, 0)),
        ("tokens", ([1], -1, 1.0, 0)),
        ("tokens", ([1], 10_001, 1.0, 0)),
        ("temperature", ([1], 1, float("nan"), 0)),
        ("temperature", ([1], 1, -0.5, 0)),
        ("temperature", ([1], 1, 0.001, 0)),
        ("seed", ([1], 1, 1.0, 2**32)),
    ],
)
def test_what_cannot_be_generated_is_refused_at_once(name, arguments):
    with pytest.raises(ConfigError, match=name):
        generate(Decoder(CONFIG), initial_weights(CONFIG, 0), *arguments)
