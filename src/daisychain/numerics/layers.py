"""The operations of the decoder-only transformer, forward and backward (docs/NUMERICS.md, rules 16 to 20).

Arrays are float32, rows first: N = samples · sequence. Each function rounds once an operation, in the order
written. `product` is the exact product of the contract; a test may put another in its place.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from daisychain.numerics.blocks import F32, I64, block_edges
from daisychain.numerics.functions import cross_entropy, exp, lane_sum
from daisychain.numerics.product import product

Ids = npt.NDArray[np.integer]
Product = Callable[[F32, F32, I64 | None], F32]

_f = np.float32
NORM_EPSILON = _f(1e-5)


def embed(ids: Ids, tokens: F32, positions: F32) -> F32:
    """Token plus position: `ids` (N,), `tokens` (V, C), `positions` (T, C), N a multiple of T → (N, C)."""
    return tokens[ids] + positions[np.arange(len(ids)) % len(positions)]


def embed_backward(ids: Ids, g: F32, d_tokens: F32, d_positions: F32) -> None:
    """Add each row of `g` (N, C), in order, to the gradients of its token and of its position, in place."""
    for n, token in enumerate(ids):
        d_tokens[token] += g[n]
        d_positions[n % len(d_positions)] += g[n]


def norm(x: F32, gain: F32) -> tuple[F32, F32]:
    """Root-mean-square norm of each row (N, C): the result, and 1 / root (N,) for the way back."""
    width = _f(x.shape[1])
    inverse = np.asarray(_f(1) / np.sqrt(lane_sum(x * x) / width + NORM_EPSILON))
    return (x * inverse[:, None]) * gain, inverse


def norm_backward(g: F32, x: F32, gain: F32, inverse: F32) -> tuple[F32, F32]:
    """Gradients of the input (N, C) and of the gain (C,), the latter summed over rows in order."""
    h = g * gain
    d = lane_sum(h * x)
    k = (((d * inverse) * inverse) * inverse) / _f(x.shape[1])
    dx = h * inverse[:, None] - x * k[:, None]
    d_gain = np.zeros_like(gain)
    for row in g * (x * inverse[:, None]):
        d_gain = d_gain + row
    return dx, d_gain


def linear(x: F32, w: F32, product: Product = product) -> F32:
    """(N, inner) · (outer, inner)ᵀ → (N, outer)."""
    return product(x, w, None)


def linear_backward(g: F32, x: F32, w: F32, period: int, product: Product = product) -> tuple[F32, F32]:
    """Gradients of the input (N, inner) and the weight (outer, inner), whose blocks restart every `period` rows."""
    return product(g, w.T, None), product(g.T, x.T, block_edges(len(x), period))


def relu_backward(g: F32, y: F32) -> F32:
    """The gradient where the ReLU's result is positive, else +0."""
    return np.where(y > 0, g, _f(0))


def inverse_root(size: int) -> np.float32:
    """1/√size: what scores of heads of `size` columns are multiplied by, and the bound of initial weights."""
    return _f(_f(1) / np.sqrt(_f(size)))


def causal_softmax(scores: F32) -> F32:
    """Softmax of row t over columns up to t: (T, T), +0 to the right of the diagonal."""
    seen = np.tri(len(scores), dtype=np.bool_)
    largest = np.where(seen, scores, _f(-np.inf)).max(axis=1, keepdims=True)
    exponentials = np.where(seen, exp(scores - largest), _f(0))
    return np.asarray(exponentials / lane_sum(exponentials)[:, None], np.float32)


def attention(qkv: F32, samples: int, heads: int, product: Product = product) -> tuple[F32, F32]:
    """Causal attention of q | k | v (N, 3C): the result (N, C), and the weights (samples, heads, T, T)."""
    rows, width = qkv.shape[0], qkv.shape[1] // 3
    sequence, size = rows // samples, width // heads
    out = np.zeros((samples, sequence, heads, size), np.float32)
    weights = np.zeros((samples, heads, sequence, sequence), np.float32)
    parts = qkv.reshape(samples, sequence, 3, heads, size)
    for s, h in np.ndindex(samples, heads):
        q, k, v = (parts[s, :, part, h] for part in range(3))
        weights[s, h] = causal_softmax(product(q, k, None) * inverse_root(size))
        out[s, :, h] = product(weights[s, h], v.T, None)
    return out.reshape(rows, width), weights


def attention_backward(g: F32, qkv: F32, weights: F32, product: Product = product) -> F32:
    """The gradient of q | k | v (N, 3C) from `g` (N, C) and the weights (samples, heads, T, T)."""
    samples, heads, sequence, _ = weights.shape
    size = g.shape[1] // heads
    seen = np.tri(sequence, dtype=np.bool_)
    parts = qkv.reshape(samples, sequence, 3, heads, size)
    out = np.zeros_like(parts)
    for s, h in np.ndindex(samples, heads):
        q, k, v = (parts[s, :, part, h] for part in range(3))
        p, d_out = weights[s, h], g.reshape(samples, sequence, heads, size)[s, :, h]
        dp = np.where(seen, product(d_out, v, None), _f(0))
        r = lane_sum(p * dp)
        ds = np.where(seen, (p * (dp - r[:, None])) * inverse_root(size), _f(0))
        out[s, :, 0, h] = product(ds, k.T, None)
        out[s, :, 1, h] = product(ds.T, q.T, None)
        out[s, :, 2, h] = product(p.T, d_out.T, None)
    return out.reshape(qkv.shape)


def head_loss(
    x: F32, tokens: F32, targets: Ids, sequence: int, product: Product = product
) -> tuple[F32, F32, F32]:
    """Cross-entropy of the tied head, one sequence after the other.

    `x` (N, C), `tokens` (V, C), `targets` (N,) → the loss of each row (N,) in nats, the gradient of `x`, and
    the head's part of the gradient of `tokens`.
    """
    losses, dx, d_tokens = np.zeros(len(x), np.float32), np.zeros_like(x), np.zeros_like(tokens)
    for start in range(0, len(x), sequence):
        rows = slice(start, start + sequence)
        losses[rows], g = cross_entropy(product(x[rows], tokens, None), targets[rows].astype(np.int64))
        dx[rows] = product(g, tokens.T, None)
        d_tokens += product(g.T, x[rows].T, None)
    return losses, dx, d_tokens
