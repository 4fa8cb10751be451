"""The documents of a data set on the hub, in order, from any place on."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from daisychain.base import limits
from daisychain.base.errors import DataError
from daisychain.data.hub_errors import told
from daisychain.data.hub_session import libraries
from daisychain.data.source import TextChoice

#: Columns that are taken for the text, the first of them that there is.
TEXT_COLUMNS = ("text", "content", "document", "article", "story", "body")
#: Kinds of files, as `datasets` names them. None of them can make it run anything, as a pickle could.
KINDS = ("parquet", "json", "csv", "text", "arrow")
State = Mapping[str, Any]  # where reading goes on: JSON


@dataclass(frozen=True)
class Found:
    """A choice, pinned: the same fields give the same documents in the same order for ever. `revision` is a commit."""

    dataset: str
    config: str
    split: str
    column: str
    revision: str

    @classmethod
    def from_json(cls, content: Any) -> "Found":
        """Raises ValueError, KeyError or TypeError for what is none."""
        values = {field.name: content[field.name] for field in fields(cls)}
        if not all(isinstance(value, str) for value in values.values()):
            raise ValueError("a part of it is no text")
        found = cls(**values)
        TextChoice(None, found.dataset, found.config, found.split, found.column, found.revision)
        return found

    def __str__(self) -> str:
        return f"{self.dataset} ({self.config}, {self.split}, column {self.column!r}, revision {self.revision[:8]})"


def find(choice: TextChoice) -> Found:
    """Ask the hub what a choice means now. Raises DataError, or HubTrouble where another try may help."""
    dataset = str(choice.dataset)
    with told(dataset):
        revision = commit(dataset, choice.revision)
        config = choose("config", choice.config, configs(dataset, revision), dataset, "default")
        source = open_source(dataset, config, revision)
        split = choose("split", choice.split, list(source.splits), dataset)
        return Found(
            dataset, config, split, text_column(source.columns(split), choice.column, dataset), revision
        )


def commit(dataset: str, revision: str | None) -> str:
    """The commit that a revision, by default the newest, stands for."""
    loaded = libraries()
    info = loaded.hub.HfApi(endpoint=loaded.endpoint).dataset_info(
        dataset, revision=revision, timeout=limits.HUB_WAIT_S
    )
    if not isinstance(info.sha, str) or not re.fullmatch(r"[0-9a-f]{40,64}", info.sha):
        raise DataError(
            f"data set {dataset!r}: the hub named {info.sha!r:.80} as its commit; try again later."
        )
    return info.sha


def configs(dataset: str, revision: str) -> list[str]:
    return [str(name) for name in libraries().datasets.get_dataset_config_names(dataset, revision=revision)]


def choose(kind: str, wanted: str | None, there: Sequence[str], dataset: str, usual: str = "") -> str:
    """The name wanted, or without a wish the only or usual one. Raises DataError that lists what there is."""
    if wanted in there:
        return str(wanted)
    if wanted is None and (len(there) == 1 or usual in there):
        return there[0] if len(there) == 1 else usual
    if wanted is not None:
        problem = f"has no {kind} {wanted!r:.100}"
    else:
        problem = f"has several {kind}s" if there else f"has no {kind}s"
    raise DataError(
        f"data set {dataset!r} {problem}; there are {listed(there)}: choose with --{_FLAGS[kind]}."
    )


_FLAGS = {"config": "dataset-config", "split": "split", "column": "column"}


def listed(names: Sequence[str]) -> str:
    """Names for a message, the first of many."""
    shown = ", ".join(f"{name:.100}" for name in names[: limits.HUB_NAMES_SHOWN]) or "none"
    more = len(names) - limits.HUB_NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def text_column(columns: Mapping[str, bool], wanted: str | None, dataset: str) -> str:
    """The column of text. `columns` says of each whether it holds strings. Raises DataError that lists them."""
    strings = [name for name, is_text in columns.items() if is_text]
    if wanted in columns and wanted not in strings:
        raise DataError(
            f"column {wanted!r:.100} of data set {dataset!r} holds no plain text; columns that do: {listed(strings)}."
        )
    if not strings:
        raise DataError(
            f"data set {dataset!r} has no column of plain text; its columns are {listed(list(columns))}. "
            "Choose another data set."
        )
    usual = next((name for name in TEXT_COLUMNS if name in strings), "")
    return choose("column", wanted, strings, dataset, usual)


class Source:
    """A config of a data set at a commit: its splits, and their rows by way of `datasets`."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder
        self.splits: dict[str, list[str]] = {
            str(split): list(files) for split, files in (builder.config.data_files or {}).items()
        }

    def columns(self, split: str) -> dict[str, bool]:
        """The columns, and whether each holds strings."""
        row = next(self.rows(split), None)
        if row is None:
            raise DataError(
                f"split {split!r} of data set {self._builder.repo_id!r} has no rows; choose another."
            )
        return {str(name): value is None or isinstance(value, str) for name, value in row.items()}

    def rows(self, split: str) -> Iterator[dict[str, Any]]:
        """Rows with all their columns, from the first one on."""
        yield from self._builder.as_streaming_dataset(split)

    def texts(self, split: str, column: str, state: State | None) -> Iterator[tuple[list[Any], State]]:
        """Values of a column, a few at once, with the state after them."""
        stream = self._builder.as_streaming_dataset(split)
        if state is not None:
            stream.load_state_dict(dict(state))
        texts: list[Any] = []
        for row in stream:
            texts.append(row.get(column))
            if len(texts) >= limits.HUB_ROWS_AT_ONCE:
                yield texts, stream.state_dict()
                texts = []
        yield texts, stream.state_dict()


