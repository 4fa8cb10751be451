"""What a person sees of a run while it goes on and when it has ended; on standard error."""

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from daisychain.cluster.config import Summary, TrainConfig
from daisychain.cluster.storage.journal import four_digits
from daisychain.cluster.storage.progress import StepReport
from daisychain.cluster.storage.run_folder import RUNS
from daisychain.tasks import Task

PLAIN_LINES = 20  # of a run whose output is not a terminal
REFRESHES_PER_S = 8
PERCENT = ("accuracy",)

console = Console(stderr=True, highlight=False)


class Progress(contextlib.AbstractContextManager["Progress"]):
    """A live view in a terminal, a line now and then elsewhere, nothing when quiet."""

    def __init__(self, config: TrainConfig, quiet: bool) -> None:
        self._quiet = quiet
        self._plain_every = max(1, config.steps // PLAIN_LINES)
        self._live: Live | None = None

    def __exit__(self, *exception: object) -> None:
        if self._live:
            self._live.stop()

    def step(self, report: StepReport) -> None:
        """Show one step."""
        if self._live is None and console.is_terminal and not self._quiet:
            self._live = Live(console=console, refresh_per_second=REFRESHES_PER_S)
            self._live.start()
        if self._live:
            self._live.update(_view(report))
        elif not self._quiet and (report.step % self._plain_every == 0 or report.step == report.steps):
            shares = "/".join(map(str, report.shares))
            console.print(
                f"step {report.step}/{report.steps}  loss {report.loss:.4f}  {report.samples_per_s:,.0f} samples/s  "
                f"shares {shares}  {_clock(report.left_s)} left"
            )


def _view(report: StepReport) -> Group:
    line = Table.grid(padding=(0, 2))
    line.add_row(
        Text(f"step {report.step}/{report.steps}"),
        ProgressBar(total=report.steps, completed=report.step, width=32),
        Text(f"loss {report.loss:.4f}", style="bold"),
        Text(f"{report.samples_per_s:,.0f} samples/s"),
        Text(f"{_clock(report.left_s)} left", style="dim"),
    )
    nodes = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("node", "share", "samples/s while computing"):
        nodes.add_column(heading, justify="right")
    for rank, (share, rate) in enumerate(zip(report.shares, report.node_samples_per_s, strict=True)):
        nodes.add_row(str(rank), str(share), f"{rate:,.0f}")
    return Group(line, nodes)


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return (
        f"{whole // 60}:{whole % 60:02d}" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
    )


def metric_in_words(name: str, value: float) -> str:
    """`accuracy 97.2 %`, `bits_per_byte 3.412`."""
    return f"{name} {value:.1%}" if name in PERCENT else f"{name} {four_digits(value)}"


def summary(done: Summary, task: Task, kernel: str) -> None:
    """What a newcomer wants to know of a run that has ended, and what to do next."""
    rows = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    rows.add_column(style="dim")
    rows.add_column(overflow="fold")
    rows.add_row("loss", f"{done.loss_first:.4f} → {done.loss_last:.4f} in {done.steps} steps")
    if done.metrics:
        first = {task.metric: done.metrics[task.metric]} if task.metric in done.metrics else {}
        parts = [metric_in_words(k, v) for k, v in {**first, **done.metrics}.items()]
        rows.add_row("held out", Text(", ".join(parts), style="bold"))
    rows.add_row("speed", f"{done.samples_per_s:,.0f} samples/s by {done.nodes} node{'s' * (done.nodes > 1)}")
    rows.add_row("replicas", _replicas_in_words(done))
    for unit, backends in done.unit_invocations.items():
        if backends:
            rows.add_row(unit, ", ".join(f"{count:,} on {name}" for name, count in backends.items()))
    rows.add_row("kernel", kernel)
    if done.checkpoint:
        rows.add_row("checkpoint", str(done.checkpoint))
    if done.model:
        rows.add_row("model", str(done.model))
    rows.add_row("next", f"{_command()} {_next(done, task)}")
    title = "stopped" if done.stopped else "done"
    console.print(Text(f"\n{done.task}: {title}", style="bold green"))
    console.print(rows)


def _command() -> str:
    """How this program is called from this folder."""
    if shutil.which("daisychain"):
        return "daisychain"
    script = Path(sys.executable).with_name("daisychain")
    return os.path.relpath(script) if script.is_relative_to(Path.cwd()) else str(script)


def _next(done: Summary, task: Task) -> str:
    """The command for what a person will want now: to use the model, or to go on with the run."""
    if done.model:
        own_code = f" --task {done.task}" if ":" in done.task else ""
        return task.usage.format(model=done.model) + own_code
    if done.checkpoint is None:
        return "train --help"
    folder = done.checkpoint.parents[1]
    place = [] if folder.parent == RUNS else ["--runs", str(folder.parent)]
    return shlex.join(["train", "--resume", "--name", folder.name, *place, "--nodes", str(done.nodes)])


def _replicas_in_words(done: Summary) -> str:
    if done.replica_diff:
        return f"{done.replica_diff} of {done.nodes} differ"
    same = "identical to the last bit on every node" if done.nodes > 1 else "one"
    return f"{same}, state {done.state_hashes[0][:16]}…"


def as_json(done: Summary, task: Task, kernel: str) -> Mapping[str, Any]:
    """The object that `--json` ends with."""
    return {
        "task": done.task,
        "nodes": done.nodes,
        "steps": done.steps,
        "stopped": done.stopped,
        "loss_first": done.loss_first,
        "loss_last": done.loss_last,
        "metric": done.metrics.get(task.metric),
        "metric_name": task.metric,
        "metrics": dict(done.metrics),
        "state_hashes": list(done.state_hashes),
        "replica_diff": done.replica_diff,
        "unit_invocations": {unit: sum(by.values()) for unit, by in done.unit_invocations.items()},
        "unit_invocations_by_backend": {unit: dict(by) for unit, by in done.unit_invocations.items()},
        "kernel": kernel,
        "samples_per_s": done.samples_per_s,
        "shares": list(done.shares),
        "checkpoint": done.checkpoint and str(done.checkpoint),
        "model": done.model and str(done.model),
    }
