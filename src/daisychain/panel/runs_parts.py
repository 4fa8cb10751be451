"""The list of runs, and runs side by side, as markup. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from daisychain.base import limits
from daisychain.cluster.storage.history import Listed
from daisychain.panel import words
from daisychain.panel.markup import Markup, el, figure, join
from daisychain.panel.picture import RunPicture
from daisychain.panel.run_parts import phase_badge


def run_list(runs: Sequence[Listed]) -> Markup:
    """A form: ticked runs are compared."""
    rows = [_row(run) for run in runs[: limits.RUNS_SHOWN]]
    head = el(
        "tr",
        el("th", el("span", "Compare", class_="unseen"), scope="col"),
        *(el("th", name, scope="col", class_=kind) for name, kind in COLUMNS),
    )
    table = el("table", el("thead", head), el("tbody", *rows), class_="runs")
    more = len(runs) - limits.RUNS_SHOWN
    return el(
        "form",
        el("div", table, class_="scroll"),
        el("p", f"{more} older runs are not listed.", class_="hint") if more > 0 else None,
        el("div", el("button", "Compare ticked runs", type="submit"),
           el("span", f"Tick up to {limits.COMPARED_RUNS}.", class_="hint"), class_="row"),
        action="/compare",
        method="get",
    )  # fmt: skip


COLUMNS = (("Run", ""), ("State", ""), ("Step", "number"), ("Loss", "number"), ("Task", "wide-only"),
           ("Nodes", "number wide-only"), ("Changed", "number wide-only"))  # fmt: skip


def _row(run: Listed) -> Markup:
    of = el("span", f" of {words.whole(run.steps)}", class_="wide-only") if run.steps else None
    step = join([words.whole(run.step), of])
    tick = el("input", type="checkbox", name="run", value=run.name, aria_label=f"Compare {run.name}")
    return el(
        "tr",
        el("td", tick),
        el("th", el("a", run.name, href=f"/runs/{run.name}"), scope="row"),
        el("td", phase_badge(run.phase)),
        el("td", step, class_="number"),
        el("td", words.loss(run.loss), class_="number"),
        el("td", run.task, class_="wide-only"),
        el("td", run.nodes or words.NONE, class_="number wide-only"),
        el("td", words.clock(run.updated_s), class_="number wide-only"),
        data_key=run.name,
        data_testid=f"run-{run.name}",
    )


def no_runs() -> Markup:
    """What to do where there is no run yet."""
    return join([
        el("p", "No run yet.", class_="lead"),
        el("p", el("a", "Train a model", href="/train", class_="button main"), class_="row"),
        el("p", "Or in a terminal:", class_="hint"),
        el("pre", el("code", "daisychain train --nodes 3 --name first")),
    ])  # fmt: skip


def comparison(pictures: Sequence[RunPicture]) -> Markup:
    """The figures of several runs, one row a run."""
    head = el("tr", *(el("th", name, scope="col", class_=kind) for name, kind in
                      (("Run", ""), ("State", ""), ("Step", "number"), ("Loss", "number"),
                       ("Samples/s", "number wide-only"), ("Trained", "number"))))  # fmt: skip
    rows = []
    for picture in pictures:
        last = picture.last or {}
        times_s = (picture.series or {}).get("trained_s") or ()
        trained_s = times_s[-1] if times_s else None
        rate = last.get("samples_per_s")
        rows.append(
            el(
                "tr",
                el("th", el("a", picture.name, href=f"/runs/{picture.name}"), scope="row"),
                el("td", phase_badge(picture.phase)),
                el("td", words.whole(picture.step), class_="number"),
                el(
                    "td",
                    figure(f"loss-{picture.name}", words.loss(last.get("loss")), last.get("loss")),
                    class_="number",
                ),
                el("td", words.NONE if rate is None else words.short(rate), class_="number wide-only"),
                el("td", words.duration(trained_s), class_="number"),
                data_key=picture.name,
            )
        )
    return el("div", el("table", el("thead", head), el("tbody", *rows), class_="runs"), class_="scroll")
