"""A decoder-only transformer of exact products: the model of the browser room (docs/NUMERICS.md, rules 16 to 21).

The parameters are one flat float32 vector, cut into named tensors in a pinned order; gradients, the optimiser and
what travels between devices use the same vector.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from daisychain.base import limits
from daisychain.base.errors import ConfigError
from daisychain.numerics import layers
from daisychain.numerics.blocks import F32, block_relu
from daisychain.numerics.layers import Ids, Product
from daisychain.numerics.product import product
from daisychain.numerics.roster import mix

Shapes = dict[str, tuple[int, ...]]

_f = np.float32
EMBEDDING_BOUND = _f(0.02 * math.sqrt(3))  # a standard deviation of 0.02
GOLDEN = 0x9E3779B9


@dataclass(frozen=True)
class DecoderConfig:
    """Shape of a decoder. ConfigError for one outside the limits."""

    vocabulary: int = limits.VOCABULARY
    width: int = 32
    layers: int = 2
    heads: int = 4
    sequence: int = 32

    def __post_init__(self) -> None:
        for name, most in (
            ("vocabulary", limits.VOCABULARY),
            ("width", limits.MAX_DECODER_WIDTH),
            ("layers", limits.MAX_DECODER_LAYERS),
            ("heads", self.width),
            ("sequence", limits.MAX_DECODER_SEQUENCE),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise ConfigError(f"{name} {value!r:.60} must be a whole number from 1 to {most}.")
        if self.width % self.heads:
            raise ConfigError(f"width {self.width} is not a multiple of heads {self.heads}.")


def parameter_shapes(config: DecoderConfig) -> Shapes:
    """Every tensor's name and shape, in the order of the flat vector. Matrices are (outer, inner)."""
    c = config.width
    shapes: Shapes = {"tokens": (config.vocabulary, c), "positions": (config.sequence, c)}
    for i in range(config.layers):
        block: Shapes = {
            "norm1": (c,),
            "query_key_value": (3 * c, c),
            "attention_out": (c, c),
            "norm2": (c,),
            "mlp_up": (4 * c, c),
            "mlp_down": (c, 4 * c),
        }
        shapes.update({f"blocks.{i}.{name}": shape for name, shape in block.items()})
    return {**shapes, "norm": (c,)}


def parameter_count(config: DecoderConfig) -> int:
    """The length of the flat vector."""
    return sum(math.prod(shape) for shape in parameter_shapes(config).values())


def named_tensors(config: DecoderConfig, flat: F32) -> dict[str, F32]:
    """The flat vector's tensors by name, as views."""
    shapes = parameter_shapes(config)
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    parts = np.split(flat, ends[:-1])
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def random_bits(key: int, count: int) -> F32:
    """Numbers 0 … `count` − 1 of the stream `key`: 24 random bits each, as whole float32."""
    bits = mix(mix(np.arange(count, dtype=np.uint32) + np.uint32(key)))
    return (bits >> np.uint32(8)).astype(np.float32)


def stream_key(seed: int, stream: int) -> int:
    """The key of one of a seed's independent streams; all are 32-bit numbers."""
    first = mix(np.array([(seed + GOLDEN) & 0xFFFFFFFF], np.uint32))
    return int(mix(first + np.uint32(stream))[0])


def initial_weights(config: DecoderConfig, seed: int) -> F32:
    """The flat vector that a run of this seed (0 … 2³² − 1) begins with. ConfigError for another seed."""
    if not 0 <= seed < 2**32:
        raise ConfigError(f"seed {seed} must be a whole number from 0 to {2**32 - 1}.")
    flat = np.ones(parameter_count(config), np.float32)
    for place, (name, tensor) in enumerate(named_tensors(config, flat).items()):
        if tensor.ndim == 2:
            embedding = name in ("tokens", "positions")
            bound = EMBEDDING_BOUND if embedding else layers.inverse_root(tensor.shape[1])
            unit = (random_bits(stream_key(seed, place), tensor.size) - _f(2**23)) * _f(2.0**-23)
            tensor[:] = (unit * bound).reshape(tensor.shape)
    return flat


