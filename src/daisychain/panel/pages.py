"""The dashboard's pages: the fleet, the runs, one run, several side by side."""

from __future__ import annotations

from pathlib import Path

from nicegui import ui

from daisychain.base import limits
from daisychain.base.errors import RunFolderError
from daisychain.cluster.storage.run_folder import check_name
from daisychain.panel import fleet_parts, runs_parts
from daisychain.panel.charts import comparison_chart
from daisychain.panel.context import PanelContext
from daisychain.panel.frame import card, frame
from daisychain.panel.live import Chart, Live
from daisychain.panel.markup import el
from daisychain.panel.picture import RunPicture
from daisychain.panel.run_view import run_view


def fleet_page(context: PanelContext) -> None:
    """The machines, the ways between them, and the run that changed last."""
    with frame(context, "Fleet", here="/"):
        _fleet(context)
        with ui.element("div").classes("stack") as place:
            pass
        shown: list[Path | None] = []

        def follow() -> None:
            runs = context.watch.list_runs(context.runs)
            newest = runs[0].path if runs else None
            if runs is None or shown == [newest]:
                return
            shown[:] = [newest]
            place.clear()
            with place:
                if newest is None:
                    with card("Runs"):
                        Live(runs_parts.no_runs())
                else:
                    run_view(context, newest)

        follow()
        ui.timer(limits.VIEW_EVERY_S, follow, immediate=False)


def _fleet(context: PanelContext) -> None:
    banner = Live()
    with ui.element("div").classes("machines-and-ways"):
        with card("Machines"):
            pool, machines = Live(), Live()
        with card("Ways between machines") as ways:
            matrix = Live()

    def show() -> None:
        shown = context.fleet_shown.look(context.fleet)
        ways.set_visibility(shown is not None and shown.nodes > 1)
        pool.set_visibility(shown is not None)
        banner.set_visibility(shown is not None)
        if shown is None:
            machines.show(fleet_parts.invitation(context.url, context.has_token))
            return
        banner.show(shown.banner)
        pool.show(shown.pool)
        machines.show(shown.machines)
        matrix.show(shown.matrix)

    show()
    ui.timer(limits.VIEW_EVERY_S, show, immediate=False)


def runs_page(context: PanelContext) -> None:
    """Every run, the newest first."""
    with frame(context, "Runs", here="/runs"), card("Runs"):
        listed = Live()

        def show() -> None:
            runs = context.watch.list_runs(context.runs)
            if runs is not None:
                listed.show(runs_parts.run_list(runs) if runs else runs_parts.no_runs())

        show()
        ui.timer(limits.VIEW_EVERY_S, show, immediate=False)


def run_page(context: PanelContext, name: str) -> None:
    """One run, going on or ended, or one that is still to begin."""
    try:
        path = context.runs / check_name(name)
        if path.is_symlink():
            raise RunFolderError(f"{name} leads out of the folder of runs, so it is not shown.")
    except RunFolderError as error:
        _nothing(context, "No such run", str(error))
        return
    with frame(context, name, here="/runs"):
        run_view(context, path)


def compare_page(context: PanelContext, names: list[str]) -> None:
    """The losses of several runs in one chart, by step and by time."""
    try:
        chosen = [check_name(name) for name in dict.fromkeys(names)]
    except RunFolderError as error:
        _nothing(context, "No such run", str(error))
        return
    paths = [path for name in chosen if (path := context.runs / name).is_dir() and not path.is_symlink()]
    if not paths or len(paths) < len(chosen) or len(paths) > limits.COMPARED_RUNS:
        text = f"Choose one to {limits.COMPARED_RUNS} runs of the list; each must be there."
        _nothing(context, "Nothing to compare", text)
        return
    with frame(context, "Compare", here="/runs"):
        _comparison(context, paths)


def _comparison(context: PanelContext, paths: list[Path]) -> None:
    with card("Loss by step"):
        by_step = Chart(comparison_chart([], "step"), label="Loss by step")
    with card("Loss by time of training"):
        by_time = Chart(comparison_chart([], "trained_s"), label="Loss by time")
    with card("Figures"):
        table = Live()
    versions: list[int] = []

    def show() -> None:
        pictures: list[RunPicture] = [p for path in paths if (p := context.watch.look(path)) is not None]
        if [picture.version for picture in pictures] == versions:
            return
        versions[:] = [picture.version for picture in pictures]
        curves = [(picture.name, picture.series or {}) for picture in pictures]
        by_step.show(comparison_chart(curves, "step"))
        by_time.show(comparison_chart(curves, "trained_s"))
        table.show(runs_parts.comparison(pictures))

    show()
    ui.timer(limits.VIEW_EVERY_S, show, immediate=False)


def _nothing(context: PanelContext, title: str, text: str) -> None:
    ui.context.client.status_code = 404
    with frame(context, title, here="/runs"), card(title):
        Live(el("p", text, class_="lead"))
        Live(el("p", el("a", "All runs", href="/runs")))
