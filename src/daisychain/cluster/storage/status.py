"""`status.json`: what a run does now, in one small file that is renewed, and whether its process still lives."""

import json
import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from daisychain.base import limits
from daisychain.base.files import write_atomic
from daisychain.cluster.storage import cleaning
from daisychain.cluster.storage.cleaning import known
from daisychain.cluster.storage.tail import read_json


class StatusFile:
    """Writes the status of this process's run: at most every STATUS_EVERY_S, and at once when phase or text change.

    It begins with the figures of the process before it, of which this one goes on. `now_s` is unix time.
    """

    def __init__(self, path: Path, now_s: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now_s = now_s
        self._written_s = -math.inf
        before = known(read_json(path), cleaning.STATUS)
        self._status: dict[str, Any] = {
            "phase": "starting",
            **this_process(),
            "started_s": now_s(),
            **{name: before.get(name, 0) for name in ("step", "steps", "nodes")},
            **{name: before[name] for name in ("loss",) if name in before},
            "text": "",
            "summary": None,
        }

    @property
    def phase(self) -> str:
        return str(self._status["phase"])

    @property
    def step(self) -> int:
        """Steps done, as far as was said."""
        return int(self._status["step"])

    def update(self, **changes: Any) -> None:
        """Take in what is new, and write it if it is time or phase or text are others. Raises OSError."""
        at_once = any(
            changes.get(name, self._status[name]) != self._status[name] for name in ("phase", "text")
        )
        self._status |= changes
        now_s = self._now_s()
        # A clock that was set back must not silence the status.
        if at_once or not 0.0 <= now_s - self._written_s < limits.STATUS_EVERY_S:
            self._written_s = self._status["updated_s"] = now_s
            write_atomic(self._path, json.dumps(self._status).encode(), durable=False)


def this_process() -> dict[str, Any]:
    """What tells this process from every other: host, number, and when it was created (unix seconds)."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "pid_created_s": psutil.Process().create_time(),
    }


def is_alive(status: Mapping[str, Any], now_s: float | None = None) -> bool:
    """Whether the process that wrote a status still lives: looked up on its own machine, and on another one judged by
    how long it is silent."""
    now_s = time.time() if now_s is None else now_s
    silent_s = now_s - status.get("updated_s", 0.0)
    if status.get("host") != socket.gethostname():
        return silent_s < limits.STATUS_SILENT_S
    try:
        process = psutil.Process(status.get("pid", 0))
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        # A number is given again to another process; a clock that was set moves when a process seems created.
        drift_s = abs(process.create_time() - status.get("pid_created_s", 0.0))
        return drift_s <= limits.CLOCK_DRIFT_S or 0.0 <= silent_s < limits.STATUS_FRESH_S
    except (psutil.Error, ValueError, OverflowError, OSError):
        return False
