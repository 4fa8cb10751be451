"""The numeric contract, in NumPy: slow, exact, readable in one sitting. Every fast path is proven against it."""

from daisychain.numerics.blocks import Blocks, block_edges, block_relu, quantise
from daisychain.numerics.elementwise import relu, requantise
from daisychain.numerics.optimizer import DaisyAdam, DaisySGD, Optimizer, make_optimizer
from daisychain.numerics.product import block_product, check_contraction, product, triple_product
from daisychain.numerics.roster import roster_mean, sample_ids
from daisychain.numerics.state_hash import first_difference, state_hash, tensor_digest

__all__ = [
    "Blocks",
    "DaisyAdam",
    "DaisySGD",
    "Optimizer",
    "block_edges",
    "block_product",
    "block_relu",
    "check_contraction",
    "first_difference",
    "make_optimizer",
    "product",
    "quantise",
    "relu",
    "requantise",
    "roster_mean",
    "sample_ids",
    "state_hash",
    "tensor_digest",
    "triple_product",
]
