"""How a trainer that runs no more has ended, from what it left: its status, its last words, its exit code."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daisychain.base import limits
from daisychain.base.errors import INTERRUPTED
from daisychain.cluster.storage.cleaning import as_object
from daisychain.cluster.storage.tail import open_regular, read_json

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
    how = f" (exit code {exit_code})" if exit_code else ""  # 0: it was ended by force, and that took the code
    return Ending("lost", f"the trainer ended without a word{how}; {what_is_kept(folder)}.")


def what_is_kept(folder: Path) -> str:
    """Of a run that could not save its state at its end."""
    kept = any((folder / "checkpoints").glob("step-*.safetensors"))
    return "its last checkpoint is kept" if kept else "it had no checkpoint yet, so nothing is kept"


def last_words(log: Path) -> list[str]:
    """The last lines of a log, as far as there is one."""
    try:
        with open_regular(log) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limits.JOB_LOG_BYTES))
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
    return as_object(read_json(folder / "status.json"))
