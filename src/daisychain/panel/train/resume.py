"""Go on with an earlier run: those that have a checkpoint, and up to which step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from daisychain.base import limits
from daisychain.base.errors import ConfigError, DaisyError
from daisychain.cluster.storage.history import Listed, list_runs
from daisychain.panel import words as said
from daisychain.panel.request import CHECKS, JobRequest
from daisychain.panel.train import state as machine
from daisychain.panel.train.field import Field, Note, Option, Press

if TYPE_CHECKING:
    from daisychain.panel.train.page import TrainPage


class ResumeCard:
    """A run keeps its own settings; of these, only the number of steps can grow."""

    def __init__(self, page: TrainPage) -> None:
        self._page = page
        self._runs = {run.name: run for run in resumable(page)}
        self._press: Press | None = None
        if not self._runs:
            return
        newest = next(iter(self._runs))
        with ui.element("details").classes("card resume"):
            with ui.element("summary"), ui.element("h2"):
                ui.html("Go on with an earlier run", sanitize=False, tag="span")
            options = [Option(name, _line(run)) for name, run in self._runs.items()]
            self._run = Field("list", "resume", "Run", newest, self._known, self._chosen, options=options)
            self._steps = Field(
                "text", "resume-steps", "Steps in all", "", _steps, lambda _: self.refresh(), most=9
            )
            self._said = Note("resume-said", "calm")
            self._press = Press("Go on", self._go_on, "", "go-on")
        self._chosen(newest)

    def refresh(self) -> None:
        """Whether it can be pressed."""
        if self._press is not None:
            trouble = machine.start_trouble(self._page.state, None, None)
            self._press.allow(not trouble)

    def _known(self, label: str, value: Any) -> str:
        if not isinstance(value, str) or value not in self._runs:
            raise ConfigError(f"{label}: choose one of the list.")
        return value

    def _chosen(self, name: str) -> None:
        run = self._runs[name]
        self._steps.put(str(max(run.steps, run.step + 1) if run.step < run.steps else 2 * run.step))
        done = f"{run.step:,} of {run.steps:,} steps done"
        self._said.say(f"{done}, phase: {said.phase(run.phase)[0]}. It goes on from its newest checkpoint.")
        self.refresh()

    async def _go_on(self) -> None:
        run = self._runs[self._run.value]
        try:
            steps = _steps("Steps in all", self._steps.value)
            request = JobRequest(
                resume=run.name, steps=steps, nodes=max(1, min(run.nodes, self._page.most_nodes))
            )
        except DaisyError as error:
            self._steps.tell(error=str(error))
            return
        if steps <= run.step:
            self._steps.tell(error=f"{run.step:,} steps are done; give more, up to which it goes on.")
            return
        await self._page.begin(request)


def resumable(page: TrainPage) -> list[Listed]:
    """The runs that have a checkpoint and do not go on now, newest first."""
    found = []
    for run in list_runs(page.context.runs)[: limits.RUNS_SHOWN]:
        has_checkpoint = any((run.path / "checkpoints").glob("step-*.safetensors"))
        if has_checkpoint and run.phase not in ("starting", "training"):
            found.append(run)
    return found


def _line(run: Listed) -> str:
    loss = "" if run.loss is None else f", loss {run.loss:.3f}"
    return f"{run.name}: step {run.step:,} of {run.steps:,}{loss}"


def _steps(label: str, value: Any) -> int:
    text = value.replace(",", "").strip() if isinstance(value, str) else value
    number = (
        int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10 else text
    )
    found: int = CHECKS["steps"](label, number)
    return found
