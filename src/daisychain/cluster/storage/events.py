"""`events.jsonl`: what happened to a run, a line each: when, after how many steps, which kind, and one sentence."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from daisychain.base import limits


class EventLog:
    """Adds events to a file; `now_s` is unix time."""

    def __init__(self, path: Path, now_s: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now_s = now_s
        self._begun = False

    def add(self, kind: str, step: int, text: str, **extra: Any) -> None:
        """One event of a kind that `cleaning.EVENT_KINDS` names. Raises OSError."""
        sentence = " ".join(text.split())[: limits.EVENT_TEXT_CHARACTERS]
        event = {"time_s": round(self._now_s(), 3), "step": step, "kind": kind, "text": sentence, **extra}
        with open(self._path, "a+b") as file:
            if not self._begun:
                end_last_line(file)
                self._begun = True
            file.write(json.dumps(event).encode() + b"\n")


def end_last_line(file: Any) -> None:
    """Give the last line of a file its end, if a process died while it wrote it."""
    if file.seek(0, 2) and (file.seek(-1, 2), file.read(1))[1] != b"\n":
        file.write(b"\n")
