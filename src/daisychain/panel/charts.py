"""What charts are given: columns of a run's curve, rounded to what can be seen. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

ChartData = Mapping[str, Any]
TONES = ("leaf", "sky", "petal", "bad", "plum", "soft")


def run_chart(series: Mapping[str, Sequence[float]] | None, steps: int) -> ChartData:
    """The loss and the rate of one run, by step."""
    columns = series or {}
    xs = list(columns.get("step", ()))
    panes = [
        {"label": "loss", "digits": 4, "lines": [_line("loss", 0, columns.get("loss", ()), "leaf")]},
        {
            "label": "samples a second",
            "digits": 0,
            "from_zero": True,
            "lines": [_line("samples/s", 0, columns.get("samples_per_s", ()), "sky")],
        },
    ]
    return {"axis": "step", "most": _axis_end(xs[-1] if xs else 0, steps), "xs": [xs], "panes": panes}


def _axis_end(last: float, steps: int) -> float:
    """All steps halved as often as the curve still fills at least half: a young run is not a sliver, and the axis
    seldom jumps."""
    end = max(steps, last)
    while last > 0 and end >= 2 * last:
        end /= 2
    return math.ceil(end)


def comparison_chart(runs: Sequence[tuple[str, Mapping[str, Sequence[float]]]], by: str) -> ChartData:
    """The loss of several runs, by `step` or by `trained_s`."""
    xs = [[_rounded(x) for x in columns.get(by, ())] for _, columns in runs]
    lines = [
        _line(name, index, columns.get("loss", ()), TONES[index % len(TONES)])
        for index, (name, columns) in enumerate(runs)
    ]
    most = max((x for column in xs for x in column[-1:]), default=0)
    axis = "step" if by == "step" else "seconds of training"
    return {"axis": axis, "most": most, "xs": xs, "panes": [{"label": "loss", "digits": 4, "lines": lines}]}


def _line(name: str, x: int, values: Sequence[float], tone: str) -> dict[str, Any]:
    return {"name": name, "x": x, "y": [_rounded(value) for value in values], "tone": tone}


def _rounded(value: float) -> float:
    """Five digits that count, which is more than a screen shows."""
    return float(f"{value:.5g}") if math.isfinite(value) and not isinstance(value, int) else value
