"""Settings as elements of a page: what a browser says of them is checked before anybody hears of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement
from nicegui.events import GenericEventArguments

from daisychain.base.errors import DaisyError
from daisychain.panel.live import Live
from daisychain.panel.markup import Markup, el

Check = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Option:
    """One of the values of a choice, and what a person reads."""

    value: str
    label: str
    hint: str = ""

    def as_props(self) -> dict[str, str]:
        return {"value": self.value, "label": self.label, "hint": self.hint}


class Field(Element, component="static/field.js"):
    """A setting of `kind` number, choice, list, switch, text, search or area.

    `check(label, value)` answers the value that counts or raises DaisyError, whose message is shown in place of the
    hint; then `on_change` is told nothing, and the value before holds.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        label: str,
        value: Any,
        check: Check,
        on_change: Callable[[Any], Any],
        **props: Any,
    ) -> None:
        super().__init__()
        self.value = value
        self._check = check
        self._label = label
        self._on_change = on_change
        options: Sequence[Option] = props.pop("options", ())
        self._props.update(props)
        self._props.update(kind=kind, name=name, label=label, value=value, stamp=0)
        self._props["options"] = [option.as_props() for option in options]
        self.on("change", self._changed)

    def put(self, value: Any) -> None:
        """Set the value, whatever a person was about to do."""
        self.value = value
        self._props["value"] = value
        self._props["stamp"] += 1
        self._props["error"] = ""
        self.update()

    def offer(self, options: Sequence[Option], value: str) -> None:
        """Other values to choose from, and the one that is chosen."""
        self._props["options"] = [option.as_props() for option in options]
        self.put(value)

    def allow(self, allowed: bool) -> None:
        """Whether a person may change it."""
        if self._props.get("disabled", False) == allowed:
            self._props["disabled"] = not allowed
            self.update()

    def tell(self, hint: str = "", error: str = "") -> None:
        """Say something below it."""
        if (self._props.get("hint"), self._props.get("error")) != (hint, error):
            self._props.update(hint=hint, error=error)
            self.update()

    async def _changed(self, event: GenericEventArguments) -> None:
        if self._props.get("disabled"):
            return
        try:
            value = self._check(self._label, event.args)
        except DaisyError as error:
            self._props["error"] = str(error)
            self._props["value"] = self.value
            self._props["stamp"] += 1
            self.update()
            return
        if self._props.get("error"):
            self._props["error"] = ""
            self.update()
        self.value = self._props["value"] = value
        answer = self._on_change(value)
        if inspect.isawaitable(answer):
            await answer


class Uploader(Element, component="static/uploader.js"):
    """Brings a file of `kind` csv or text; `on_done` is told the name that the server keeps it under."""

    def __init__(
        self,
        url: str,
        kind: str,
        accept: str,
        label: str,
        hint: str,
        most: int,
        on_done: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._props.update(url=url, kind=kind, accept=accept, label=label, hint=hint, most=most)
        self.on("done", lambda event: on_done(event.args) if isinstance(event.args, str) else None)


class Press(TextElement):
    """A button. `look` is a class of the style sheet: main, quiet, danger, or none."""

    def __init__(self, text: str, on_press: Callable[[], Any], look: str = "", testid: str = "") -> None:
        super().__init__(tag="button", text=text)
        self.props('type="button"')
        if look:
            self.classes(look)
        if testid:
            self._props["data-testid"] = testid
        self._on_press = on_press
        self.on("click", self._pressed, args=[])

    def allow(self, allowed: bool) -> None:
        """Whether it can be pressed."""
        if self._props.get("disabled", False) == allowed:
            self._props["disabled"] = not allowed
            self.update()

    async def _pressed(self) -> None:
        if self._props.get("disabled"):  # a browser does not have to heed it
            return
        answer = self._on_press()
        if inspect.isawaitable(answer):
            await answer


class Note(Live):
    """A line that says what is wrong, or nothing."""

    def __init__(self, testid: str, tone: str = "bad") -> None:
        super().__init__()
        self._tone, self._testid = tone, testid
        self.props('role="status"')

    def say(self, text: str) -> None:
        """Show `text`, or nothing for an empty one."""
        self.show(
            el("p", text, class_=f"notice {self._tone}", data_testid=self._testid) if text else Markup("")
        )