class ParquetSource(Source):
    """Parquet files, read by row group: only the column that is wanted, and a resume asks for little twice."""

    def columns(self, split: str) -> dict[str, bool]:
        with self._open(self.splits[split][0]) as file:
            schema = pq.read_schema(file)
        return {field.name: _is_text(field.type) for field in schema}

    def rows(self, split: str) -> Iterator[dict[str, Any]]:
        for batch, _ in self._batches(split, None, (0, 0, 0)):
            yield from batch.to_pylist()

    def texts(self, split: str, column: str, state: State | None) -> Iterator[tuple[list[Any], State]]:
        begin = (0, 0, 0) if state is None else (state["file"], state["group"], state["row"])
        for batch, after in self._batches(split, [column], begin):
            yield batch.column(0).to_pylist(), after

    def _batches(
        self, split: str, columns: list[str] | None, begin: tuple[int, int, int]
    ) -> Iterator[tuple[Any, State]]:
        """Batches of rows from row `begin` (file, row group, row of it) on, with the state after each."""
        first_file, first_group, skipped = begin
        for number, path in enumerate(self.splits[split][first_file:], first_file):
            with self._open(path) as file:
                parquet = pq.ParquetFile(file, buffer_size=limits.HUB_READ_BYTES, pre_buffer=False)
                for group in range(first_group, parquet.num_row_groups):
                    if skipped >= parquet.metadata.row_group(group).num_rows:
                        skipped = 0
                        continue
                    row = 0
                    for batch in parquet.iter_batches(
                        limits.HUB_ROWS_AT_ONCE, row_groups=[group], columns=columns, use_threads=False
                    ):
                        row += len(batch)
                        if row > skipped:
                            fresh = batch.slice(max(0, skipped - (row - len(batch))))
                            yield fresh, {"file": number, "group": group, "row": row}
                    skipped = 0
            first_group = 0

    def _open(self, path: str) -> Any:
        loaded = libraries()
        # Another token or a healed hub must count, so nothing that an earlier instance learnt is kept.
        files = loaded.hub.HfFileSystem(endpoint=loaded.endpoint, skip_instance_cache=True)
        return files.open(path, "rb", cache_type="none")


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def open_source(dataset: str, config: str, revision: str) -> Source:
    """The files of a config. Nothing of the data set's own is executed, and no file is read but its own."""
    loaded = libraries()
    loaded.hub.HfFileSystem.clear_instance_cache()
    builder = loaded.datasets.load_dataset_builder(dataset, config, revision=revision)
    kind = type(builder).__module__.rpartition(".")[2]
    if kind not in KINDS:
        raise DataError(
            f"data set {dataset!r} is of the kind {kind!r}; text is read from {', '.join(KINDS)}. Choose another."
        )
    if kind == "text":  # a line is no document
        builder = loaded.datasets.load_dataset_builder(
            dataset, config, revision=revision, sample_by="paragraph"
        )
    source = (ParquetSource if kind == "parquet" else Source)(builder)
    if not source.splits:
        raise DataError(f"data set {dataset!r} has no data files that can be streamed; choose another.")
    own = f"hf://datasets/{dataset}@{revision}/"
    for path in (path for files in source.splits.values() for path in files):
        if not str(path).startswith(own):
            raise DataError(
                f"data set {dataset!r} names a file outside of itself, {str(path)!r:.120}; choose another."
            )
    return source


class HubReader:
    """Reads the documents of a pinned choice. What has been learnt of its files is kept from try to try."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self._source: Source | None = None

    def __call__(self, state: State | None) -> Iterator[tuple[list[str], State]]:
        """Texts from `state` on, a few at once, each time with the state after them; rows without text are left out.

        Raises DataError, or HubTrouble where another try, from the last state on, may help.
        """
        found = self._found
        with told(found.dataset):
            source = self._source = self._source or open_source(found.dataset, found.config, found.revision)
            if found.split not in source.splits:
                raise DataError(f"data set {found.dataset!r} has no split {found.split!r} any more.")
            for texts, after in source.texts(found.split, found.column, state):
                wrong = next((text for text in texts if text is not None and not isinstance(text, str)), None)
                if wrong is not None:
                    raise DataError(
                        f"column {found.column!r} of data set {found.dataset!r} holds a {type(wrong).__name__}, no "
                        "text; choose another with --column."
                    )
                yield [text for text in texts if text], after
