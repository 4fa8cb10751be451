"""Each part of SpikeWhale against a plain written-out reference: explicit loops over Python and NumPy numbers."""

import math
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from daisychain.nn.spikewhale import PARTS, SpikeWhale, SpikeWhaleConfig
from daisychain.nn.spikewhale.attention import Attention, turns
from daisychain.nn.spikewhale.extras import MultiToken, Refinement
from daisychain.nn.spikewhale.hashing import Engram, HashLookup, hash_tokens
from daisychain.nn.spikewhale.head import head_loss
from daisychain.nn.spikewhale.layers import RMSNorm, linear, projection
from daisychain.nn.spikewhale.streams import HyperConnection, sinkhorn

SIZES = {
    "vocabulary": 50,
    "width": 12,
    "layers": 2,
    "heads": 3,
    "head_width": 8,
    "rotary_width": 2,
    "sequence": 10,
    "mlp_width": 20,
    "rank": 4,
    "engram_entries": 31,
    "hash_entries": 13,
    "streams": 3,
}
PRIME = 2**31 - 1


def config(*off, **changed):
    return SpikeWhaleConfig(**{**SIZES, "arithmetic": "float", **changed}).without(*off)


def shaken(module):
    """The same module with every weight drawn anew, so that none is 0 or 1 by its start."""
    torch.manual_seed(7)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module


def numpy(tensor):
    return tensor.detach().double().numpy()


def close(found, wanted):
    np.testing.assert_allclose(numpy(found), wanted, rtol=2e-5, atol=2e-5)


def rms(row, gain):
    root = math.sqrt(sum(float(x) ** 2 for x in row) / len(row) + 1e-5)
    return np.array([float(x) / root * float(g) for x, g in zip(row, gain, strict=True)])


@pytest.mark.parametrize("training", [True, False])
def test_the_norm(training):
    norm = shaken(RMSNorm(12)).train(training)
    x = torch.randn(2, 5, 12)
    wanted = [[rms(row, numpy(norm.gain)) for row in rows] for rows in numpy(x)]
    y = norm(x)
    assert y.dtype == torch.float32
    close(y, np.array(wanted))


def test_low_rank_is_the_product_of_two_thin_matrices():
    x = torch.randn(2, 3, 12)
    thin = shaken(projection(config(), 12, 24))
    first, second = (numpy(p) for p in thin.parameters())
    assert (first.shape, second.shape) == ((4, 12), (24, 4))
    close(thin(x), numpy(x) @ (second @ first).T)
    full = shaken(projection(config("low_rank"), 12, 24))
    (weight,) = full.parameters()
    close(full(x), numpy(x) @ numpy(weight).T)


def turned(vector, position, width):
    """The first `width` numbers turned by their angles, the others as they are."""
    out, half = vector.copy(), width // 2
    for i in range(half):
        angle = position * 10_000.0 ** (-2 * i / width)
        a, b = vector[i], vector[i + half]
        out[i] = a * math.cos(angle) - b * math.sin(angle)
        out[i + half] = a * math.sin(angle) + b * math.cos(angle)
    return out


def attention_reference(layer, settings, x):
    """One sequence (t, width), a head, a query and a key at a time."""
    size, heads = settings.head_width, settings.heads
    rotary = settings.rotary_width if settings.has("position_free") else size
    kv_heads = 1 if settings.has("shared_key_value") else heads
    weights = {name: numpy(p) for name, p in layer.named_parameters()}

    def applied(name, rows):
        if f"{name}.weight" in weights:
            return rows @ weights[f"{name}.weight"].T
        return (rows @ weights[f"{name}.0.weight"].T) @ weights[f"{name}.1.weight"].T

    def normed(vector, gain):
        return rms(vector, weights[gain]) if settings.has("qk_norm") else vector

    queries, both = applied("query", x), applied("key_value", x)
    out = np.zeros((len(x), heads * size))
    for h in range(heads):
        k = h if kv_heads > 1 else 0
        for i in range(len(x)):
            query = turned(normed(queries[i, h * size : (h + 1) * size], "query_norm.gain"), i, rotary)
            scores, values = [], []
            for j in range(i + 1):
                key = turned(normed(both[j, k * size : (k + 1) * size], "key_norm.gain"), j, rotary)
                scores.append(float(query @ key) / math.sqrt(size))
                values.append(both[j, (kv_heads + k) * size : (kv_heads + k + 1) * size])
            likelihood = np.exp(np.array(scores) - max(scores))
            out[i, h * size : (h + 1) * size] = likelihood / likelihood.sum() @ np.array(values)
    return applied("out", out)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("off", [(), ("position_free",), ("shared_key_value",), ("qk_norm",), ("low_rank",)])
def test_attention(off, training):
    settings = config(*off)
    layer = shaken(Attention(settings, 0)).train(training)
    x = torch.randn(2, 7, 12)
    rotary = settings.rotary_width if settings.has("position_free") else settings.head_width
    found = layer(x, turns(7, rotary), None)
    close(found, np.array([attention_reference(layer, settings, rows) for rows in numpy(x)]))


