"""The settings screen: what to train, on what, how long, and what it will take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nicegui import ui

from daisychain.base import limits
from daisychain.base.errors import ConfigError, DaisyError
from daisychain.nn.spikewhale import PARTS, PRESETS
from daisychain.panel.frame import card
from daisychain.panel.request import CHECKS, TASKS
from daisychain.panel.train import words
from daisychain.panel.train.data import DataCard
from daisychain.panel.train.draft import SIZES
from daisychain.panel.train.field import Field, Note, Option, Press
from daisychain.panel.train.resume import ResumeCard
from daisychain.panel.train.running import WRITES
from daisychain.panel.train.summary import Summary

if TYPE_CHECKING:
    from daisychain.panel.train.page import TrainPage

TRAINING = ("steps", "batch", "learning_rate", "warmup", "nodes", "checkpoint_every")
#: Of a slider; a number may be typed up to what the request allows.
RANGES = {
    "width": (*limits.PANEL_WIDTHS, limits.PANEL_WIDTH_STEP),
    "layers": (*limits.PANEL_LAYERS, 1),
    "heads": (*limits.PANEL_HEADS, 1),
    "sequence": (*limits.PANEL_SEQUENCES, limits.PANEL_SEQUENCE_STEP),
    "batch": (1, 64, 1),
    "steps": (10, 20_000, 1),
    "learning_rate": (1e-5, 1e-1, 1),
    "warmup": (0, 500, 5),
    "checkpoint_every": (5, 500, 5),
}
LOGARITHMIC = ("learning_rate", "steps")


class SettingsScreen:
    """Built anew for every task; every change goes into the page's draft, and what it will take is found out again."""

    def __init__(self, page: TrainPage) -> None:
        self._page = page
        self._draft = page.draft
        self._fields: dict[str, Field] = {}
        self._changes = 0
        with ui.element("div").classes("train"):
            with ui.element("div").classes("stack"):
                self._banner = Note("banner", "good")
                self._show = Press("Show it", page.show, "quiet", "show-run")
                self._task_card()
                if self._draft.is_whale:
                    self._model_card()
                DataCard(page, self.changed)
                self._training_card()
                self._resume = ResumeCard(page)
            self._summary = Summary(page)
        self.refresh()
        self.changed()

    def refresh(self) -> None:
        """Bring buttons and notices up to the page's state."""
        state = self._page.state
        running = state.sight.running
        self._banner.say(f"The run {running} is going on." if running else "")
        self._show.set_visibility(running is not None)
        self._summary.refresh()
        self._resume.refresh()

    def changed(self) -> None:
        """Something was set: keep it, and find out what it takes once nothing more is set for a moment."""
        self._changes += 1
        self._summary.reckon()
        self._page.spawn(self._settle(self._changes))

    async def _settle(self, change: int) -> None:
        await asyncio.sleep(limits.SETTLE_S)
        if change != self._changes:
            return
        self._page.keep_settings()
        await self._size(change)
        idle = self._page.state.sight.busy is None
        if idle and self._draft.is_whale and not self._page.sizer.measured and change == self._changes:
            self._summary.reckon("Measuring this machine, to say how long it takes…")
            await self._page.sizer.measure()
            await self._size(change)

    async def _size(self, change: int) -> None:
        draft, chosen = self._draft, self._draft.values
        if not draft.is_whale:
            self._summary.show(None)
            return
        try:
            config = draft.model()
        except DaisyError as error:
            self._summary.show(None, str(error))
            return
        sizing = await self._page.sizer.size(
            config, chosen["batch"], chosen["nodes"], chosen["steps"], lambda: change == self._changes
        )
        if sizing is not None and change == self._changes:
            self._summary.show(sizing)

    def _task_card(self) -> None:
        with card("What to train"):
            options = [Option(task, *words.TASKS[task]) for task in TASKS]
            self._field("choice", "task", "What to train", self._choose_task, options=options, bare=True)

    def _choose_task(self, task: str) -> None:
        self._draft.choose_task(task)
        self._page.keep_settings()
        self._page.render()

    def _model_card(self) -> None:
        with card("Model"):
            options = [Option(name, name.capitalize(), words.PRESETS.get(name, "")) for name in PRESETS]
            self._field("choice", "preset", "Begin with", self._choose_preset, options=options)
            with ui.element("div").classes("sliders"):
                for name in SIZES:
                    self._slider(name)
            with ui.element("details").classes("parts"):
                with ui.element("summary"):
                    self._parts_said = ui.label("")
                with ui.element("div").classes("switches"):
                    for part in PARTS:
                        self._part(part)
            self._say_parts()

    def _choose_preset(self, name: str) -> None:
        self._draft.choose_preset(name)
        for field in (*SIZES, "learning_rate"):
            self._fields[field].put(self._draft.values[field])
        self.changed()

    def _part(self, part: str) -> None:
        label, hint = words.PARTS[part]

        def switch(on: bool) -> None:
            self._draft.switch_part(part, on)
            self._say_parts()
            self.changed()

        on = part not in self._draft.values["without"]
        Field("switch", f"part-{part}", label, on, _is_bool, switch, hint=hint)

    def _say_parts(self) -> None:
        off = len(self._draft.values["without"])
        self._parts_said.set_text(
            f"Parts: all {len(PARTS)} on" if not off else f"Parts: {off} of {len(PARTS)} off"
        )

    def _training_card(self) -> None:
        with card("Training"):
            with ui.element("div").classes("sliders"):
                for name in TRAINING:
                    self._slider(name)
            options = [Option(name, *said) for name, said in words.ARITHMETIC.items()]
            self._field("choice", "arithmetic", "Arithmetic", self._set("arithmetic"), options=options)

    def _slider(self, name: str) -> None:
        label, hint = words.SLIDERS[name]
        if name == "checkpoint_every" and self._draft.values["task"] in WRITES:
            hint = words.CHECKPOINTS_OF_TEXT
        least, most, step = RANGES.get(name, (1, self._page.most_nodes, 1))
        log = name in LOGARITHMIC
        self._field(
            "number", name, label, self._set(name), hint=hint, least=least, most=most, step=step, log=log
        )

    def _set(self, name: str) -> Callable[[Any], None]:
        def put(value: Any) -> None:
            if name == "width":
                self._draft.choose_width(value)
                self._fields["learning_rate"].put(self._draft.values["learning_rate"])
            self._draft.values[name] = value
            if name in SIZES:
                self._fields["preset"].put(self._draft.preset_shown())
            self.changed()

        return put

    def _field(
        self, kind: str, name: str, label: str, on_change: Callable[[Any], None], **props: Any
    ) -> None:
        value = self._draft.preset_shown() if name == "preset" else self._draft.values[name]
        self._fields[name] = Field(kind, name, label, value, _check(name), on_change, **props)


def _check(name: str) -> Callable[[str, Any], Any]:
    """The check of a setting, which names it as the page does."""
    return CHECKS[name]


def _is_bool(label: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{label} is on or off.")
    return value
