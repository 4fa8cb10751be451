"""Slices of text for a room: random pieces of FineWeb-Edu, or of the embedded corpus where that cannot be had."""

import concurrent.futures
import dataclasses
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from daisychain.base import limits
from daisychain.base.errors import ConfigError, DaisyError, DataError
from daisychain.data.fineweb import FineWebEdu
from daisychain.data.ranges import Meter
from daisychain.data.text import read_text

Answer = TypeVar("Answer")

SOURCES = ("auto", "embedded", "fineweb-edu")


@dataclass(frozen=True)
class Slice:
    """A piece of text. `source` is "fineweb-edu" or "embedded"; `reason` says in words why it is that one."""

    text: str
    source: str
    reason: str
    bytes_read: int  # from the network, for this slice


class TextSource:
    """Gives slices; safe to use from several threads, one of which reads at a time."""

    def __init__(self, kind: str = "auto", endpoint: str | None = None) -> None:
        """`endpoint`: the hub's address, by default huggingface_hub's own setting. Raises ConfigError."""
        if kind not in SOURCES:
            raise ConfigError(f"the source of text is {kind!r}; it is one of {', '.join(SOURCES)}.")
        self._kind = kind
        self._endpoint = endpoint
        self._remote: FineWebEdu | None = None
        self._lock = threading.Lock()
        self._slices: dict[tuple[int, int], Slice] = {}
        self._trouble = ""
        self._retry_at_s = 0.0

    def text(self, bytes_wanted: int, seed: int, wanted: str = "auto") -> Slice:
        """At most `bytes_wanted` bytes of text as UTF-8; the same seed gives the same piece of the same source.
        `wanted` is heeded where this source's own kind is "auto".

        Raises DataError or ConfigError if the source is "fineweb-edu" and cannot be had.
        """
        kind = wanted if self._kind == "auto" else self._kind
        if kind == "embedded":
            return _embedded(bytes_wanted, seed, "the embedded corpus was asked for")
        try:
            return self._read(bytes_wanted, seed)
        except DaisyError as error:
            if kind == "auto":
                return _embedded(bytes_wanted, seed, str(error))
            if isinstance(error, DataError):
                raise DataError(f"{error} {self._advice()}") from None
            raise

    def _advice(self) -> str:
        start = "Choose the built-in text, or start" if self._kind == "auto" else "Start"
        return f"{start} the server with --data embedded."

    def _read(self, bytes_wanted: int, seed: int) -> Slice:
        if not self._lock.acquire(timeout=limits.SLICE_LIMIT_S):
            raise DataError("FineWeb-Edu: other readers took too long; try again.")
        try:
            key = (bytes_wanted, seed)
            piece = self._slices.pop(key, None) or self._fetch(bytes_wanted, seed)
            self._slices[key] = dataclasses.replace(piece, bytes_read=0)
            while len(self._slices) > limits.SLICES_CACHED:
                del self._slices[next(iter(self._slices))]
            return piece
        finally:
            self._lock.release()

    def _fetch(self, bytes_wanted: int, seed: int) -> Slice:
        if time.monotonic() < self._retry_at_s:
            raise DataError(self._trouble)
        remote = self._remote = self._remote or FineWebEdu(self._endpoint)
        meter = Meter()
        try:
            text, place = within(limits.SLICE_LIMIT_S, lambda: remote.read(bytes_wanted, seed, meter))
        except DataError as error:
            self._trouble = f"FineWeb-Edu: the hub ({remote.endpoint}) {error}."
            self._retry_at_s = time.monotonic() + limits.SLICE_RETRY_AFTER_S
            raise DataError(self._trouble) from None
        return Slice(text, "fineweb-edu", place, meter.bytes_read)


def within(limit_s: float, work: Callable[[], Answer]) -> Answer:
    """The answer of `work`, which runs in a thread of its own: looking up a name cannot be given a limit."""
    future: concurrent.futures.Future[Answer] = concurrent.futures.Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, name="slice", daemon=True).start()
    try:
        return future.result(limit_s)
    except concurrent.futures.TimeoutError:
        raise DataError(f"took longer than {limit_s:g} s") from None


def _embedded(bytes_wanted: int, seed: int, reason: str) -> Slice:
    """A window of the embedded corpus, from a seeded place on."""
    content, _ = read_text(None)
    most = max(len(content) - bytes_wanted, 0)
    start = int(np.random.Generator(np.random.PCG64(seed)).integers(most + 1))
    text = content[start : start + bytes_wanted].decode("utf-8", "ignore")
    return Slice(text, "embedded", reason, 0)
