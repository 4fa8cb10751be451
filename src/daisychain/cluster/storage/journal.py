"""What a run tells about itself while it goes on: nodes.json, metrics.jsonl, events.jsonl, status.json.

Written by the first node, or by a survivor of it; read by `history`. A disk that refuses is named once, and the run
goes on without. The run never waits for whoever reads.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from daisychain.base import limits
from daisychain.base.clock import Clock, SystemClock
from daisychain.base.errors import StoppedError
from daisychain.base.files import write_atomic
from daisychain.base.log import warn
from daisychain.cluster.config import Summary
from daisychain.cluster.storage.cleaning import WORKING
from daisychain.cluster.storage.events import EventLog
from daisychain.cluster.storage.progress import StepReport
from daisychain.cluster.storage.run_folder import EVENTS, METRICS, NODES, STATUS
from daisychain.cluster.storage.status import StatusFile


class Journal:
    """The record of a run in `folder`; None keeps none, but for the `status_file` of the user's own."""

    def __init__(
        self, folder: Path | None, status_file: Path | None = None, clock: Clock | None = None
    ) -> None:
        self.folder = folder
        self._status_file = status_file
        self._clock = clock or SystemClock()
        self._status_due_s = self._clock.now_s()
        self._warned = False
        self._status = StatusFile(folder / STATUS) if folder else None
        self._events = EventLog(folder / EVENTS) if folder else None

    def starting(self, text: str) -> None:
        """There is a process, and no step yet."""
        self._update(phase="starting", text=text)

    def begin(
        self, step: int, steps: int, nodes: Sequence[Mapping[str, Any]], config: Mapping[str, Any]
    ) -> None:
        """The nodes have met, and go on from `step`."""
        folder = self.folder
        if folder is None:
            return
        text = json.dumps(nodes, indent=1).encode() + b"\n"
        self._guarded(lambda: write_atomic(folder / NODES, text, durable=False))
        count = f"{len(nodes)} node{'s' * (len(nodes) != 1)}"
        if step:
            said = f"goes on after step {step} of {steps}, on {count}"
        else:
            said = f"{config.get('task')}: {steps} steps of {config.get('batch_samples')} samples, on {count}"
        self.event("resumed" if step else "started", step, said, config=dict(config))
        self._update(phase="training", text="", step=step, steps=steps, nodes=len(nodes))

    def step(self, report: StepReport) -> None:
        """One step more."""
        row = asdict(report)
        if self.folder:
            line = json.dumps(row) + "\n"
            self._guarded(lambda: self._append_row(line))
            self._update(step=report.step, loss=report.loss, left_s=report.left_s)
        now_s = self._clock.now_s()
        status_file = self._status_file
        if status_file and (now_s >= self._status_due_s or report.step == report.steps):
            self._status_due_s = now_s + limits.STATUS_EVERY_S
            self._guarded(lambda: write_atomic(status_file, json.dumps(row).encode()))

    def event(self, kind: str, step: int, text: str, **extra: Any) -> None:
        """Something happened after so many steps."""
        events = self._events
        if events:
            self._guarded(lambda: events.add(kind, step, text, **extra))

    def trouble(self, kind: str, step: int, text: str, **extra: Any) -> None:
        """What ends the run; how it is left follows when that is done."""
        self.event(kind, step, text, **extra)
        self._update(text=text, step=step)

    def checkpoint(self, step: int, path: Path) -> None:
        """A checkpoint was written."""
        bytes_long = path.stat().st_size if path.exists() else 0
        size = f"{bytes_long / 1e6:,.1f} MB" if bytes_long >= 1e5 else f"{bytes_long / 1e3:,.1f} KB"
        said = f"saved {path.name}, {size}"
        self.event("checkpoint", step, said, path=path.name, bytes=bytes_long)

    def end(
        self, phase: str, text: str, step: int, summary: Mapping[str, Any] | None = None, **extra: Any
    ) -> None:
        """The last word; whatever is said after it is not heard."""
        if self._status and self._status.phase in WORKING:
            self.event(phase, step, text, **extra)
            self._update(phase=phase, text=text, step=step, summary=summary)

    def finished(self, summary: Summary) -> None:
        """The run has come to its end, or to the one that a person asked for."""
        figures = asdict(summary) | {
            "checkpoint": summary.checkpoint and summary.checkpoint.name,
            "model": summary.model and summary.model.name,
        }
        metrics = ", ".join(f"{name} {four_digits(value)}" for name, value in summary.metrics.items())
        if summary.stopped:
            phase, text = "stopped", f"stopped after step {summary.steps}, loss {summary.loss_last:.4f}"
        else:
            phase, text = "finished", f"loss {summary.loss_last:.4f}" + (metrics and f"; held out: {metrics}")
        self.end(phase, text, summary.steps, figures, metrics=dict(summary.metrics))

    @contextlib.contextmanager
    def failing(self) -> Iterator[None]:
        """Whatever is raised inside is how the run ended, unless that was said already."""
        try:
            yield
        except StoppedError as error:
            self.end("stopped", str(error), self._step)
            raise
        except Exception as error:
            self.end("failed", str(error) or type(error).__name__, self._step)
            raise

    @property
    def _step(self) -> int:
        return self._status.step if self._status else 0

    def _append_row(self, line: str) -> None:
        assert self.folder
        with open(self.folder / METRICS, "a", encoding="utf-8") as file:
            file.write(line)

    def _update(self, **changes: Any) -> None:
        if self._status:
            status = self._status
            self._guarded(lambda: status.update(**changes))

    def _guarded(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            if not self._warned:
                warn(f"progress cannot be written ({error}); the run goes on without.")
            self._warned = True


def four_digits(value: float) -> str:
    """`0.1574`, `123.9`; a large one whole: `13,080`."""
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e15 else f"{value:.4g}"
