"""Pinned exp, log, softmax, cross-entropy; DaisyAdam; sample order; state hash."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from daisychain.base.errors import ConfigError, NonFiniteError
from daisychain.numerics import (
    DaisyAdam,
    first_difference,
    make_optimizer,
    roster_mean,
    sample_ids,
    state_hash,
    tensor_digest,
)
from daisychain.numerics import functions as f
from daisychain.numerics.golden import decode
from daisychain.numerics.vectors import render

VECTORS = Path(__file__).parents[2] / "vectors"


def ulps(got, exact):
    return (np.abs(got - exact) / np.spacing(np.abs(exact).astype(np.float32))).max()


def test_golden_vectors_in_the_repository_are_those_of_the_contract():
    for name, contents in render().items():
        assert (VECTORS / name).read_bytes() == contents, f"{name}: run python -m daisychain.numerics.vectors"


def test_vectors_decode_to_what_was_encoded():
    blocks = json.loads((VECTORS / "blocks.json").read_text())["blocks"]
    assert decode(blocks[0]["a"]).dtype == np.float32
    assert decode(blocks[0]["codes_a"]).shape == decode(blocks[0]["a"]).shape


def test_exp_is_within_two_ulp_and_never_subnormal():
    x = np.linspace(-87, 88, 500_001).astype(np.float32)
    assert ulps(f.exp(x), np.exp(x.astype(np.float64))) < 2
    assert f.exp(np.array([-87.1, -1e30, -np.inf], np.float32)).tolist() == [0, 0, 0]
    assert np.isinf(f.exp(np.array([88.1, np.inf], np.float32))).all()
    assert f.exp(np.zeros(1, np.float32))[0] == 1


def test_log_is_within_two_ulp_and_refuses_what_has_none():
    x = np.concatenate([np.exp(np.linspace(-87, 88, 300_001)), np.linspace(0.5, 2, 300_001)]).astype(
        np.float32
    )
    x = x[x != 1]
    assert ulps(f.log(x), np.log(x.astype(np.float64))) < 2
    assert f.log(np.ones(1, np.float32))[0] == 0
    for bad in (0.0, -1.0, np.nan, np.inf, 1e-40):
        with pytest.raises(NonFiniteError):
            f.log(np.array([bad], np.float32))


def test_cross_entropy_is_torchs_to_rounding():
    logits = np.random.Generator(np.random.PCG64(0)).standard_normal((20, 300)).astype(np.float32) * 5
    targets = np.arange(20) * 7
    loss, gradient = f.cross_entropy(logits, targets)
    t = torch.from_numpy(logits).requires_grad_()
    reference = torch.nn.functional.cross_entropy(t, torch.from_numpy(targets), reduction="none")
    reference.sum().backward()
    np.testing.assert_allclose(loss, reference.detach(), rtol=1e-5)
    np.testing.assert_allclose(gradient, t.grad, atol=1e-6)
    np.testing.assert_allclose(f.softmax(logits).sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(f.log_softmax(logits), np.log(f.softmax(logits)), atol=1e-4)


def test_softmax_refuses_non_finite_logits():
    with pytest.raises(NonFiniteError, match="1 of 4 logits"):
        f.softmax(np.array([[1, np.nan, 0, 0]], np.float32))


def test_lane_sum_has_its_pinned_order():
    x = np.random.Generator(np.random.PCG64(4)).standard_normal(100).astype(np.float32)
    lanes = [np.float32(0)] * 16
    for i, value in enumerate(x):
        lanes[i % 16] += value
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [lanes[i] + lanes[i + half] for i in range(half)]
    assert f.lane_sum(x) == lanes[0]


def test_daisy_adam_is_adamw_to_rounding():
    generator = np.random.Generator(np.random.PCG64(5))
    start = generator.standard_normal(50).astype(np.float32)
    parameter = torch.nn.Parameter(torch.from_numpy(start.copy()))
    reference = torch.optim.AdamW([parameter], lr=0.01, weight_decay=0.1)
    weights, optimizer = start.copy(), DaisyAdam(50, weight_decay=0.1)
    for _ in range(20):
        gradient = generator.standard_normal(50).astype(np.float32)
        parameter.grad = torch.from_numpy(gradient)
        reference.step()
        optimizer.step(weights, gradient, 0.01)
    np.testing.assert_allclose(weights, parameter.detach(), atol=1e-6)


def test_optimizer_state_goes_through_a_checkpoint():
    first, second = make_optimizer("adam", 3), make_optimizer("adam", 3)
    w1, gradient = np.ones(3, np.float32), np.array([1, -2, 3], np.float32)
    first.step(w1, gradient, 0.1)
    second.load(first.arrays(), first.numbers())
    w2 = w1.copy()
    first.step(w1, gradient, 0.1)
    second.step(w2, gradient, 0.1)
    assert w1.tobytes() == w2.tobytes()
    with pytest.raises(ConfigError, match="'rmsprop'"):
        make_optimizer("rmsprop", 3)


def test_roster_mean_weighs_samples_not_nodes():
    gradients = [np.array([5.0], np.float32), np.array([54.0], np.float32)]
    assert roster_mean(gradients, [5, 27])[0] == np.float32(59 / 32)
    with pytest.raises(ConfigError):
        roster_mean(gradients, [0, 0])


@pytest.mark.parametrize("count", [1, 2, 3, 17, 1437, 65_537])
def test_each_sample_once_an_epoch_in_another_order(count):
    orders = [
        sample_ids(np.arange(count) + epoch * count, count, seed) for seed in (0, 1) for epoch in (0, 1)
    ]
    for order in orders:
        assert np.array_equal(np.sort(order), np.arange(count))
    if count > 100:
        for i in range(4):
            for j in range(i):
                assert (orders[i] == orders[j]).mean() < 0.05


def test_an_order_is_spread_out():
    first_tenth = sample_ids(np.arange(1000), 10_000, 3)
    assert 4500 < first_tenth.mean() < 5500
    assert len(np.unique(first_tenth // 1000)) == 10


def test_state_hash_sees_everything():
    state = {"a": np.zeros((2, 3), np.float32), "b": np.arange(3)}
    base = state_hash(state, 5)
    assert state_hash(dict(reversed(state.items())), 5) == base
    variants = [
        (state, 6),
        ({**state, "a": np.zeros((3, 2), np.float32)}, 5),
        ({**state, "a": np.full((2, 3), -0.0, np.float32)}, 5),
        ({"a": state["a"], "c": state["b"]}, 5),
        ({**state, "b": np.array(3)}, 5),
        ({**state, "b": np.array([3])}, 5),
        ({**state, "b": state["b"].astype(np.int32)}, 5),
    ]
    hashes = [state_hash(s, step) for s, step in variants]
    assert len({base, *hashes}) == len(hashes) + 1


def digests(state):
    return {name: tensor_digest(value) for name, value in state.items()}


def test_first_difference_names_the_tensor():
    mine = {"a": np.zeros(2), "b": np.ones(2)}
    other = digests(mine)
    assert first_difference(digests(mine), other) is None
    assert first_difference(digests({**mine, "b": np.array([1.0, 1.0000001])}), other) == "b"
    assert first_difference(digests(mine), {"a": other["a"]}) == "b"
