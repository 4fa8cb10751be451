"""Elements of a page that follow what they show: markup that changes in place, and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui.element import Element

from daisychain.panel.markup import Markup


class Live(Element, component="static/live.js"):
    """Markup; only a change is sent, and in the page only what differs is touched."""

    def __init__(self, markup: Markup | None = None, *, classes: str = "") -> None:
        super().__init__()
        self._props["html"] = str(markup or "")
        if classes:
            self.classes(classes)

    def show(self, markup: Markup) -> None:
        """Show this from now on."""
        if self._props["html"] != str(markup):
            self._props["html"] = str(markup)
            self.update()


class Chart(Element, component="static/chart.js"):
    """Lines over a common axis, in panes one above the other; see `charts.py` for what it is given."""

    def __init__(self, data: Mapping[str, Any], *, label: str) -> None:
        super().__init__()
        self._props["data"] = data
        self._props["label"] = label
        self.classes("chart")

    def show(self, data: Mapping[str, Any]) -> None:
        """Draw this from now on."""
        if self._props["data"] != data:
            self._props["data"] = data
            self.update()


def points_of(data: Mapping[str, Any]) -> int:
    """How many points a chart is given."""
    panes: Sequence[Mapping[str, Any]] = data["panes"]
    return sum(len(line["y"]) for pane in panes for line in pane["lines"])
