"""The units on the nets that DaisyChain comes with: the neural form of each, elementwise over any shape.

They do not count invocations; `kernels`, which knows what a product is made of, does.
"""

from functools import lru_cache
from pathlib import Path

from daisychain.units.perceptron import I8, I16, Nets
from daisychain.units.store import load_nets

SHIPPED_FOLDER = Path(__file__).parent / "weights"


@lru_cache(maxsize=1)
def shipped_nets() -> Nets:
    """The nets in this package; read and proven once a process."""
    return load_nets(SHIPPED_FOLDER)


def multiply(a: I8, b: I8) -> I16:
    """a·b, int8 and int8 of one shape → int16, by four nibble products an element."""
    return shipped_nets().multiply(a, b)


def requantise(x: I16) -> I8:
    """sat8((x + 128) >> 8), int16 → int8."""
    return shipped_nets().requantise(x)


def relu(x: I8) -> I8:
    """max(x, 0), int8 → int8."""
    return shipped_nets().relu(x)