def sample_count(text: Ids, sequence: int) -> int:
    """How many samples a text of tokens has: windows side by side, each with one token to come."""
    return max(0, (len(text) - 1) // sequence)


def sample_windows(text: Ids, samples: Ids, sequence: int) -> tuple[Ids, Ids]:
    """Tokens of these samples and the tokens that follow each: two arrays (samples · sequence,)."""
    places = (samples[:, None] * sequence + np.arange(sequence)).reshape(-1)
    return text[places], text[places + 1]


@dataclass(frozen=True)
class _BlockTrace:
    """What a block's way back needs of its way forward."""

    x: F32
    inverse1: F32
    normed1: F32
    qkv: F32
    weights: F32
    attended: F32
    a: F32
    inverse2: F32
    normed2: F32
    hidden: F32


@dataclass(frozen=True)
class Decoder:
    """Loss, gradient and logits of a decoder. `product` and `relu` are the contract's unless a test says otherwise."""

    config: DecoderConfig
    product: Product = product
    relu: Callable[[F32], F32] = block_relu

    @cached_property
    def _blocks(self) -> list[str]:
        return [f"blocks.{i}." for i in range(self.config.layers)]

    def loss_and_gradient(self, weights: F32, ids: Ids, targets: Ids) -> tuple[float, int, F32]:
        """Of whole sequences, `ids` and `targets` (samples · sequence,): the sum of losses in nats, its count
        of tokens, and the gradient of the sum, a flat vector. NonFiniteError, BlockRangeError as quantise."""
        w = named_tensors(self.config, weights)
        gradient = np.zeros_like(weights)
        d = named_tensors(self.config, gradient)
        sequence = self.config.sequence
        x, traces = self._forward(w, ids, sequence)
        normed, inverse = layers.norm(x, w["norm"])
        losses, g, d["tokens"][:] = layers.head_loss(normed, w["tokens"], targets, sequence, self.product)
        g, d["norm"][:] = layers.norm_backward(g, x, w["norm"], inverse)
        for name, trace in zip(reversed(self._blocks), reversed(traces), strict=True):
            g = self._block_backward(w, d, name, g, trace)
        layers.embed_backward(ids, g, d["tokens"], d["positions"])
        loss = 0.0
        for row in losses.tolist():
            loss += row
        return loss, len(ids), gradient

    def logits(self, weights: F32, ids: Ids) -> F32:
        """What may follow each token of one sequence, `ids` (t ≤ sequence,): (t, vocabulary). ConfigError."""
        return self._head(weights, ids, slice(None))

    def next_logits(self, weights: F32, ids: Ids) -> F32:
        """The last row of `logits`, (vocabulary,), without the others."""
        return self._head(weights, ids, slice(-1, None))[0]

    def _head(self, weights: F32, ids: Ids, rows: slice) -> F32:
        if not 1 <= len(ids) <= self.config.sequence:
            raise ConfigError(
                f"{len(ids)} tokens must be between 1 and the sequence, {self.config.sequence}."
            )
        w = named_tensors(self.config, weights)
        x, _ = self._forward(w, ids, len(ids))
        return layers.linear(layers.norm(x[rows], w["norm"])[0], w["tokens"], self.product)

    def _forward(self, w: dict[str, F32], ids: Ids, sequence: int) -> tuple[F32, list[_BlockTrace]]:
        x = layers.embed(ids, w["tokens"], w["positions"][:sequence])
        traces = []
        for name in self._blocks:
            x, trace = self._block(w, name, x, len(ids) // sequence)
            traces.append(trace)
        return x, traces

    def _block(self, w: dict[str, F32], name: str, x: F32, samples: int) -> tuple[F32, _BlockTrace]:
        normed1, inverse1 = layers.norm(x, w[name + "norm1"])
        qkv = layers.linear(normed1, w[name + "query_key_value"], self.product)
        attended, weights = layers.attention(qkv, samples, self.config.heads, self.product)
        a = x + layers.linear(attended, w[name + "attention_out"], self.product)
        normed2, inverse2 = layers.norm(a, w[name + "norm2"])
        hidden = self.relu(layers.linear(normed2, w[name + "mlp_up"], self.product))
        y = a + layers.linear(hidden, w[name + "mlp_down"], self.product)
        return y, _BlockTrace(x, inverse1, normed1, qkv, weights, attended, a, inverse2, normed2, hidden)

    def _block_backward(self, w: dict[str, F32], d: dict[str, F32], name: str, g: F32, t: _BlockTrace) -> F32:
        def linear_backward(g: F32, x: F32, matrix: str) -> F32:
            dx, d[name + matrix][:] = layers.linear_backward(
                g, x, w[name + matrix], self.config.sequence, self.product
            )
            return dx

        def norm_backward(g: F32, x: F32, gain: str, inverse: F32) -> F32:
            dx, d[name + gain][:] = layers.norm_backward(g, x, w[name + gain], inverse)
            return dx

        up = layers.relu_backward(linear_backward(g, t.hidden, "mlp_down"), t.hidden)
        g = g + norm_backward(linear_backward(up, t.normed2, "mlp_up"), t.a, "norm2", t.inverse2)
        attended = linear_backward(g, t.attended, "attention_out")
        qkv = layers.attention_backward(attended, t.qkv, t.weights, self.product)
        return g + norm_backward(linear_backward(qkv, t.normed1, "query_key_value"), t.x, "norm1", t.inverse1)
