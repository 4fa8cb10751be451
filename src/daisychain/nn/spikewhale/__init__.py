"""SpikeWhale, a decoder-only language model (docs/SPIKEWHALE.md)."""

from daisychain.nn.spikewhale.attention import Cache
from daisychain.nn.spikewhale.config import PARTS, PRESETS, SpikeWhaleConfig, config_for, preset_named
from daisychain.nn.spikewhale.generate import generate
from daisychain.nn.spikewhale.model import SpikeWhale, parameter_count

__all__ = [
    "PARTS",
    "PRESETS",
    "Cache",
    "SpikeWhale",
    "SpikeWhaleConfig",
    "config_for",
    "generate",
    "parameter_count",
    "preset_named",
]
