"""The shape of a SpikeWhale, its presets, and which of its parts are on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from daisychain.base import limits
from daisychain.base.errors import ConfigError
from daisychain.nn.linear import Backward

#: Every part that can be switched off, in the order in which data meets it.
PARTS = (
    "hash_lookup",
    "engram",
    "hyper_connections",
    "low_rank",
    "position_free",
    "shared_key_value",
    "qk_norm",
    "refinement",
    "multi_token",
)
_ARITHMETIC = ("int8", "int8x3", "float")
_PUBLISHED_HEAD_WIDTH = 64
_PUBLISHED_RANK = 128
_PUBLISHED_STREAMS = 4
_WIDE = 128  # from this width on, tables and streams have their published size


@dataclass(frozen=True)
class SpikeWhaleConfig:
    """Shape, parts and arithmetic of a SpikeWhale; JSON by dataclasses.asdict. ConfigError for what cannot be built.

    Widths count numbers. `head_width` is one head's, of which `rotary_width` turn with the position. `heads` ·
    `head_width` may differ from `width`. Each block's MLP is `mlp_width` wide, and so are the refinement's and the
    multi-token head's. `hash_entries` is the length of each of the two tables beside the token embedding.
    """

    vocabulary: int = limits.VOCABULARY
    width: int = 32
    layers: int = 4
    heads: int = 2
    head_width: int = 16
    rotary_width: int = 4
    sequence: int = 64
    mlp_width: int = 128
    rank: int = 16
    engram_entries: int = 4_096
    hash_entries: int = 1_024
    streams: int = 2
    parts: tuple[str, ...] = PARTS
    arithmetic: str = "int8"
    backward: Backward = "int8"

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            _whole(name, getattr(self, name), most)
        if self.rotary_width % 2 or self.rotary_width > self.head_width or self.head_width % 2:
            raise ConfigError(
                f"rotary_width {self.rotary_width} of head_width {self.head_width} cannot be built; both are even, "
                "and the first is at most the second."
            )
        if self.heads * self.head_width > limits.SPIKEWHALE_MAX_ALL_HEADS_WIDTH:
            raise ConfigError(
                f"heads {self.heads} of head_width {self.head_width} cannot be built; together they are at most "
                f"{limits.SPIKEWHALE_MAX_ALL_HEADS_WIDTH} wide."
            )
        object.__setattr__(self, "parts", checked_parts(self.parts))
        if self.arithmetic not in _ARITHMETIC or self.backward not in ("int8", "float"):
            raise ConfigError(
                f"arithmetic {self.arithmetic!r:.60} with backward {self.backward!r:.60} is not known; use "
                f"{', '.join(_ARITHMETIC)}, and backward int8 or float."
            )

    def has(self, part: str) -> bool:
        """Whether a part is on. ConfigError for one that does not exist."""
        if part not in PARTS:
            raise ConfigError(f"part {part!r:.60} is not known; parts are {', '.join(PARTS)}.")
        return part in self.parts

    def without(self, *parts: str) -> "SpikeWhaleConfig":
        """The same model with these parts off."""
        off = checked_parts(parts)
        return replace(self, parts=tuple(part for part in self.parts if part not in off))

    @classmethod
    def from_json(cls, described: Mapping[str, Any]) -> "SpikeWhaleConfig":
        """What `asdict` made of a configuration. ConfigError for anything else: it may be hostile."""
        names = {field.name for field in fields(cls)}
        if not isinstance(described, Mapping) or set(described) != names:
            found = sorted(map(str, described)) if isinstance(described, Mapping) else described
            raise ConfigError(
                f"a SpikeWhale is described by {', '.join(sorted(names))}; found {found!r:.200}."
            )
        return cls(**described)


_MOST: Mapping[str, int] = {
    "vocabulary": limits.SPIKEWHALE_MAX_VOCABULARY,
    "width": limits.MAX_MODEL_WIDTH,
    "layers": limits.MAX_MODEL_LAYERS,
    "heads": limits.SPIKEWHALE_MAX_HEADS,
    "head_width": limits.SPIKEWHALE_MAX_HEAD_WIDTH,
    "rotary_width": limits.SPIKEWHALE_MAX_HEAD_WIDTH,
    "sequence": limits.MAX_SEQUENCE,
    "mlp_width": limits.SPIKEWHALE_MAX_MLP_WIDTH,
    "rank": limits.MAX_MODEL_WIDTH,
    "engram_entries": limits.SPIKEWHALE_MAX_ENTRIES,
    "hash_entries": limits.SPIKEWHALE_MAX_ENTRIES,
    "streams": limits.SPIKEWHALE_MAX_STREAMS,
}


def _whole(name: str, value: object, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ConfigError(f"{name} {value!r:.60} must be a whole number from 1 to {most}.")
    return value


def checked_parts(parts: object) -> tuple[str, ...]:
    """Names of parts, in the order of PARTS. ConfigError for anything that is no list of known parts."""
    if isinstance(parts, str) or not isinstance(parts, Sequence):
        raise ConfigError(f"parts {parts!r:.60} must be a list of names; parts are {', '.join(PARTS)}.")
    for part in parts:
        if not isinstance(part, str) or part not in PARTS:
            raise ConfigError(f"part {part!r:.60} is not known; parts are {', '.join(PARTS)}.")
    return tuple(part for part in PARTS if part in parts)


def config_for(
    preset: str | None = None,
    *,
    width: int | None = None,
    layers: int | None = None,
    heads: int | None = None,
    sequence: int | None = None,
    parts: Sequence[str] = PARTS,
    arithmetic: str = "int8",
    backward: Backward = "int8",
) -> SpikeWhaleConfig:
    """A preset (default: tiny), or what becomes of it with another width, layers, heads or sequence.

    What was not asked for follows from the width: heads of at most 64, a quarter of each rotary, a rank of a
    quarter of the width, an MLP four times as wide. ConfigError for what cannot be built.
    """
    base = preset_named(preset or "tiny")
    how: dict[str, Any] = {"parts": checked_parts(parts), "arithmetic": arithmetic, "backward": backward}
    sizes = {"layers": layers, "sequence": sequence}
    how |= {name: value for name, value in sizes.items() if value is not None}
    if width is None and heads is None:
        return replace(base, **how)
    width = _whole("width", base.width if width is None else width, limits.MAX_MODEL_WIDTH)
    if heads is None:
        heads = base.heads if width == base.width else default_heads(width)
    return replace(base, **sizes_for(width, _whole("heads", heads, limits.SPIKEWHALE_MAX_HEADS)), **how)


def default_heads(width: int) -> int:
    """Heads that are as wide as the published ones, but two at least."""
    return max(2, round(width / _PUBLISHED_HEAD_WIDTH))


def sizes_for(width: int, heads: int) -> dict[str, Any]:
    """What follows from a width and a number of heads."""
    head_width = min(_PUBLISHED_HEAD_WIDTH, max(8, _up_to_multiple(-(-width // heads), 8)))
    published = width >= _WIDE
    return {
        "width": width,
        "heads": heads,
        "head_width": head_width,
        "rotary_width": head_width // 4,
        "mlp_width": 4 * width,
        "rank": min(_PUBLISHED_RANK, max(8, width // 4)),
        "engram_entries": 4_096,
        "hash_entries": 4_096 if published else 1_024,
        "streams": _PUBLISHED_STREAMS if published else 2,
    }


def _up_to_multiple(number: int, of: int) -> int:
    return -(-number // of) * of


def preset_named(name: str) -> SpikeWhaleConfig:
    """One of PRESETS. ConfigError for another name."""
    if name not in PRESETS:
        raise ConfigError(f"preset {name!r:.60} is not known; use {', '.join(PRESETS)}.")
    return PRESETS[name]


def _preset(width: int, layers: int, heads: int, sequence: int) -> SpikeWhaleConfig:
    return SpikeWhaleConfig(layers=layers, sequence=sequence, **sizes_for(width, heads))


PRESETS: Mapping[str, SpikeWhaleConfig] = MappingProxyType(
    {
        "tiny": _preset(32, 4, 2, 64),
        "small": _preset(128, 6, 4, 256),
        "medium": _preset(320, 10, 5, 512),
        "published": _preset(640, 16, 10, 4_096),
    }
)
