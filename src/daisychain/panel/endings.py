"""How a trainer that runs no more has ended, from what it left: its status, its last words, its exit code."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daisychain.base import limits
from daisychain.base.errors import INTERRUPTED

KINDS = ("finished", "stopped", "paused", "failed", "lost")


@dataclass(frozen=True)
class Ending:
    """`kind` is one of KINDS; `lost` is a trainer that died without a word. `text` says why, in a line."""

    kind: str
    text: str


def ending_of(folder: Path, words: Sequence[str], started_s: float, exit_code: int | None) -> Ending:
    """Of a job that began at `started_s` (unix) in `folder`: what its status says, if it is this job's; else its last
    words; else its exit code (None: it was no child of this process)."""
    status = read_status(folder)
    phase, text = status.get("phase"), status.get("text")
    updated_s = status.get("updated_s")
    own = isinstance(updated_s, int | float) and updated_s >= started_s - limits.CLOCK_DRIFT_S
    if own and phase in ("finished", "stopped", "paused", "failed"):
        return Ending(str(phase), text if isinstance(text, str) and text else _said(words) or str(phase))
    if said := _said(words):
        return Ending("failed", said)
    if exit_code == INTERRUPTED or exit_code == -15:
        return Ending("stopped", "stopped before the first step, so there is nothing to keep.")
    how = "" if exit_code is None else f" (exit code {exit_code})"
    return Ending("lost", f"the trainer ended without a word{how}; its last checkpoint is kept.")


def last_words(log: Path) -> list[str]:
    """The last lines of a log, as far as there is one."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - limits.JOB_LOG_BYTES))
            text = file.read(limits.JOB_LOG_BYTES).decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()]


def _said(words: Sequence[str]) -> str | None:
    """The last error that a trainer named."""
    for line in reversed(words):
        if line.startswith("error: "):
            return line.removeprefix("error: ")
    return None


def read_status(folder: Path) -> Mapping[str, Any]:
    """What `status.json` of a run's folder says; empty where there is none that can be read."""
    try:
        with (folder / "status.json").open("rb") as file:
            status = json.loads(file.read(limits.RECORD_FILE_BYTES))
    except (OSError, ValueError):
        return {}
    return status if isinstance(status, dict) else {}
