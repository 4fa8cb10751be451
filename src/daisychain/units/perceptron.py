"""The units as trained neural nets: ReLU perceptrons from the bits of a word to an integer.

- Multiply: an 8-bit signed product is four nibble products by one net. A factor is sign and magnitude; the
  magnitude, at most 128, is a high and a low nibble. The four products are combined by shifts and adds, and the
  sign of the result is the exclusive or of the signs.
- Requantise: the net takes the 16 bits of x in two's complement.
- ReLU: the net takes the 8 bits of x in two's complement.

A net is evaluated in float32 and its output rounded to the nearest integer. `Net.margin` proves over the complete
domain that no order of summation, fused or not, can change that integer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from daisychain import numerics
from daisychain.base import limits
from daisychain.units.blocked import in_blocks
from daisychain.units.counts import MULTIPLY, RELU, REQUANTISE

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int8]
I16 = npt.NDArray[np.int16]
I32 = npt.NDArray[np.int32]
Words = npt.NDArray[np.unsignedinteger]

#: Twice the unit roundoff of float32: n of these bound the relative error of n operations, with room to spare.
ROUNDOFF = 2.0**-23


@dataclass(frozen=True)
class NetSpec:
    """What the net of a unit computes: an integer for every word of `word_bits` bits."""

    unit: str
    word_bits: int
    truth: Callable[[Words], npt.NDArray[np.integer]]

    def words(self) -> Words:
        """The complete domain of the net."""
        return np.arange(1 << self.word_bits, dtype=np.uint16 if self.word_bits > 8 else np.uint8)


SPECS = {
    MULTIPLY: NetSpec(MULTIPLY, 8, lambda words: (words & 15) * (words >> 4)),
    REQUANTISE: NetSpec(REQUANTISE, 16, lambda words: numerics.requantise(words.view(np.int16))),
    RELU: NetSpec(RELU, 8, lambda words: numerics.relu(words.view(np.int8))),
}


def bits(words: Words) -> F32:
    """The bits of each word, lowest first: float32 (n, bits)."""
    little = words.astype(words.dtype.newbyteorder("<"), copy=False)
    octets = little.view(np.uint8).reshape(len(words), -1)
    return np.unpackbits(octets, axis=1, bitorder="little").astype(np.float32)


@dataclass(frozen=True)
class Net:
    """bits → linear → ReLU → linear → a number that rounds to an integer."""

    spec: NetSpec
    hidden_weight: F32  # (bits, hidden)
    hidden_bias: F32  # (hidden,)
    output_weight: F32  # (hidden,)
    output_bias: F32  # (1,)

    def integers(self, words: Words) -> I32:
        """What the net says about each word: int32 (n,)."""
        hidden = bits(words) @ self.hidden_weight
        hidden += self.hidden_bias
        np.maximum(hidden, 0, out=hidden)
        outputs = hidden @ self.output_weight
        outputs += self.output_bias
        return np.rint(outputs, out=outputs).astype(np.int32)

    def margin(self) -> float:
        """How far from the right integer a float32 evaluation, in whatever order, can be on the worst word.

        The distance of the exact output, found in float64, plus a bound on every rounding on the way. Below 0.5
        the unit is right; `limits.UNIT_MARGIN_MAX` is asked for.
        """
        inputs = bits(self.spec.words()).astype(np.float64)
        weight, bias = self.hidden_weight.astype(np.float64), self.hidden_bias.astype(np.float64)
        out_weight, out_bias = self.output_weight.astype(np.float64), float(self.output_bias[0])
        hidden = np.maximum(inputs @ weight + bias, 0)
        outputs = hidden @ out_weight + out_bias
        hidden_error = (len(weight) + 1) * ROUNDOFF * (inputs @ np.abs(weight) + np.abs(bias))
        magnitude = (hidden + hidden_error) @ np.abs(out_weight) + abs(out_bias)
        output_error = hidden_error @ np.abs(out_weight) + (len(out_weight) + 1) * ROUNDOFF * magnitude
        return float((np.abs(outputs - self.spec.truth(self.spec.words())) + output_error).max())


@dataclass(frozen=True)
class Nets:
    """The three nets as units, elementwise over arrays of any shape. They do not count; `kernels` does."""

    by_unit: Mapping[str, Net]

    def multiply(self, a: I8, b: I8) -> I16:
        """a·b, int8 and int8 of one shape → int16."""
        # Four nibble products an element.
        return in_blocks(
            MULTIPLY, self._multiply_block, (a, b), (np.int8, np.int16), limits.UNIT_BLOCK_ELEMENTS // 4
        )

    def requantise(self, x: I16) -> I8:
        """sat8((x + 128) >> 8), int16 → int8."""
        net = self.by_unit[REQUANTISE]
        return in_blocks(
            REQUANTISE,
            lambda block: net.integers(block.view(np.uint16)),
            (x,),
            (np.int16, np.int8),
            limits.UNIT_BLOCK_ELEMENTS,
        )

    def relu(self, x: I8) -> I8:
        """max(x, 0), int8 → int8."""
        net = self.by_unit[RELU]
        return in_blocks(
            RELU,
            lambda block: net.integers(block.view(np.uint8)),
            (x,),
            (np.int8, np.int8),
            limits.UNIT_BLOCK_ELEMENTS,
        )

    def _multiply_block(self, a: I8, b: I8) -> I32:
        high_a, low_a = np.divmod(np.abs(a.astype(np.int16)).astype(np.uint8), np.uint8(16))
        high_b, low_b = np.divmod(np.abs(b.astype(np.int16)).astype(np.uint8), np.uint8(16))
        pairs = ((low_a, low_b), (low_a, high_b), (high_a, low_b), (high_a, high_b))
        words = np.concatenate([one | (other << np.uint8(4)) for one, other in pairs])
        low, middle_1, middle_2, high = self.by_unit[MULTIPLY].integers(words).reshape(4, -1)
        magnitude = low + ((middle_1 + middle_2) << 4) + (high << 8)
        return np.asarray(np.where((a ^ b) < 0, -magnitude, magnitude))
