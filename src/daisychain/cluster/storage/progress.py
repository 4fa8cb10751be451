"""What the outside sees of a run, step by step: a callback, metrics.jsonl, a status file."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from daisychain.base import limits
from daisychain.base.clock import Clock
from daisychain.base.files import write_atomic
from daisychain.base.log import warn
from daisychain.cluster.storage.run_folder import RunFolder


@dataclass(frozen=True)
class StepReport:
    """One step, as every node knows it. Lists are in roster order."""

    step: int  # steps done, this one included
    steps: int
    loss: float
    samples_per_s: float  # of all nodes together, waits included
    node_samples_per_s: tuple[float, ...]  # of each while it computed; 0 without samples
    shares: tuple[int, ...]
    step_s: float
    left_s: float


Report = Callable[[StepReport], None]


class Recorder:
    """Writes reports to a run folder and a status file. A disk that refuses is named once and does not end the run."""

    def __init__(self, folder: RunFolder | None, status_file: Path | None, clock: Clock) -> None:
        self._folder = folder
        self._status_file = status_file
        self._clock = clock
        self._status_due_s = clock.now_s()
        self._warned = False

    def __call__(self, report: StepReport) -> None:
        try:
            if self._folder:
                self._folder.append_metrics(asdict(report))
            if self._status_file and (
                self._clock.now_s() >= self._status_due_s or report.step == report.steps
            ):
                self._status_due_s = self._clock.now_s() + limits.STATUS_EVERY_S
                write_atomic(self._status_file, json.dumps(asdict(report)).encode())
        except OSError as error:
            if not self._warned:
                warn(f"progress cannot be written ({error}); the run goes on without.")
            self._warned = True
