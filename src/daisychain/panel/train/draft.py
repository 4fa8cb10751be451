"""What a person has set so far, kept in a cookie of their browser; whatever comes back from there is checked anew."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daisychain.base import limits
from daisychain.base.errors import ConfigError
from daisychain.data.source import FINEWEB_EDU, FINEWEB_EDU_CONFIG
from daisychain.nn.spikewhale import PARTS, PRESETS, SpikeWhaleConfig, config_for
from daisychain.panel.request import SPIKEWHALE, JobRequest, recalled
from daisychain.panel.uploads import UPLOADS
from daisychain.tasks.spikewhale import rate_for

COOKIE = "daisychain-settings"
WHERE = ("embedded", "fineweb", "hub", "upload", "path")
SIZES = ("width", "layers", "heads", "sequence")
_HUB_FIELDS = ("dataset", "dataset_config", "split", "column")
#: What each task begins with: what `daisychain train` does, and for a page more checkpoints of a slow model.
STARTS: Mapping[str, Mapping[str, Any]] = {
    SPIKEWHALE: {"learning_rate": 1e-2, "batch": 8, "warmup": 30, "steps": 300, "checkpoint_every": 25},
    "text": {"learning_rate": 3e-3, "batch": 32, "warmup": 100, "steps": 300, "checkpoint_every": 100},
    "table": {"learning_rate": 1e-3, "batch": 32, "warmup": 0, "steps": 300, "checkpoint_every": 100},
    "digits": {"learning_rate": 5e-3, "batch": 32, "warmup": 0, "steps": 300, "checkpoint_every": 100},
}


class Draft:
    """Settings on their way to a request; `values` are those of JobRequest by name, each of them usable.

    `local`: whoever sets them sits at this machine, and may name any file of it.
    """

    def __init__(
        self, values: Mapping[str, Any] | None = None, where: str = "embedded", *, local: bool = True
    ) -> None:
        self.local = local
        self.values: dict[str, Any] = recalled(values or {}) | {"resume": None, "name": None}
        self.where = where if where in WHERE else "embedded"

    @property
    def is_whale(self) -> bool:
        return bool(self.values["task"] == SPIKEWHALE)

    def choose_task(self, task: str) -> None:
        """Another task, with the batch, rate and steps that suit it."""
        self.values |= {"task": task, **STARTS[task]}
        if self.is_whale:
            self.values["learning_rate"] = usual_rate(self.values["width"])
        allowed = self.places()
        if self.where not in allowed:
            self.choose_where(allowed[0])

    def places(self) -> tuple[str, ...]:
        """Where the task's data can come from."""
        by_task = {
            SPIKEWHALE: WHERE,
            "text": ("embedded", "upload", "path"),
            "table": ("upload", "path"),
            "digits": ("embedded",),
        }
        found = by_task[self.values["task"]]
        return found if self.local else tuple(place for place in found if place != "path")

    def choose_where(self, where: str) -> None:
        """Another place for the data; what belonged to the one before is forgotten."""
        self.where = where
        self.values |= dict.fromkeys((*_HUB_FIELDS, "data", "target"))
        self.values["source"] = {"embedded": "embedded", "fineweb": "dataset", "hub": "dataset"}.get(
            where, "file"
        )
        if where == "fineweb":
            self.values |= {
                "dataset": FINEWEB_EDU,
                "dataset_config": FINEWEB_EDU_CONFIG,
                "split": "train",
                "column": "text",
            }

    def choose_preset(self, name: str) -> None:
        """The sizes of a preset, as far as the sliders go."""
        found = PRESETS[name]
        self.choose_width(_within(found.width, *limits.PANEL_WIDTHS))
        self.values |= {
            "preset": name,
            "layers": _within(found.layers, *limits.PANEL_LAYERS),
            "heads": _within(found.heads, *limits.PANEL_HEADS),
            "sequence": _within(found.sequence, *limits.PANEL_SEQUENCES),
        }

    def choose_width(self, width: int) -> None:
        """Another width; the rate goes with it, unless a person chose another one."""
        if self.values["learning_rate"] == usual_rate(self.values["width"]):
            self.values["learning_rate"] = usual_rate(width)
        self.values["width"] = width

    def preset_shown(self) -> str:
        """The preset whose sizes these are; empty where a size is another."""
        for name in PRESETS:
            other = Draft(self.values)
            other.choose_preset(name)
            if all(other.values[size] == self.values[size] for size in SIZES):
                return name
        return ""

    def switch_part(self, part: str, on: bool) -> None:
        off = {*self.values["without"]} - {part} if on else {*self.values["without"], part}
        self.values["without"] = tuple(each for each in PARTS if each in off)

    def request(self) -> JobRequest:
        """Raises ConfigError for what is still missing."""
        return JobRequest.of(self.values)

    def missing(self) -> str | None:
        """What is still missing, or None."""
        try:
            self.request()
        except ConfigError as error:
            return str(error)
        return None

    def model(self) -> SpikeWhaleConfig:
        """The SpikeWhale that the settings mean. Raises ConfigError for one that cannot be built."""
        chosen = self.values
        arithmetic = chosen["arithmetic"]
        return config_for(
            chosen["preset"],
            width=chosen["width"],
            layers=chosen["layers"],
            heads=chosen["heads"],
            sequence=chosen["sequence"],
            parts=tuple(part for part in PARTS if part not in chosen["without"]),
            arithmetic=arithmetic,
            backward=arithmetic,
        )

    def take(self, request: JobRequest) -> None:
        """The settings of a run, to change them and start again."""
        if request.resume:
            return
        self.values = request.as_json() | {"name": None, "resume": None, "without": request.without}
        self.where = _where_of(request)
        self._stay_allowed()

    def _stay_allowed(self) -> None:
        """Elsewhere, where the data may not come from the place that is chosen."""
        if self.where not in self.places() or self.where != _where_of_values(self):
            self.choose_where(self.places()[0])

    def as_cookie(self) -> str:
        """What differs from the defaults, in letters that a cookie may have."""
        usual = recalled({})
        changed = {name: value for name, value in self.values.items() if value != usual[name]}
        text = json.dumps({"where": self.where, **changed}, separators=(",", ":"))
        packed = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
        return packed if len(packed) <= limits.PANEL_COOKIE_CHARACTERS else ""

    @classmethod
    def of_cookie(cls, packed: str, *, local: bool = True) -> Draft:
        """As much of it as can be used."""
        try:
            if len(packed) > limits.PANEL_COOKIE_CHARACTERS:
                return cls(local=local)
            text = base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
            values = json.loads(text)
        except (binascii.Error, ValueError, RecursionError):
            return cls(local=local)
        if not isinstance(values, dict):
            return cls(local=local)
        where = values.pop("where", "embedded")
        draft = cls(values, where if isinstance(where, str) else "embedded", local=local)
        draft._stay_allowed()
        return draft


def usual_rate(width: int) -> float:
    """What a SpikeWhale of this width learns at unless told otherwise, in two digits."""
    return float(f"{rate_for(width):.2g}")


def _where_of_values(draft: Draft) -> str:
    """`where` if the source agrees with it."""
    source = draft.values["source"]
    fits = {"embedded": ("embedded",), "dataset": ("fineweb", "hub"), "file": ("upload", "path")}[source]
    return draft.where if draft.where in fits else fits[0]


def _where_of(request: JobRequest) -> str:
    if request.source == "dataset":
        return "fineweb" if request.dataset == FINEWEB_EDU else "hub"
    if request.source == "file":
        return "upload" if request.data and Path(request.data).parent.name == UPLOADS else "path"
    return "embedded"


def _within(value: int, least: int, most: int) -> int:
    return min(most, max(least, value))
