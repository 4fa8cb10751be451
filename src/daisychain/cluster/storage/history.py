"""Reading what a run writes, while it writes it and after: for pages and tools, without torch and without trust.

A folder of runs may hold anything. Whatever is not as a run would have written it is left out, and nothing is read
outside the folder. The run never notices that it is read.
"""

import os
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daisychain.base import limits
from daisychain.base.errors import RunFolderError
from daisychain.cluster.storage import cleaning
from daisychain.cluster.storage.cleaning import WORKING, is_count, is_finite, known
from daisychain.cluster.storage.curve import Curve
from daisychain.cluster.storage.run_folder import CONFIG, EVENTS, METRICS, NODES, STATUS, check_name
from daisychain.cluster.storage.status import is_alive
from daisychain.cluster.storage.tail import Tail, read_json

_CHECKPOINT = re.compile(r"step-(\d{8,15})\.safetensors")


def run_path(runs: Path, name: str) -> Path:
    """The folder of run `name` in `runs`; RunFolderError for a name that is none, or that leads elsewhere."""
    path = runs / check_name(name)
    if path.is_symlink() or not path.is_dir():
        raise RunFolderError(f"there is no run {name!r} in {runs}; look for its name in the list of runs.")
    return path


@dataclass(frozen=True)
class Listed:
    """A run in a list, from its two smallest files."""

    name: str
    path: Path
    task: str
    phase: str
    text: str
    step: int
    steps: int
    nodes: int
    loss: float | None
    updated_s: float  # unix


def list_runs(runs: Path) -> list[Listed]:
    """The RUNS_LISTED runs of a folder that changed last, newest first; empty where there is no such folder."""
    found: list[tuple[float, Path]] = []
    try:
        with os.scandir(runs) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and _is_name(entry.name):
                    found.append((_changed_s(Path(entry.path)), Path(entry.path)))
    except OSError:
        return []
    newest = sorted(found, reverse=True)[: limits.RUNS_LISTED]
    return [_listed(path, changed_s) for changed_s, path in newest if changed_s > 0]


def _is_name(name: str) -> bool:
    try:
        return check_name(name) == name
    except RunFolderError:
        return False


def _changed_s(path: Path) -> float:
    """When a run last said something, unix seconds; 0 for a folder that holds no run."""
    times = [0.0]
    for name in (STATUS, CONFIG, METRICS):
        try:
            times.append((path / name).lstat().st_mtime)
        except OSError:
            continue
    return max(times)


def _listed(path: Path, changed_s: float) -> Listed:
    status = known(read_json(path / STATUS), cleaning.STATUS)
    config = cleaning.as_object(read_json(path / CONFIG))
    task = config.get("task")
    return Listed(
        name=path.name,
        path=path,
        task=task[:100] if isinstance(task, str) else "",
        phase=phase_of(path, status),
        text=status.get("text", ""),
        step=status.get("step", 0),
        steps=status.get("steps", 0),
        nodes=status.get("nodes", 0),
        loss=status.get("loss"),
        updated_s=status.get("updated_s", changed_s),
    )


def phase_of(path: Path, status: Mapping[str, Any]) -> str:
    """One of `cleaning.PHASES`, or `lost`: the process died without a word. A run from before there was a status is
    `finished` if it has a model, else `stopped`."""
    phase = status.get("phase")
    if phase is None:
        return "finished" if (path / "model.safetensors").is_file() else "stopped"
    return "lost" if phase in WORKING and not is_alive(status) else str(phase)


