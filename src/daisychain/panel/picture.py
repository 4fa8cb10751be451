"""All that a page shows of a run, taken once for everybody who looks at it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from daisychain.base import limits
from daisychain.cluster.storage.history import RunReader

Row = Mapping[str, Any]
Made = TypeVar("Made")


@dataclass(frozen=True)
class RunPicture:
    """A run at one moment. What its files do not say is empty or None; nothing of it is changed afterwards.

    `version` grows whenever a file of the run has changed.
    """

    path: Path
    version: int = 0
    exists: bool = False
    phase: str = "starting"
    alive: bool = False
    text: str = ""  # what the run says of its state, one line
    step: int = 0
    steps: int = 0
    updated_s: float = 0.0  # unix; when the run said so
    config: Row | None = None
    nodes: Sequence[Row] = ()
    last: Row | None = None  # the newest row of metrics.jsonl
    summary: Row | None = None
    events: Sequence[Row] = ()  # oldest first
    glimpses: Sequence[Row] = ()  # oldest first
    checkpoints: Sequence[tuple[Path, int, int]] = ()  # path, step, bytes; the latest first
    model_bytes: int | None = None  # of the final model, if there is one
    series: Mapping[str, Sequence[float]] | None = None  # columns

    _made: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.path.name

    def begun_since(self, started_s: float | None) -> RunPicture:
        """This, or where a trainer that began at `started_s` (unix) has said nothing yet: the same, starting."""
        if started_s is None or self.updated_s >= started_s - limits.CLOCK_DRIFT_S:
            return self
        return replace(self, phase="starting", alive=True, text="", summary=None, _made={})

    def once(self, key: str, make: Callable[[RunPicture], Made]) -> Made:
        """What `make` makes of this picture: made for the first viewer who asks, and kept for the others."""
        if key not in self._made:
            self._made[key] = make(self)
        made: Made = self._made[key]
        return made


def take_picture(reader: RunReader, path: Path, version: int) -> RunPicture:
    """The picture of what a RunReader has read. Called where the reader is refreshed, never at the same time."""
    status = reader.status
    last = reader.last
    return RunPicture(
        path=path,
        version=version,
        exists=path.is_dir(),
        phase=reader.phase,
        alive=reader.alive,
        text=str(status.get("text", "")),
        step=reader.steps_done,
        steps=status.get("steps") or (last or {}).get("steps") or 0,
        updated_s=status.get("updated_s", 0.0),
        config=reader.config or None,
        nodes=tuple(reader.nodes),
        last=last,
        summary=status.get("summary"),
        events=tuple(reader.events)[-limits.EVENTS_SHOWN :],
        glimpses=tuple(reader.glimpses)[-limits.GLIMPSES_SHOWN :],
        checkpoints=tuple(reader.checkpoints()),
        model_bytes=_size(reader.model),
        series=reader.series(limits.CHART_POINTS),
    )


def _size(path: Path | None) -> int | None:
    try:
        return path.stat().st_size if path else None
    except OSError:
        return None
