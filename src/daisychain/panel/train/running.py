"""The screens of a run: while it goes on, with Stop; and after its end, with what it is good for."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from nicegui import ui

from daisychain.base import limits
from daisychain.base.errors import ConfigError, DaisyError
from daisychain.panel import words as said
from daisychain.panel.frame import card
from daisychain.panel.live import Live
from daisychain.panel.markup import Markup, el
from daisychain.panel.request import JobRequest
from daisychain.panel.run_view import run_view
from daisychain.panel.train import state as machine
from daisychain.panel.train.export import export_pt
from daisychain.panel.train.field import Field, Note, Press
from daisychain.panel.train.writing import CHECKS, Wish

if TYPE_CHECKING:
    from daisychain.panel.train.page import TrainPage

WRITES = ("spikewhale", "text")
TONES = {"finished": "good", "stopped": "good", "paused": "warn", "failed": "bad", "lost": "bad"}


class RunScreen:
    """A run that goes on."""

    def __init__(self, page: TrainPage, name: str) -> None:
        self._page = page
        with ui.element("section").classes("card controls"), ui.element("div").classes("row"):
            Press("← Back to settings", page.back, "quiet", "back")
            with ui.element("div").classes("who"):
                ui.label(name).classes("name")
                self._data = Live()
            self._stop = Press("Stop", page.stop, "danger", "stop")
        self._notice = Note("notice", "calm")
        run_view(page.context, page.context.runs / name, title=False, started_s=self._started_s)
        self.refresh()

    def _started_s(self) -> float | None:
        job = self._page.job
        return job.started_s if job and job.name == self._page.state.run else None

    def refresh(self) -> None:
        """Bring the button that stops up to what is known."""
        state = self._page.state
        text, can = machine.stop_button(state.sight, limits.JOB_STOP_GRACE_S)
        self._stop.set_text(text)
        self._stop.allow(can)
        self._notice.say(state.notice)
        job = self._page.job
        self._data.show(el("small", data_of(job.request) if job else "", data_testid="data-of"))


class EndedScreen:
    """A run that has ended: why, what it can write, its files, and how to go on."""

    def __init__(self, page: TrainPage, name: str) -> None:
        self._page = page
        self._folder = page.context.runs / name
        ending = page.state.ending
        assert ending is not None
        with ui.element("section").classes("card controls"):
            with ui.element("div").classes("row"):
                Press("← Back to settings", page.back, "quiet", "back")
                ui.label(name).classes("name")
                self._show = Press("Show the run that goes on", page.show, "", "show-run")
            tone = TONES.get(ending.kind, "calm")
            badge = el("strong", said.phase(ending.kind)[0])
            text = ending.text.removeprefix(f"{ending.kind} ")
            Live(el("p", badge, " · ", text, class_=f"notice {tone}", data_testid="ending"))
            if ending.kind in ("failed", "lost"):
                self._words(name)
            with ui.element("div").classes("row again") as self._more_row:
                self._again = Press("Go on with it", self._go_on, "", "go-on")
                self._steps = Field(
                    "text", "more-steps", "up to step", self._more(), _digits, _ignore, most=9
                )
            self._notice = Note("notice", "bad")
        if self._model() is not None:
            if page.task_of(name) in WRITES:
                WritingCard(page, self._folder)
            with card("The model"):
                self._export(name)
        run_view(page.context, self._folder, title=False)
        self.refresh()

    def refresh(self) -> None:
        """Whether it can go on, and whether another run does."""
        state = self._page.state
        can = not machine.start_trouble(state, None, None) and bool(self._checkpoints())
        self._again.allow(can)
        self._more_row.set_visibility(bool(self._checkpoints()))
        self._show.set_visibility(state.sight.running is not None)
        self._notice.say(state.notice)

    def _words(self, name: str) -> None:
        lines = self._page.jobs.log_tail(name)[-limits.LOG_LINES_SHOWN :]
        if lines:
            text = "\n".join(lines)
            Live(el("details", el("summary", "What the trainer said last"), el("pre", text)))

    def _model(self) -> Path | None:
        return model_of(self._folder)

    def _checkpoints(self) -> list[Path]:
        return checkpoints_of(self._folder)

    def _more(self) -> str:
        """Steps to suggest: those that were planned, if they are not done yet, else half as many again."""
        planned, done = self._page.steps_of(self._folder.name)
        return str(planned if done < planned else done + max(1, planned // 2))

    async def _go_on(self) -> None:
        await self._page.go_on(self._folder.name, self._steps.value, self._steps)

    def _export(self, name: str) -> None:
        base = f"/runs/{quote(name)}/files/"
        final = (self._folder / "model.safetensors").is_file()
        newest = self._checkpoints()
        file = "model.safetensors" if final else (newest[0].name if newest else "")
        about = "The final model" if final else "The newest checkpoint"
        with ui.element("div").classes("row"):
            Live(
                el(
                    "a",
                    f"{about} (.safetensors)",
                    href=base + quote(file),
                    class_="button",
                    data_testid="download",
                )
            )
            if final:
                press = Press("For PyTorch (.pt)", lambda: self._export_pt(press, link), "", "export-pt")
                link = Live(self._pt_link(base))
        self._export_said = Note("export-said", "bad")
        command = in_terminal(self._page.task_of(name), str(self._model()))
        Live(el("p", "Or use it in a terminal:", class_="hint"))
        Live(el("pre", el("code", command, data_testid="in-terminal")))

    def _pt_link(self, base: str) -> Markup:
        if not (self._folder / "model.pt").is_file():
            return Markup("")
        return el(
            "a", "Download model.pt", href=base + "model.pt", class_="button", data_testid="download-pt"
        )

    async def _export_pt(self, press: Press, link: Live) -> None:
        press.allow(False)
        try:
            trouble = await export_pt(self._folder)
            self._export_said.say(trouble)
            link.show(self._pt_link(f"/runs/{quote(self._folder.name)}/files/"))
        finally:
            press.allow(True)


class WritingCard:
    """A prompt, and what the model makes of it, as it comes."""

    def __init__(self, page: TrainPage, folder: Path) -> None:
        self._page = page
        self._folder = folder
        self._task: asyncio.Task[str] | None = None
        with card("Let it write"):
            self._prompt = Field(
                "area", "prompt", "Prompt", "The ", _prompt, _ignore, most=limits.PROMPT_CHARACTERS
            )
            with ui.element("div").classes("sliders"):
                self._tokens = Field(
                    "number", "tokens", "Length", 100, CHECKS["tokens"], _ignore,
                    least=10, most=limits.PROMPT_TOKENS, step=10, hint="Tokens to add.",
                )  # fmt: skip
                self._temperature = Field(
                    "number", "temperature", "Temperature", 0.8, CHECKS["temperature"], _ignore,
                    least=0, most=2, step=0.1, hint="0 takes the likeliest; higher dares more.",
                )  # fmt: skip
                self._seed = Field(
                    "number", "seed", "Seed", 0, CHECKS["seed"], _ignore,
                    least=0, most=100, step=1, hint="The same seed writes the same text.",
                )  # fmt: skip
            with ui.element("div").classes("row"):
                self._write = Press("Write", self._start, "main", "write")
                self._cancel = Press("Stop writing", self._end, "quiet", "stop-writing")
            self._text = Live(classes="written")
            self._said = Note("writing-said", "warn")
        self._cancel.set_visibility(False)

    async def _start(self) -> None:
        if self._task is not None:
            return
        model = self._model()
        try:
            wish = Wish(self._prompt.value, self._tokens.value, self._temperature.value, self._seed.value)
        except DaisyError as error:
            self._said.say(str(error))
            return
        if model is None:
            self._said.say("The model is not there any more.")
            return
        self._busy(True)
        self._said.say("")
        shown: list[str] = []
        self._show("", writing=True)

        def more(piece: str) -> None:
            shown.append(piece)
            self._show("".join(shown), writing=True)

        self._task = asyncio.create_task(self._page.writer.write(model, wish, more))
        try:
            self._said.say(await self._task)
        except asyncio.CancelledError:
            self._said.say("Stopped.")
        except DaisyError as error:
            self._said.say(str(error))
        finally:
            self._task = None
            self._show("".join(shown), writing=False)
            self._busy(False)

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _busy(self, busy: bool) -> None:
        self._write.allow(not busy)
        self._cancel.set_visibility(busy)

    def _show(self, text: str, writing: bool) -> None:
        cursor = el("span", "▍", class_="cursor") if writing else None
        shown = el("p", text, cursor, data_testid="written", data_writing="yes" if writing else "no")
        self._text.show(shown if text or writing else Markup(""))

    def _model(self) -> Path | None:
        return model_of(self._folder)


def checkpoints_of(folder: Path) -> list[Path]:
    """The newest first."""
    return sorted((folder / "checkpoints").glob("step-*.safetensors"), reverse=True)


def model_of(folder: Path) -> Path | None:
    """The final model of a run, or its newest checkpoint."""
    found = (folder / "model.safetensors", *checkpoints_of(folder))
    return next((path for path in found if path.is_file()), None)


def in_terminal(task: str, model: str) -> str:
    """The command that uses a model."""
    model = shlex.quote(model)
    if task in WRITES:
        return f'daisychain generate {model} --prompt "The "'
    return f"daisychain predict {model} {'examples/digits.csv' if task == 'digits' else 'ROWS.csv'}"


def data_of(request: JobRequest) -> str:
    """What a run learns from, in words."""
    if request.resume:
        return "going on with its own data"
    if request.task == "digits":
        return "handwritten digits"
    if request.source == "dataset":
        parts = [part for part in (request.dataset_config, request.split, request.column) if part]
        return f"{request.dataset} ({', '.join(parts)})"
    return Path(request.data).name if request.source == "file" and request.data else "built-in text"


def _prompt(label: str, value: object) -> str:
    return Wish(value).prompt  # type: ignore[arg-type]  # it checks the type


def _ignore(value: object) -> None:
    """It is read when a button is pressed."""


def _digits(label: str, value: object) -> str:
    text = value.replace(",", "").strip() if isinstance(value, str) else ""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ConfigError(f"{label}: give a whole number.")
    return text