class RunReader:
    """One run's folder, read as it grows. Call `refresh` now and then; everything else answers from memory.

    For one thread at a time: share one reader between viewers, and refresh it once for all.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.config: dict[str, Any] = {}
        self.nodes: list[dict[str, Any]] = []
        self.status: dict[str, Any] = {}
        self._metrics, self._events = Tail(path / METRICS), Tail(path / EVENTS)
        self._small: dict[str, tuple[int, ...] | None] = {}
        self._phase = ""
        self._forget_rows()
        self._forget_events()
        self.refresh()

    @property
    def bytes_read(self) -> int:
        """Read so far from the two files that grow."""
        return self._metrics.bytes_read + self._events.bytes_read

    def refresh(self) -> bool:
        """Read what is new; whether anything is."""
        new = self._refresh_small()
        if self._metrics.restarted():
            self._forget_rows()
            new = True
        for line in self._metrics.lines():
            new |= self._take_row(line)
        if self._events.restarted():
            self._forget_events()
            new = True
        for line in self._events.lines():
            new |= self._take_event(line)
        phase = phase_of(self.path, self.status)
        new |= phase != self._phase
        self._phase = phase
        return new

    @property
    def phase(self) -> str:
        """See `phase_of`; as it was at the last refresh."""
        return self._phase

    @property
    def alive(self) -> bool:
        """Whether the run works now."""
        return self._phase in WORKING

    @property
    def events(self) -> list[dict[str, Any]]:
        """The last HISTORY_EVENTS events, oldest first: time_s, step, kind, text, and what else the kind has."""
        return list(self._kept_events)

    @property
    def glimpses(self) -> list[dict[str, Any]]:
        """Those of kind `glimpse`, as many of them, whatever else has happened since; as `rows`, without those of
        steps that a resumed run does again."""
        return list(self._kept_glimpses)

    @property
    def last(self) -> dict[str, Any] | None:
        """The newest row of metrics.jsonl (see `StepReport`), less what is not as it should be in it."""
        return known(self._last, cleaning.ROW) if self._last is not None else None

    @property
    def steps_done(self) -> int:
        return self._step

    def series(self, points: int = limits.HISTORY_POINTS) -> dict[str, list[Any]]:
        """Columns step, trained_s, loss and samples_per_s, at most `points` rows of those that were written; the
        least and the greatest loss and rate of every stretch are among them."""
        return self._curve.columns(points)

    def checkpoints(self) -> list[tuple[Path, int, int]]:
        """Path, steps done and bytes of every checkpoint, the latest first."""
        found = []
        folder = self.path / "checkpoints"
        try:
            if folder.is_symlink():
                return []
            with os.scandir(folder) as entries:
                for entry in entries:
                    match = _CHECKPOINT.fullmatch(entry.name)
                    if match and entry.is_file(follow_symlinks=False):
                        size = entry.stat(follow_symlinks=False).st_size
                        found.append((Path(entry.path), int(match[1]), size))
        except OSError:
            return []
        return sorted(found, key=lambda one: one[1], reverse=True)

    @property
    def model(self) -> Path | None:
        """The final model, if there is one."""
        path = self.path / "model.safetensors"
        return path if path.is_file() and not path.is_symlink() else None

    def _refresh_small(self) -> bool:
        changed = False
        for name in (CONFIG, NODES, STATUS):
            path = self.path / name
            try:
                now = path.lstat()
                seen: tuple[int, ...] | None = (now.st_ino, now.st_size, now.st_mtime_ns)
            except OSError:
                seen = None
            if seen is not None and seen == self._small.get(name):
                continue
            if seen is None and self._small.get(name) is None:
                continue
            self._small[name] = seen
            changed = True
            self._take_small(name, read_json(path))
        return changed

    def _take_small(self, name: str, content: Any) -> None:
        if name == CONFIG:
            self.config = cleaning.as_object(content)
        elif name == STATUS:
            self.status = known(content, cleaning.STATUS)
        else:
            nodes = content if isinstance(content, list) else []
            self.nodes = [known(node, cleaning.NODE) for node in nodes[: limits.MAX_NODES]]

    def _forget_rows(self) -> None:
        self._curve, self._step = Curve(), 0
        self._last: dict[str, Any] | None = None

    def _forget_events(self) -> None:
        self._kept_events: deque[dict[str, Any]] = deque(maxlen=limits.HISTORY_EVENTS)
        self._kept_glimpses: deque[dict[str, Any]] = deque(maxlen=limits.HISTORY_EVENTS)

    def _take_row(self, line: bytes) -> bool:
        row = cleaning.parsed(line)
        step = row.get("step")
        figures = [row.get(name) for name in ("step_s", "loss", "samples_per_s")]
        if not is_count(step) or step <= self._step or not all(map(is_finite, figures)):
            return False
        self._step, self._last = step, row
        self._curve.add(step, row["step_s"], row["loss"], row["samples_per_s"])
        return True

    def _take_event(self, line: bytes) -> bool:
        event = cleaning.clean_event(cleaning.parsed(line))
        if event is None:
            return False
        self._kept_events.append(event)
        if event["kind"] == "glimpse":
            self._kept_glimpses.append(event)
        elif event["kind"] in ("started", "resumed"):  # what came after that step is done again
            kept = [glimpse for glimpse in self._kept_glimpses if glimpse["step"] <= event["step"]]
            self._kept_glimpses = deque(kept, maxlen=limits.HISTORY_EVENTS)
        return True
