"""For a person who chooses a data set: a search, what a data set holds, and its first rows. Every call has a limit."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from daisychain.base import limits
from daisychain.base.errors import DataError, DataLostError
from daisychain.data.hub_errors import told
from daisychain.data.hub_session import HubTrouble, libraries
from daisychain.data.hub_text import choose, commit, configs, open_source, text_column
from daisychain.data.slices import within
from daisychain.data.source import TextChoice

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Description:
    """What a data set holds. `splits`, `columns` and the rest are those of `config`; `column` is the one to suggest.

    `text_columns` are the columns of plain text; `column` is None where there is no telling which of them, or none.
    """

    dataset: str
    revision: str
    configs: tuple[str, ...]
    config: str
    splits: tuple[str, ...]
    columns: tuple[str, ...]
    text_columns: tuple[str, ...]
    column: str | None
    gated: bool
    private: bool


def search(text: str, limit: int = limits.HUB_FOUND) -> list[str]:
    """Data sets whose name has this text in it, the most downloaded first. Raises DataError or ConfigError."""
    wanted = " ".join(text.split())[:100]
    most = max(1, min(limit, limits.HUB_FOUND))

    def ask() -> list[str]:
        loaded = libraries()
        api = loaded.hub.HfApi(endpoint=loaded.endpoint)
        found = api.list_datasets(search=wanted or None, sort="downloads", limit=most)
        return [str(info.id) for info in itertools.islice(found, most)]

    return _answer(wanted, ask)


def describe(dataset: str, config: str | None = None, revision: str | None = None) -> Description:
    """What a data set, or this config of it, holds. Raises DataError or ConfigError."""
    choice = TextChoice(dataset=dataset, config=config, revision=revision)
    return _answer(dataset, lambda: _describe(choice))


def _describe(choice: TextChoice) -> Description:
    loaded = libraries()
    dataset = str(choice.dataset)
    revision = commit(dataset, choice.revision)
    info = loaded.hub.HfApi(endpoint=loaded.endpoint).dataset_info(
        dataset, revision=revision, timeout=limits.HUB_WAIT_S
    )
    there = configs(dataset, revision)
    # Somebody who looks around is shown the first of several configs; a run must say which.
    config = choose("config", choice.config, there[:1] if choice.config is None else there, dataset)
    if choice.config is None and "default" in there:
        config = "default"
    source = open_source(dataset, config, revision)
    splits = list(source.splits)
    columns = source.columns("train" if "train" in splits else splits[0])
    try:
        column = text_column(columns, None, dataset)
    except DataError:
        column = None
    return Description(
        dataset=dataset,
        revision=revision,
        configs=tuple(there),
        config=config,
        splits=tuple(splits),
        columns=tuple(columns),
        text_columns=tuple(name for name, is_text in columns.items() if is_text),
        column=column,
        gated=bool(info.gated),
        private=bool(info.private),
    )


def preview(choice: TextChoice, rows: int = 5) -> list[dict[str, str]]:
    """The first rows of a data set, each value in words and cut. Raises DataError or ConfigError."""
    if choice.dataset is None:
        raise DataError("a preview is of a data set of the hub; name one as owner/name.")
    most = max(1, min(rows, limits.HUB_PREVIEW_ROWS))
    return _answer(choice.dataset, lambda: _preview(choice, most))


def _preview(choice: TextChoice, rows: int) -> list[dict[str, str]]:
    dataset = str(choice.dataset)
    revision = commit(dataset, choice.revision)
    config = choose("config", choice.config, configs(dataset, revision), dataset, "default")
    source = open_source(dataset, config, revision)
    split = choose("split", choice.split, list(source.splits), dataset)
    first = itertools.islice(source.rows(split), rows)
    return [{str(name): _shown(value) for name, value in row.items()} for row in first]


def _shown(value: Any) -> str:
    """A value on one line, cut."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    most = limits.HUB_PREVIEW_CHARACTERS
    text = value[: 2 * most] if isinstance(value, str) else repr(value)[: 2 * most]
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _answer(dataset: str, ask: Callable[[], Answer]) -> Answer:
    """What `ask` gives, within the limit on a call, and its troubles in words."""

    def ask_told() -> Answer:
        with told(dataset):
            return ask()

    try:
        return within(limits.HUB_CALL_LIMIT_S, ask_told)
    except HubTrouble as trouble:
        raise DataLostError(f"the hub {trouble}; try again in a while.") from None
    except DataError as error:
        if str(error).startswith("took longer"):
            raise DataLostError(f"the hub {error}; try again in a while.") from None
        raise