def test_position_free_numbers_do_not_know_where_they_stand():
    """With nothing rotary, the order of what was seen means nothing to the last token."""
    settings = config("qk_norm")
    layer = shaken(Attention(settings, 0))
    x = torch.randn(1, 6, 12)
    swapped = x[:, [2, 0, 4, 1, 3, 5]]
    still = turns(6, 2)
    still[0], still[1] = 1.0, 0.0
    torch.testing.assert_close(layer(x, still, None)[:, -1], layer(swapped, still, None)[:, -1])
    moving = turns(6, 2)
    assert not torch.allclose(layer(x, moving, None)[:, -1], layer(swapped, moving, None)[:, -1], atol=1e-3)


def hashed(tokens, multiplier, entries):
    value = 0
    for token in tokens:
        value = (value + token + 1) * multiplier % PRIME
    return value % entries


def test_the_hash_is_the_pinned_one_and_fits_int64():
    tokens = [[-1, 0, 16_511, 2**20 - 1], [5, 16_000, 2**20 - 1, 2**20 - 1], [2**20 - 1, 7, 7, 2**20 - 1]]
    columns = [torch.tensor(row) for row in tokens]
    for multiplier in (1_103_515_245, 1_597_334_677, 747_796_405, 1_812_433_253):
        wanted = [hashed(gram, multiplier, 4_096) for gram in zip(*tokens, strict=True)]
        assert hash_tokens(columns, multiplier, 4_096).tolist() == wanted
    assert hash_tokens(columns, 747_796_405, 4_096).tolist() == [393, 2_851, 973, 3_095]  # as models learned


def test_hash_lookup():
    lookup = shaken(HashLookup(config()))
    first, second = (numpy(p) for p in lookup.parameters())
    ids = torch.randint(0, 50, (2, 9))
    wanted = [
        [
            first[hashed([token], 1_103_515_245, 13)] + second[hashed([token], 1_597_334_677, 13)]
            for token in row
        ]
        for row in ids.tolist()
    ]
    close(lookup(ids), np.array(wanted))


def test_no_two_of_many_tokens_share_both_entries():
    ids = torch.arange(16_512)
    pairs = [hash_tokens([ids], m, 1_024) for m in (1_103_515_245, 1_597_334_677)]
    assert len(torch.unique(torch.stack(pairs), dim=1).T) > 16_512 * 0.98
    for entries in pairs:
        assert int(torch.bincount(entries, minlength=1_024).max()) < 60  # 16 on the average


def test_engram():
    engram = shaken(Engram(config()))
    weights = {name: numpy(p) for name, p in engram.named_parameters()}
    x, ids = torch.randn(1, 6, 12), torch.randint(0, 50, (1, 6))
    history = torch.cat([torch.full((1, 2), -1), ids], 1)
    padded = [-1, -1, *ids[0].tolist()]
    for t, row in enumerate(numpy(x)[0]):
        gram = padded[t : t + 3]
        found = weights["table.weight"][hashed(gram[1:], 747_796_405, 31)]
        found = found + weights["table.weight"][hashed(gram, 1_812_433_253, 31)]
        value = weights["value.weight"] @ rms(found, weights["norm.gain"])
        gate = 1 / (1 + np.exp(-(weights["gate.weight"] @ row)))
        close(engram(x, history)[0, t], gate * value)


def test_sinkhorn_makes_rows_and_columns_sum_to_one():
    torch.manual_seed(3)
    logits = torch.randn(4, 4)
    routes = np.exp(numpy(logits) - float(logits.max()))
    for _ in range(5):
        for column in range(4):
            routes[:, column] /= sum(routes[:, column])
        for row in range(4):
            routes[row] /= sum(routes[row])
    close(sinkhorn(logits), routes)
    np.testing.assert_allclose(routes.sum(0), 1, atol=0.02)
    np.testing.assert_allclose(routes.sum(1), 1, atol=1e-12)
    far = sinkhorn(1_000 * logits)
    assert bool(((far >= 0) & (far <= 1)).all())


def test_hyper_connections():
    made = shaken(HyperConnection(3, 1))
    residual, y = torch.randn(3, 2, 4, 12), torch.randn(2, 4, 12)
    routes, reads, writes = numpy(sinkhorn(made.routes)), numpy(made.reads), numpy(made.writes)
    streams = numpy(residual)
    close(made.read(residual), sum(reads[j] * streams[j] for j in range(3)))
    wanted = [sum(routes[i, j] * streams[j] for j in range(3)) + writes[i] * numpy(y) for i in range(3)]
    close(made.write(residual, y), np.array(wanted))


