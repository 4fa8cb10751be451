"""Data sets of the Hugging Face Hub: search, choose, look at a few rows; and why one cannot be had."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from nicegui import ui

from daisychain.base import limits
from daisychain.base.errors import ConfigError, DaisyError
from daisychain.data import hub
from daisychain.data.hub import Description
from daisychain.data.source import TextChoice
from daisychain.panel.live import Live
from daisychain.panel.markup import Markup, el
from daisychain.panel.request import CHECKS
from daisychain.panel.train.field import Field, Note, Option, Press

if TYPE_CHECKING:
    from daisychain.panel.train.page import TrainPage

Answer = TypeVar("Answer")


class HubPreview:
    """A button that shows the first rows of the data set that is chosen."""

    def __init__(self, page: TrainPage) -> None:
        self._draft = page.draft
        self._asked = 0
        with ui.element("div").classes("row"):
            self._press = Press("Show a few rows", self.show, "", "preview")
        self._trouble = Note("hub-trouble", "warn")
        self._rows = Live(classes="scroll preview")

    def allow(self, allowed: bool) -> None:
        """Whether there is something to show."""
        self._press.set_visibility(allowed)

    def clear(self) -> None:
        """Another data set is chosen."""
        self._asked += 1
        self._trouble.say("")
        self._rows.show(Markup(""))

    async def show(self) -> None:
        """Ask the Hub; what it says last counts."""
        self.clear()
        asked, chosen = self._asked, self._draft.values
        self._rows.show(el("p", "Asking the Hub…", class_="hint"))
        try:
            choice = TextChoice(
                dataset=chosen["dataset"],
                config=chosen["dataset_config"],
                split=chosen["split"] or "train",
                column=chosen["column"],
            )
            rows = await asked_of_hub(lambda: hub.preview(choice, limits.PREVIEW_ROWS))
        except DaisyError as error:
            if asked == self._asked:
                self._rows.show(Markup(""))
                self._trouble.say(str(error))
            return
        if asked == self._asked:
            self._rows.show(table_of(rows, chosen["column"]))


class HubPicker:
    """Search, choose a data set, then its configuration, split and column of text."""

    def __init__(self, page: TrainPage, changed: Callable[[], None]) -> None:
        self._page = page
        self._draft = page.draft
        self._changed = changed
        self._asked = 0
        self._found: list[str] = []
        self._about: Description | None = None
        hint = "A word of its name, or all of it; then press Enter."
        Field("search", "search", "Search the Hub", "", _text, self._search, most=100, hint=hint)
        self._said = Note("hub-said", "warn")
        self._busy = Live()
        self._list = Field("list", "dataset", "Data set", "", self._known, self._choose)
        with ui.element("div").classes("sliders thirds"):
            self._parts = {
                name: Field("list", name, label, "", self._offered(name), self._set(name))
                for name, label in PARTS.items()
            }
        self._preview = HubPreview(page)
        self._offer()
        self._describe_again()

    def _describe_again(self) -> None:
        dataset = self._draft.values["dataset"]
        if dataset:
            self._found = [dataset]
            self._offer()
            self._page.spawn(self._describe(dataset, self._draft.values["dataset_config"]))

    async def _search(self, text: str) -> None:
        self._asked += 1
        asked = self._asked
        self._said.say("")
        self._working("Searching…")
        try:
            found = await asked_of_hub(lambda: hub.search(text, limits.HUB_FOUND))
        except DaisyError as error:
            if asked == self._asked:
                self._working("")
                self._said.say(str(error))
            return
        if asked != self._asked:
            return
        self._working("")
        self._found = [name for name in found if _is_dataset(name)]
        if not self._found:
            self._said.say(f"The Hub knows no data set with {text[:60]!r} in its name.")
        self._forget()
        self._offer()

    async def _choose(self, dataset: str) -> None:
        self._forget()
        self._draft.values["dataset"] = dataset or None
        self._offer()
        self._changed()
        if dataset:
            await self._describe(dataset, None)

    async def _describe(self, dataset: str, config: str | None) -> None:
        """Ask what a data set holds, and offer it."""
        self._asked += 1
        asked = self._asked
        self._said.say("")
        self._working(f"Asking the Hub about {dataset}…")
        try:
            about = await asked_of_hub(lambda: hub.describe(dataset, config))
        except DaisyError as error:
            if asked == self._asked:
                self._working("")
                self._said.say(str(error))
            return
        if asked != self._asked or self._draft.values["dataset"] != dataset:
            return
        self._working("")
        self._take(about)

    def _take(self, about: Description) -> None:
        self._about = about
        kept = self._draft.values
        split = kept["split"] if kept["split"] in about.splits else None
        column = kept["column"] if kept["column"] in about.text_columns else None
        kept |= {
            "dataset_config": about.config,
            "split": split or ("train" if "train" in about.splits else next(iter(about.splits), None)),
            "column": column or about.column or next(iter(about.text_columns), None),
        }
        if not about.text_columns:
            self._said.say(
                f"{about.dataset} has no column of plain text; its columns are {', '.join(about.columns[:10])}."
            )
        self._offer()
        self._preview.clear()
        self._changed()

    def _forget(self) -> None:
        self._about = None
        self._draft.values |= dict.fromkeys(("dataset", "dataset_config", "split", "column"))
        self._preview.clear()
        self._changed()

    def _offer(self) -> None:
        """Bring the lists up to what is known."""
        chosen = self._draft.values["dataset"] or ""
        options = [Option(name, name) for name in self._found]
        if not chosen:
            options.insert(0, Option("", f"{len(self._found)} found: choose one…"))
        self._list.offer(options, chosen)
        self._list.set_visibility(bool(self._found))
        for name, field in self._parts.items():
            there = self._there(name)
            field.offer([Option(one, one) for one in there], self._draft.values[name] or "")
            field.set_visibility(bool(there))
        self._preview.allow(self._about is not None)

    def _there(self, name: str) -> Sequence[str]:
        about = self._about
        if about is None:
            return ()
        return {"dataset_config": about.configs, "split": about.splits, "column": about.text_columns}[name]

    def _known(self, label: str, value: Any) -> str:
        if not isinstance(value, str) or value not in ("", *self._found):
            raise ConfigError(f"{label}: choose one of the list.")
        return value

    def _offered(self, name: str) -> Callable[[str, Any], str]:
        def check(label: str, value: Any) -> str:
            if not isinstance(value, str) or value not in self._there(name):
                raise ConfigError(f"{label}: choose one of the list.")
            return value

        return check

    def _set(self, name: str) -> Callable[[str], Any]:
        def put(value: str) -> Any:
            self._draft.values[name] = value
            self._preview.clear()
            self._changed()
            if name == "dataset_config" and self._draft.values["dataset"]:
                return self._describe(self._draft.values["dataset"], value)
            return None

        return put

    def _working(self, text: str) -> None:
        self._busy.show(el("p", text, class_="hint", data_testid="hub-busy") if text else Markup(""))


PARTS = {"dataset_config": "Configuration", "split": "Split", "column": "Column with the text"}


async def asked_of_hub(ask: Callable[[], Answer]) -> Answer:
    """What the Hub answers; asked in a thread, and left behind where that hangs. Raises DaisyError."""
    try:
        return await asyncio.wait_for(asyncio.to_thread(ask), limits.HUB_CALL_LIMIT_S + 5.0)
    except asyncio.TimeoutError:
        raise ConfigError("the Hub did not answer in time; try again.") from None


def table_of(rows: Sequence[Mapping[str, str]], column: str | None) -> Markup:
    """Rows of a data set; the column of the text first."""
    if not rows:
        return el("p", "This data set has no rows.", class_="hint")
    names = sorted(rows[0], key=lambda name: name != column)[: limits.PREVIEW_COLUMNS]
    head = el("tr", *(el("th", name, scope="col") for name in names))
    body = [el("tr", *(el("td", row.get(name, "")) for name in names)) for row in rows]
    return el("table", el("thead", head), el("tbody", *body), data_testid="preview-rows")


def _text(label: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > 100:
        raise ConfigError(f"{label}: at most 100 characters.")
    return value


def _is_dataset(name: str) -> bool:
    try:
        return CHECKS["dataset"]("dataset", name) is not None
    except DaisyError:
        return False
