"""Text of FineWeb-Edu's 10BT sample: a few pages of one row group of one shard, by range requests."""

import contextlib
import importlib
import json
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from daisychain.base import limits
from daisychain.base.errors import ConfigError, DataError
from daisychain.data.ranges import Meter, RangedFile, open_url, origin, read_body
from daisychain.data.tokenizer import END

REPOSITORY = "HuggingFaceFW/fineweb-edu"
FOLDER = "sample/10BT"
ROWS_AT_ONCE = 16


@dataclass(frozen=True)
class Shard:
    """A parquet file of the data set."""

    path: str
    size_bytes: int


class FineWebEdu:
    """The data set at a hub. What has been learnt of its shards is kept; nothing is written."""

    def __init__(self, endpoint: str | None) -> None:
        """Raises ConfigError without the package `huggingface_hub`, or for an endpoint that is no web address."""
        try:
            self._hub = importlib.import_module("huggingface_hub")
            self._settings = importlib.import_module("huggingface_hub.constants")
        except ImportError:
            raise ConfigError(
                "the package 'huggingface_hub' is not installed; pip install 'daisychain[room]'."
            ) from None
        self.endpoint: str = (endpoint or self._settings.ENDPOINT).rstrip("/")
        if origin(self.endpoint)[0] not in ("http", "https") or not origin(self.endpoint)[1]:
            raise ConfigError(f"the hub's endpoint is {self.endpoint!r}; give a web address (HF_ENDPOINT).")
        self._shards: list[Shard] = []
        self._footers: dict[Shard, Any] = {}

    def read(self, bytes_wanted: int, seed: int, meter: Meter) -> tuple[str, str]:
        """Documents from the start of a row group, END between them, and where they are from.

        At most `bytes_wanted` bytes as UTF-8, fewer if the row group has fewer. Raises DataError, whose message
        goes on from "the hub …".
        """
        if self._settings.HF_HUB_OFFLINE:
            raise DataError("is not to be asked: HF_HUB_OFFLINE is set")
        shards = self._list(meter)
        generator = np.random.Generator(np.random.PCG64(seed))
        shard = shards[generator.integers(len(shards))]
        with _parquet_errors(shard):
            file = RangedFile(self._url(shard), shard.size_bytes, self._headers(), meter)
            parquet = self._open(shard, file)
            if parquet.schema_arrow.field("text").type not in (pa.string(), pa.large_string()):
                raise ValueError("its column 'text' holds no strings")
            groups = [n for n in range(parquet.num_row_groups) if parquet.metadata.row_group(n).num_rows]
            if not groups:
                raise ValueError("it has no rows")
            group = groups[generator.integers(len(groups))]
            _fetch_pages(file, parquet.metadata.row_group(group), bytes_wanted)
            text = _documents(parquet, group, bytes_wanted)
        return text, f"row group {group} of {shard.path}"

    def _list(self, meter: Meter) -> list[Shard]:
        if not self._shards:
            folder = urllib.parse.quote(FOLDER)
            url = f"{self.endpoint}/api/datasets/{REPOSITORY}/tree/main/{folder}"
            with open_url(url, self._headers(), meter) as response:
                content = read_body(response, limits.SLICE_MAX_LISTING_BYTES, meter)
            try:
                entries = [Shard(str(entry["path"]), int(entry["size"])) for entry in json.loads(content)]
            except (ValueError, KeyError, TypeError):
                raise DataError(f"sent no list of files for {FOLDER}") from None
            shards = [entry for entry in entries if entry.path.endswith(".parquet")]
            if not shards:
                raise DataError(f"lists no parquet file in {FOLDER}")
            self._shards = sorted(shards, key=lambda shard: shard.path)
        return self._shards

    def _url(self, shard: Shard) -> str:
        url: str = self._hub.hf_hub_url(REPOSITORY, shard.path, repo_type="dataset", endpoint=self.endpoint)
        return url

    def _headers(self) -> dict[str, str]:
        token = self._hub.get_token()
        return {"User-Agent": "daisychain"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def _open(self, shard: Shard, file: RangedFile) -> Any:
        known = self._footers.get(shard)
        parquet = pq.ParquetFile(file, metadata=known, buffer_size=limits.SLICE_BLOCK_BYTES, pre_buffer=False)
        if known is None:
            if len(self._footers) >= limits.SLICE_FOOTERS_CACHED:
                del self._footers[next(iter(self._footers))]
            self._footers[shard] = parquet.metadata
        return parquet


@contextlib.contextmanager
def _parquet_errors(shard: Shard) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        words = " ".join(str(error).split())[:200]
        raise DataError(f"sent {shard.path}, which cannot be used: {words}") from None


def _fetch_pages(file: RangedFile, group: Any, bytes_wanted: int) -> None:
    """Have about as much of the text column here as `bytes_wanted` takes, in one request."""
    columns = [group.column(n) for n in range(group.num_columns)]
    text = next(column for column in columns if column.path_in_schema == "text")
    start = text.dictionary_page_offset or text.data_page_offset
    share = text.total_compressed_size / max(text.total_uncompressed_size, 1)
    wanted = min(text.total_compressed_size, int(bytes_wanted * share) + limits.SLICE_BLOCK_BYTES)
    file.fetch(start, start + wanted)


def _documents(parquet: Any, group: int, bytes_wanted: int) -> str:
    parts: list[bytes] = []
    length = 0
    for batch in parquet.iter_batches(ROWS_AT_ONCE, row_groups=[group], columns=["text"], use_threads=False):
        for text in batch.column(0).to_pylist():
            if text:
                parts.append(text.encode())
                length += len(parts[-1]) + len(END)
        if length >= bytes_wanted:
            break
    return END.encode().join(parts)[:bytes_wanted].decode("utf-8", "ignore")
