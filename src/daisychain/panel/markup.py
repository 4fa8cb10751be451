"""HTML from plain values: whatever is text is escaped, so that no name in a file becomes a part of the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from markupsafe import Markup, escape

__all__ = ["Markup", "el", "figure", "join"]

EMPTY = ("br", "col", "hr", "img", "input")  # elements without an end
Child = Any  # text, a number, Markup, None for nothing, or an iterable of these


def el(tag: str, *children: Child, **attributes: Any) -> Markup:
    """An element. `class_` is class and `data_testid` is data-testid; an attribute of None or False is left out."""
    shown = []
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        key = name.rstrip("_").replace("_", "-")
        shown.append(Markup(" {}").format(key) if value is True else Markup(' {}="{}"').format(key, value))
    start = Markup("<{}{}>").format(tag, Markup("").join(shown))
    return start if tag in EMPTY else Markup("{}{}</{}>").format(start, join(children), tag)


def join(children: Iterable[Child]) -> Markup:
    """One after the other."""
    parts = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, (str, Markup, int, float)):
            parts.append(escape(child))
        else:
            parts.append(join(child))
    return Markup("").join(parts)


def figure(testid: str, shown: Child, value: Any = None, **attributes: Any) -> Markup:
    """A figure: what people read, and the value itself for programs and tests."""
    return el("data", shown, value="" if value is None else value, data_testid=testid, **attributes)