def test_refinement_begins_as_nothing_and_is_a_gated_mlp():
    refinement = Refinement(config())
    x = torch.randn(2, 4, 12)
    assert torch.equal(refinement(x), x)
    weights = {name: numpy(p) for name, p in shaken(refinement).named_parameters()}
    for found, row in zip(refinement(x).flatten(0, 1), numpy(x).reshape(-1, 12), strict=True):
        hidden = np.maximum(weights["mlp.up.weight"] @ rms(row, weights["norm.gain"]), 0)
        close(found, row + weights["gate"] * (weights["mlp.down.weight"] @ hidden))


def test_multi_token():
    head = shaken(MultiToken(config()))
    weights = {name: numpy(p) for name, p in head.named_parameters()}
    hidden, following = torch.randn(1, 5, 12), torch.randn(1, 5, 12)
    for t in range(5):
        pair = [
            rms(numpy(hidden)[0, t], weights["hidden_norm.gain"]),
            rms(numpy(following)[0, t], weights["token_norm.gain"]),
        ]
        x = weights["join.weight"] @ np.concatenate(pair)
        inner = np.maximum(weights["mlp.up.weight"] @ rms(x, weights["mlp_norm.gain"]), 0)
        close(
            head(hidden, following)[0, t],
            rms(x + weights["mlp.down.weight"] @ inner, weights["norm.gain"]),
        )


@pytest.mark.parametrize("arithmetic", ["float", "int8"])
@pytest.mark.parametrize(("samples", "length", "rows"), [(3, 5, 10), (2, 300, 128), (1, 1, 4)])
def test_the_heads_loss_and_gradient_in_parts_are_those_of_all_logits_at_once(
    samples, length, rows, arithmetic
):
    torch.manual_seed(5)
    head = linear(config(arithmetic=arithmetic), 12, 50)
    targets = torch.randint(0, 50, (samples, length))
    answers = []
    for whole in (False, True):
        head.zero_grad()
        x = torch.randn(samples, length, 12, generator=torch.Generator().manual_seed(1), requires_grad=True)
        if whole:
            loss = F.cross_entropy(head(x).flatten(0, 1), targets.flatten(), reduction="sum")
        else:
            loss = head_loss(head, x, targets, rows)
        (2.0 * loss).backward()
        answers.append((loss.detach(), x.grad, head.weight.grad.clone()))
    for parts, at_once in zip(*answers, strict=True):
        # A gradient of 8 bits may differ by a code where two softmaxes differ in the last bit.
        atol = 1e-4 if arithmetic == "float" else 0.02 * float(at_once.abs().max())
        torch.testing.assert_close(parts, at_once, rtol=1e-5, atol=atol)


def test_the_heads_loss_survives_logits_that_float32_cannot_exponentiate():
    head = linear(config(), 12, 50)
    torch.nn.init.constant_(head.weight, 0.0)
    head.weight.data[3] = 100.0
    x = torch.full((1, 1, 12), 10.0)
    losses = [head_loss(head, x, torch.tensor([[target]])).item() for target in (3, 4)]
    assert losses == [0.0, 12_000.0]


def whole_reference(model, ids):
    """The logits of the whole model: its parts, each tested above, put together by hand."""
    streams = [model.tokens(ids) + model.lookup(ids)] * model.config.streams

    def speak(connection, norm, layer):
        y = layer(norm(sum(read * stream for read, stream in zip(connection.reads, streams, strict=True))))
        streams[:] = [
            sum(route * stream for route, stream in zip(routes, streams, strict=True)) + write * y
            for routes, write in zip(sinkhorn(connection.routes), connection.writes, strict=True)
        ]

    for number, block in enumerate(model.blocks):
        if number == min(1, len(model.blocks) - 1):
            history = torch.cat([torch.full((len(ids), 2), -1), ids], 1)
            speak(model.engram_connection, model.engram_norm, partial(model.engram, history=history))
        attention = partial(block.attention, turned=model.turned[:, : ids.shape[1]], cache=None)
        speak(block.attention_connection, block.attention_norm, attention)
        speak(block.mlp_connection, block.mlp_norm, block.mlp)
    return model.norm(model.refinement(sum(streams) / len(streams))) @ model.tokens.weight.T


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_whole_model(layers):
    model = shaken(SpikeWhale(config(layers=layers)))
    ids = torch.randint(0, 50, (2, 9))
    close(model(ids), numpy(whole_reference(model, ids)))


def test_hyper_connections_begin_by_reading_one_stream_each_in_turn():
    model = SpikeWhale(config())
    places = [(b.attention_connection, b.mlp_connection) for b in model.blocks]
    for place, made in enumerate(connection for pair in places for connection in pair):
        assert made.reads.tolist() == [float(stream == place % 3) for stream in range(3)]
        assert made.writes.tolist() == [1.0] * 3
        assert float(sinkhorn(made.routes.detach()).diagonal().min()) > 0.9


def test_every_part_is_tested_here():
    covered = {
        "hash_lookup",
        "engram",
        "hyper_connections",
        "low_rank",
        "position_free",
        "shared_key_value",
        "qk_norm",
        "refinement",
        "multi_token",
    }
    assert set(PARTS) == covered
