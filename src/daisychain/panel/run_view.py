"""The live view of one run, the same wherever a run is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nicegui import ui

from daisychain.base import limits
from daisychain.panel import run_parts
from daisychain.panel.charts import run_chart
from daisychain.panel.context import PanelContext
from daisychain.panel.frame import card
from daisychain.panel.live import Chart, Live
from daisychain.panel.markup import Markup
from daisychain.panel.picture import RunPicture

Part = Callable[[RunPicture], Markup]


class RunView:
    """The elements of a view; `show` brings them up to a picture, and only what differs is sent."""

    def __init__(self, path: Path, *, title: bool) -> None:
        self._parts: list[tuple[Live, str, Part]] = []
        self._optional: list[tuple[ui.element, Part]] = []
        self._shown = -1
        with ui.element("section").classes("card run").props('aria-label="Run"'):
            self._add(run_parts.head if title else run_parts.nameless_head)
            self._add(run_parts.trouble)
            self._add(run_parts.facts)
            self._chart = Chart(run_chart(None, 0), label=f"Loss and samples a second of {path.name}")
            self._add(run_parts.agreement)
        self._card("Samples as it learns", run_parts.glimpses, optional=True)
        with ui.element("div").classes("columns"):
            with ui.element("div").classes("stack"):
                self._card("Nodes and their share of a step", run_parts.nodes)
                self._card("Events", run_parts.events)
            with ui.element("div").classes("stack"):
                self._card("Unit invocations", run_parts.units)
                self._card("Checkpoints", run_parts.files)

    def _add(self, part: Part) -> None:
        self._parts.append((Live(), part.__name__, part))

    def _card(self, heading: str, part: Part, *, optional: bool = False) -> None:
        with card(heading) as section:
            self._add(part)
        if optional:
            section.set_visibility(False)
            self._optional.append((section, part))

    def show(self, picture: RunPicture) -> None:
        """Bring every part up to this picture."""
        if picture.version == self._shown:
            return
        self._shown = picture.version
        for live, name, part in self._parts:
            live.show(picture.once(name, part))
        for section, part in self._optional:
            section.set_visibility(bool(picture.once(part.__name__, part)))
        self._chart.show(picture.once("chart", lambda each: run_chart(each.series, each.steps)))


def run_view(
    context: PanelContext,
    path: Path,
    *,
    title: bool = True,
    started_s: Callable[[], float | None] = lambda: None,
    on_picture: Callable[[RunPicture], None] | None = None,
) -> None:
    """Show the run in folder `path`, which need not exist yet, in the slot that is open; it follows the run by itself.

    `title`: with the run's name above it. `started_s`: when its trainer began, of which what the run said before is no
    news. `on_picture` is told every picture that is new.
    """
    view = RunView(path, title=title)
    told = -1

    def look() -> None:
        nonlocal told
        picture = context.watch.look(path)
        if picture is None:
            return
        view.show(picture.begun_since(started_s()))
        if on_picture is not None and picture.version != told:
            told = picture.version
            on_picture(picture)

    look()
    ui.timer(limits.VIEW_EVERY_S, look, immediate=False)
