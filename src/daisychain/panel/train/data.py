"""Where the text or the table comes from: built in, the Hub, a file that is brought, or a path on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegui import ui

from daisychain.base import limits
from daisychain.base.errors import ConfigError, DaisyError
from daisychain.panel import words as said
from daisychain.panel.request import CHECKS
from daisychain.panel.train import words
from daisychain.panel.train.field import Field, Option, Press, Uploader
from daisychain.panel.train.hub import HubPicker, HubPreview
from daisychain.panel.train.routes import UPLOAD_ROUTE
from daisychain.panel.uploads import Upload, columns_of

if TYPE_CHECKING:
    from daisychain.panel.train.page import TrainPage

NONE = ""


class DataCard:
    """One place to choose, and below it what that place needs to know."""

    def __init__(self, page: TrainPage, changed: Callable[[], None]) -> None:
        self._page = page
        self._draft = page.draft
        self._changed = changed
        with ui.element("section").classes("card"):
            with ui.element("h2"):
                ui.html("Data", sanitize=False, tag="span")
            places = self._draft.places()
            if len(places) > 1:
                options = [Option(place, *words.PLACES[place]) for place in places]
                check = one_of_places(places)
                Field(
                    "choice",
                    "where",
                    "Data from",
                    self._draft.where,
                    check,
                    self._choose,
                    options=options,
                    bare=True,
                )
            self._detail = ui.element("div").classes("stack")
        self._show()

    def _choose(self, where: str) -> None:
        self._draft.choose_where(where)
        self._show()
        self._changed()

    def _show(self) -> None:
        self._detail.clear()
        with self._detail:
            task, where = self._draft.values["task"], self._draft.where
            if task == "digits":
                ui.label(words.DIGITS).classes("hint")
            elif where in words.PLACE_HINTS:
                ui.label(words.PLACE_HINTS[where]).classes("hint")
            if where == "hub":
                HubPicker(self._page, self._changed)
            elif where == "fineweb":
                HubPreview(self._page)
            elif where == "upload":
                FileChoice(self._page, self._changed)
            elif where == "path":
                PathChoice(self._page, self._changed)
            if where in ("hub", "fineweb"):
                options = [Option(name, *found) for name, found in words.ON_FAILURE.items()]
                Field(
                    "choice",
                    "on_data_failure",
                    "If the Hub fails while it trains",
                    self._draft.values["on_data_failure"],
                    CHECKS["on_data_failure"],
                    lambda value: self._set("on_data_failure", value),
                    options=options,
                )

    def _set(self, name: str, value: Any) -> None:
        self._draft.values[name] = value
        self._changed()


def one_of_places(places: tuple[str, ...]) -> Callable[[str, Any], str]:
    def check(label: str, value: Any) -> str:
        if not isinstance(value, str) or value not in places:
            raise ConfigError(f"{label}: choose one of {', '.join(places)}.")
        return value

    return check


class FileChoice:
    """A file that was brought before, or one that is brought now."""

    def __init__(self, page: TrainPage, changed: Callable[[], None]) -> None:
        self._page = page
        self._draft = page.draft
        self._changed = changed
        self._table = self._draft.values["task"] == "table"
        kind, accept = ("csv", ".csv,text/csv") if self._table else ("text", ".txt,.md,text/plain")
        most = limits.UPLOAD_MAX_BYTES
        Uploader(
            UPLOAD_ROUTE,
            kind,
            accept,
            f"Choose a {'CSV' if self._table else 'text'} file…",
            f"Up to {most >> 20} MiB, in UTF-8"
            + (", with the names of its columns in the first line." if self._table else "."),
            most,
            self._came,
        )
        self._list = Field("list", "file", "File", NONE, self._known, self._choose)
        self._remove = Press("Remove this file from the machine", self._forget, "quiet", "remove-file")
        self._target = TargetChoice(page, changed) if self._table else None
        self._offer(self._draft.values["data"])

    def _files(self) -> dict[str, Upload]:
        kind = "csv" if self._table else "text"
        return {str(upload.path): upload for upload in self._page.jobs.uploads.list() if upload.kind == kind}

    def _offer(self, chosen: str | None) -> None:
        """Show the files that there are, with `chosen`, or else none of them, chosen."""
        files = self._files()
        value = chosen if chosen in files else NONE
        options = [Option(path, f"{one.shown} ({said.size(one.size_bytes)})") for path, one in files.items()]
        if value == NONE:
            options.insert(0, Option(NONE, "choose one…" if files else "none yet"))
        self._list.offer(options, value)
        self._list.set_visibility(bool(files))
        self._remove.set_visibility(value != NONE)
        if self._target:
            self._target.offer(files[value].columns if value else ())
        if self._draft.values["data"] != (value or None):
            self._draft.values["data"] = value or None
            self._changed()

    def _known(self, label: str, value: Any) -> str:
        if not isinstance(value, str) or value not in (NONE, *self._files()):
            raise ConfigError(f"{label}: that file is not there any more.")
        return value

    def _choose(self, path: str) -> None:
        self._draft.values["target"] = None
        self._offer(path)

    def _came(self, name: str) -> None:
        """The browser says that the server keeps its file as `name`."""
        self._choose(next((path for path in self._files() if Path(path).name == name), NONE))

    def _forget(self) -> None:
        self._page.jobs.uploads.remove(Path(self._list.value))
        self._choose(NONE)


class PathChoice:
    """A path that whoever sits at this machine types."""

    def __init__(self, page: TrainPage, changed: Callable[[], None]) -> None:
        self._page = page
        self._draft = page.draft
        self._changed = changed
        table = self._draft.values["task"] == "table"
        Field(
            "text",
            "data",
            "Path",
            self._draft.values["data"] or "",
            self._checked,
            self._choose,
            hint="A CSV or Parquet file." if table else "A text file, or a folder of them.",
            most=limits.PANEL_PATH_CHARACTERS,
        )
        self._target = TargetChoice(page, changed) if table else None
        if self._target and self._draft.values["data"]:
            self._target.offer(columns_at(self._draft.values["data"]))

    def _checked(self, label: str, value: Any) -> str:
        path = CHECKS["data"](label, value)
        return str(self._page.jobs.uploads.checked(path, self._page.context.local)) if path else ""

    def _choose(self, path: str) -> None:
        self._draft.values["data"] = path or None
        if self._target:
            self._draft.values["target"] = None
            self._target.offer(columns_at(path))
        self._changed()


class TargetChoice:
    """Which column of a table is to be predicted."""

    def __init__(self, page: TrainPage, changed: Callable[[], None]) -> None:
        self._draft = page.draft
        self._changed = changed
        self._columns: tuple[str, ...] = ()
        self._list = Field("list", "target", "Column to predict", NONE, self._known, self._choose)
        self._list.set_visibility(False)

    def offer(self, columns: tuple[str, ...]) -> None:
        """The columns of the file that is chosen; the last one is what people mostly mean."""
        self._columns = columns
        target = self._draft.values["target"]
        target = target if target in columns else (columns[-1] if columns else None)
        self._list.offer([Option(name, name) for name in columns], target or NONE)
        self._list.set_visibility(bool(columns))
        if self._draft.values["target"] != target:
            self._draft.values["target"] = target
            self._changed()

    def _known(self, label: str, value: Any) -> str:
        if not isinstance(value, str) or value not in self._columns:
            raise ConfigError(f"{label}: choose one of the file's columns.")
        return value

    def _choose(self, column: str) -> None:
        self._draft.values["target"] = column
        self._changed()


def columns_at(path: str | None) -> tuple[str, ...]:
    """The columns of a table of this machine; none where it is no table that can be read."""
    if not path or not Path(path).is_file():
        return ()
    try:
        if path.endswith(".parquet"):
            import pyarrow.parquet as pq

            return tuple(pq.read_schema(path).names)
        with Path(path).open("rb") as file:
            return columns_of(
                file.read(limits.UPLOAD_SAMPLE_BYTES).decode(errors="replace").removeprefix("\ufeff")
            )
    except (OSError, ValueError, DaisyError):
        return ()
