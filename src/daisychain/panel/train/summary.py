"""Beside the settings: what the model will take, whether it fits, and Start."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nicegui import ui

from daisychain.panel import words as said
from daisychain.panel.live import Live
from daisychain.panel.markup import Markup, el, figure
from daisychain.panel.train import state as machine
from daisychain.panel.train.field import Note, Press
from daisychain.panel.train.sizing import Sizing

if TYPE_CHECKING:
    from daisychain.panel.train.page import TrainPage

UNKNOWN = "…"


class Summary:
    """Follows the settings; `show` is told what they take."""

    def __init__(self, page: TrainPage) -> None:
        self._page = page
        self._unfit: str | None = None
        with ui.element("aside").classes("card summary").props('aria-label="What it takes"'):
            with ui.element("h2"):
                ui.html("What it takes", sanitize=False, tag="span")
            self._facts = Live(facts(None) if page.draft.is_whale else small())
            self._reckoning = Note("reckoning", "calm")
            self._trouble = Note("unfit", "warn")
            self._start = Press("Start", page.start, "main", "start")
            self._why = Note("why", "calm")
            self._notice = Note("notice", "bad")

    def reckon(self, text: str = "") -> None:
        """The figures are being found out: those that are shown are of the settings before."""
        if self._page.draft.is_whale:
            self._facts.classes(add="stale")
            self._reckoning.say(text)

    def show(self, sizing: Sizing | None, trouble: str | None = None) -> None:
        """What the settings take; None for a task that is small, and for a model that cannot be built."""
        self._facts.classes(remove="stale")
        self._reckoning.say("")
        self._unfit = trouble or (sizing.unfit if sizing else None)
        self._facts.show(facts(sizing) if self._page.draft.is_whale else small())
        self._trouble.say(self._unfit or "")
        self._page.unfit = self._unfit
        self.refresh()

    def refresh(self) -> None:
        """Whether Start can be pressed, and why not."""
        state = self._page.state
        trouble = machine.start_trouble(state, self._unfit, self._page.draft.missing())
        self._start.allow(not trouble)
        self._start.set_text("Starting…" if state.starting else "Start")
        self._why.say("" if state.starting or trouble == self._unfit else trouble)
        self._notice.say(state.notice)


def facts(sizing: Sizing | None) -> Markup:
    """The figures, or places for them."""
    found = sizing.estimate if sizing else None
    numbers = None if found is None else found.parameters
    memory = None if found is None else found.memory_bytes
    nodes = sizing.nodes if sizing else 1
    step_s = found.step_s if found else None
    total_s = sizing.steps_s if sizing else None
    rows = [
        _row("Parameters", figure("parameters", _or(numbers, said.short), numbers)),
        _row(
            "Memory" if nodes == 1 else "Memory of a node", figure("memory", _or(memory, said.size), memory)
        ),
    ]
    if nodes > 1:
        all_bytes = None if memory is None else memory * nodes
        rows.append(_row(f"All {nodes} nodes", figure("memory-all", _or(all_bytes, said.size), all_bytes)))
    if sizing:
        free = figure("memory-free", said.size(sizing.free_bytes), sizing.free_bytes)
        rows.append(_row("Free here", free, aside=True))
    rows += [
        _row("A step", figure("step-time", _about(step_s, said.span), step_s)),
        _row("All steps", figure("total-time", _about(total_s, said.duration), total_s)),
    ]
    why = el("p", found.why, class_="hint") if found and found.why else None
    return el("div", el("dl", *rows, class_="takes"), why)


def small() -> Markup:
    return el("p", "A small model: it takes little memory, and a few minutes at most.", class_="hint")


def _row(label: str, shown: Markup, aside: bool = False) -> Markup:
    """`aside`: left out where there is little room."""
    return el("div", el("dt", label), el("dd", shown), class_="aside" if aside else None)


def _about(value: float | None, show: Callable[[float], str]) -> str:
    return UNKNOWN if value is None else f"≈ {show(value)}"


def _or(value: float | None, show: Callable[[float], str]) -> str:
    return UNKNOWN if value is None else show(value)
