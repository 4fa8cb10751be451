"""Golden inputs and outputs of the contract: `python -m daisychain.numerics.vectors [folder]` writes them.

One JSON file a rule, with arrays as `golden` writes them. Every implementation must give these bits.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from daisychain.base import limits
from daisychain.base.files import write_atomic
from daisychain.numerics import functions
from daisychain.numerics.blocks import F32, MAGNITUDE_LIMIT, block_edges, block_relu, quantise
from daisychain.numerics.decoder_vectors import decoder
from daisychain.numerics.elementwise import relu, requantise
from daisychain.numerics.golden import Array, encode, random_numbers
from daisychain.numerics.optimizer import DaisyAdam, DaisySGD
from daisychain.numerics.product import block_product, integer_product, triple_product
from daisychain.numerics.roster import roster_mean, sample_ids
from daisychain.numerics.state_hash import state_hash

_f = np.float32


def edge_values() -> F32:
    """Numbers at which roundings go wrong: ties, neighbours, ends of range, subnormals, both zeros."""
    positive = [
        0.0,
        1.0,
        0.5,
        1.5,
        126.5,
        127.0,
        127.49999,
        127.5,
        128.0,
        2.0**-149,
        2.0**-127,
        2.0**-126,
        2.0**-67,
    ]
    positive += [
        2.0**24 - 1,
        2.0**24,
        2.0**24 + 2,
        2.0**-60,
        2.0**-61 * 127.5,
        float(np.nextafter(_f(127.5), _f(0))),
    ]
    positive += [float(np.nextafter(MAGNITUDE_LIMIT, _f(0))), 3.0e-39, 1e-30, 1e15]
    return np.array([sign * x for x in positive for sign in (1, -1)], _f)


def _matrices() -> list[tuple[str, F32, F32, int | None]]:
    """Pairs to multiply: (m, K), (n, K), and the period at which blocks restart."""
    cases: list[tuple[str, F32, F32, int | None]] = [
        (f"random K={k}", random_numbers((2, k), k), random_numbers((3, k), k + 1), None)
        for k in (1, 2, 127, 128, 129, 256, 257)
    ]
    full = np.full((1, 256), 127, _f)
    mixed = np.where(np.arange(256) % 3 == 0, _f(-127), _f(127))[None]
    spike = random_numbers((2, 130), 9)
    spike[0, 64], spike[1, 129] = 3e4, -3e4
    ties = (np.arange(-126, 127, dtype=_f) + _f(0.5))[None]
    edge = edge_values()
    cases += [
        ("all 127", full, full, None),
        ("mixed signs", full, mixed, None),
        ("spikes", spike, spike[::-1].copy(), None),
        ("ties", ties, ties[:, ::-1].copy(), None),
        ("edge values, each a block", edge[None], edge[None, ::-1].copy(), 1),
        ("edge values together", edge[None], edge[None], None),
        ("both zeros", np.array([[0.0, -0.0, -0.0]], _f), np.array([[-1.0, 2.0, -0.0]], _f), None),
        ("restarting blocks", random_numbers((2, 300), 5), random_numbers((2, 300), 6), 100),
    ]
    return cases


def _blocks() -> list[dict[str, Any]]:
    out = []
    for name, a, b, period in _matrices():
        edges = block_edges(a.shape[1], period)
        qa, qb = quantise(a, edges), quantise(b, edges)
        arrays: dict[str, Array] = {
            "a": a,
            "b": b,
            "edges": edges.astype(np.int32),
            "codes_a": qa.codes,
            "exponents_a": qa.exponents,
            "codes_b": qb.codes,
            "exponents_b": qb.exponents,
            "product": block_product(qa, qb),
            "triple_product": triple_product(a, b, edges),
            "relu_a": block_relu(a),
        }
        out.append({"name": name, **{key: encode(value) for key, value in arrays.items()}})
    return out


def _refused() -> list[dict[str, Any]]:
    values = {"nan": np.nan, "infinity": np.inf, "minus infinity": -np.inf}
    cases = [
        {"name": name, "error": "NonFiniteError", "x": encode(np.array([[1, v]], _f))}
        for name, v in values.items()
    ]
    return [
        *cases,
        {"name": "too large", "error": "BlockRangeError", "x": encode(np.array([[1, MAGNITUDE_LIMIT]], _f))},
        {"name": "K too long", "error": "AccumulatorBoundError", "length": limits.ACCUMULATOR_MAX_K + 1},
    ]


def _units() -> dict[str, Any]:
    """requantise as the thresholds where its output steps, which say it whole; products of extreme codes."""
    x = np.arange(-32768, 32768, dtype=np.int32).astype(np.int16)
    steps = np.flatnonzero(np.diff(requantise(x).astype(np.int32))) + 1
    codes = np.array([-128, -127, -1, 0, 1, 126, 127], np.int8)
    return {
        "requantise_first_input_of_each_output": encode(x[np.concatenate([[0], steps])]),
        "relu_of_all": encode(relu(np.arange(-128, 128, dtype=np.int16).astype(np.int8))),
        "codes": encode(codes),
        "products": encode(integer_product(codes[:, None], codes[:, None])),
    }


def _functions() -> dict[str, Any]:
    x = np.concatenate([np.linspace(-90, 90, 257, dtype=_f), edge_values(), np.array([np.inf, -np.inf], _f)])
    positive = np.concatenate(
        [np.exp2(np.linspace(-125, 126, 257)).astype(_f), np.linspace(0.5, 2, 129, dtype=_f)]
    )
    logits = random_numbers((4, 37), 3, 3)
    targets = np.array([0, 36, 5, 17])
    loss, gradient = functions.cross_entropy(logits, targets)
    arrays: dict[str, Array] = {
        "x": x,
        "exp": functions.exp(x),
        "positive": positive,
        "log": functions.log(positive),
        "logits": logits,
        "lane_sum": functions.lane_sum(logits),
        "softmax": functions.softmax(logits),
        "log_softmax": functions.log_softmax(logits),
        "targets": targets.astype(np.int32),
        "loss": loss,
        "gradient": gradient,
    }
    return {name: encode(array) for name, array in arrays.items()}


def _optimizers() -> dict[str, Any]:
    size, steps = 48, 5
    gradients = random_numbers((steps, size), 4, 30)
    gradients[:, 0], gradients[:, 1], gradients[:, 2] = 0.0, -0.0, 2.0**-80
    out: dict[str, Any] = {"rate": 0.003, "gradients": encode(gradients)}
    start = random_numbers((size,), 8)
    for name, optimizer in (
        ("adam", DaisyAdam(size)),
        ("adam_decay_0.1", DaisyAdam(size, weight_decay=0.1)),
        ("sgd_momentum_0.9", DaisySGD(size)),
    ):
        weights, history = start.copy(), []
        for gradient in gradients:
            optimizer.step(weights, gradient, out["rate"])
            history.append(weights.copy())
        state = {key: encode(value) for key, value in optimizer.arrays().items()}
        out[name] = {"weights": encode(np.stack(history)), **state}
    return {"start": encode(start), **out}


def _roster() -> dict[str, Any]:
    gradients, counts = random_numbers((3, 33), 12), [5, 27, 1]
    orders = [
        {
            "sample_count": n,
            "seed": seed,
            "ids": encode(sample_ids(np.arange(2 * n + 3), n, seed).astype(np.int32)),
        }
        for n, seed in ((1, 0), (2, 1), (7, 5), (100, 2**40 + 3))
    ]
    state: dict[str, Array] = {
        "b.weight": random_numbers((2, 3), 1),
        "a": np.arange(4, dtype=np.int64),
        "é": np.array([-0.0], _f),
    }
    return {
        "gradients": encode(gradients),
        "counts": counts,
        "mean": encode(roster_mean(list(gradients), counts)),
        "sample_orders": orders,
        "state": {name: encode(value) for name, value in state.items()},
        "state_hash_at_step_7": state_hash(state, 7).hex(),
    }


RULES: dict[str, Callable[[], Any]] = {
    "blocks": _blocks,
    "refused": _refused,
    "units": _units,
    "functions": _functions,
    "optimizers": _optimizers,
    "roster": _roster,
    "decoder": decoder,
}


def render() -> dict[str, bytes]:
    """File name → contents, of every vector file."""
    with np.errstate(all="ignore"):
        return {
            f"{name}.json": json.dumps(
                {"contract": limits.CONTRACT_VERSION, name: rule()}, indent=1, ensure_ascii=False
            ).encode()
            + b"\n"
            for name, rule in RULES.items()
        }


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "vectors")
    folder.mkdir(exist_ok=True)
    for name, contents in render().items():
        write_atomic(folder / name, contents)


if __name__ == "__main__":
    main()
