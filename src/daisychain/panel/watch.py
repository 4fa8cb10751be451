"""Runs that somebody looks at: each is read once a second by one task, however many look."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daisychain.base import limits
from daisychain.base.log import warn
from daisychain.cluster.storage.history import Listed, RunReader, list_runs
from daisychain.panel.picture import RunPicture, take_picture


@dataclass
class _Watched:
    looked_s: float
    reader: Any = None
    picture: RunPicture | None = None
    failed: str = ""


@dataclass
class _WatchedList:
    looked_s: float
    runs: list[Listed] | None = None


class Watches:
    """`look` answers at once with the newest picture, and keeps the run being read.

    Nobody says that they have stopped looking: a run that nobody has looked at for a while is no longer read, and
    later forgotten. The files are read in a thread, one run after the other, so that a page never waits for a disk.
    """

    def __init__(
        self,
        open_reader: Callable[[Path], Any] = RunReader,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_reader = open_reader
        self._clock = clock
        self._watched: dict[Path, _Watched] = {}
        self._lists: dict[Path, _WatchedList] = {}
        self._task: asyncio.Task[None] | None = None

    def look(self, run: Path) -> RunPicture | None:
        """The newest picture of a run folder; None until it has been read for the first time."""
        now_s = self._clock()
        watched = self._watched.get(run)
        if watched is None:
            self._make_room()
            watched = self._watched[run] = _Watched(now_s)
        watched.looked_s = now_s
        self._keep_reading()
        return watched.picture

    def list_runs(self, runs: Path) -> list[Listed] | None:
        """The runs in a folder, newest first; None until it has been read for the first time."""
        watched = self._lists.setdefault(runs, _WatchedList(0.0))
        watched.looked_s = self._clock()
        self._keep_reading()
        return watched.runs

    async def first_look(self, run: Path, limit_s: float) -> RunPicture | None:
        """As `look`, after waiting a moment for a run that has never been read."""
        end_s = self._clock() + limit_s
        while (picture := self.look(run)) is None and self._clock() < end_s:
            await asyncio.sleep(limits.WAIT_SLICE_S)
        return picture

    def _keep_reading(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._read_all())

    def _make_room(self) -> None:
        while len(self._watched) >= limits.WATCH_RUNS:
            del self._watched[min(self._watched, key=lambda path: self._watched[path].looked_s)]

    async def _read_all(self) -> None:
        """Until nobody looks."""
        while True:
            now_s = self._clock()
            for runs, listed in self._lists.items():
                if listed.runs is None or now_s - listed.looked_s <= limits.WATCH_IDLE_S:
                    listed.runs = await asyncio.to_thread(list_runs, runs)
            for path, watched in list(self._watched.items()):
                unseen_s = now_s - watched.looked_s
                if unseen_s > limits.WATCH_FORGET_S:
                    self._watched.pop(path, None)
                elif unseen_s <= limits.WATCH_IDLE_S or watched.picture is None:
                    await asyncio.to_thread(self._refresh, watched, path)
            looks_s = [watched.looked_s for watched in self._watched.values()]
            looks_s += [listed.looked_s for listed in self._lists.values()]
            if all(now_s - looked_s > limits.WATCH_IDLE_S for looked_s in looks_s):
                return
            await self._until_due(now_s)

    async def _until_due(self, began_s: float) -> None:
        """The next second, or as soon as there is something that has never been read."""
        while self._clock() - began_s < limits.WATCH_EVERY_S:
            await asyncio.sleep(limits.WAIT_SLICE_S)
            if any(watched.picture is None for watched in self._watched.values()):
                return
            if any(listed.runs is None for listed in self._lists.values()):
                return

    def _refresh(self, watched: _Watched, path: Path) -> None:
        """Read what is new, and take a new picture if anything is. What goes wrong is said once."""
        old = watched.picture
        try:
            new = watched.reader is None
            watched.reader = watched.reader or self._open_reader(path)
            new |= watched.reader.refresh()
            if new or old is None or _files_changed(watched.reader, old):
                watched.picture = take_picture(watched.reader, path, old.version + 1 if old else 0)
            watched.failed = ""
        except Exception as error:  # one broken folder must not end the reading of all others
            reason = f"{type(error).__name__}: {error}"
            if watched.failed != reason:
                warn(f"run {path.name} cannot be read ({reason}).")
            watched.failed = reason
            watched.picture = old or RunPicture(path, exists=True, text=f"It cannot be read: {reason}")


def _files_changed(reader: Any, old: RunPicture) -> bool:
    """Whether a checkpoint, the model or the folder itself came or went."""
    gone = old.path.is_dir() != old.exists
    return (
        gone
        or tuple(reader.checkpoints()) != old.checkpoints
        or (reader.model is None) != (old.model_bytes is None)
    )
