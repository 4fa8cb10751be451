"""Torch modules on the verified kernels."""

from daisychain.nn.linear import VerifiedLinear, make_linear, verify_model
from daisychain.nn.mlp import MLP
from daisychain.nn.spikewhale import SpikeWhale, SpikeWhaleConfig
from daisychain.nn.transformer import Transformer, TransformerConfig

__all__ = [
    "MLP",
    "SpikeWhale",
    "SpikeWhaleConfig",
    "Transformer",
    "TransformerConfig",
    "VerifiedLinear",
    "make_linear",
    "verify_model",
]
