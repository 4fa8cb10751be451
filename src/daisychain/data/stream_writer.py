"""The thread that downloads and tokenises ahead of need: one of all processes on this machine, by the cache's lock."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import numpy.typing as npt

from daisychain.base import limits
from daisychain.base.clock import Clock
from daisychain.base.errors import DaisyError, DataError, DataLostError
from daisychain.base.files import write_atomic
from daisychain.data.hub_session import HubTrouble
from daisychain.data.hub_text import State
from daisychain.data.patience import Patience, sleep_unless
from daisychain.data.token_store import TokenStore
from daisychain.data.tokenizer import Tokenizer, pack

U16 = npt.NDArray[np.uint16]
#: Texts from a state on, a few at once, with the state after them.
Fetch = Callable[[State | None], Iterator[tuple[list[str], State]]]
TROUBLE = "trouble.json"
ADVICE = "Try again later (--resume goes on with a run), or start with --on-data-failure embedded."


class StreamWriter(threading.Thread):
    """Appends to a store until `wanted()` tokens are there, and on when more are wanted. Frees the lock at its end.

    `failure` says why it ended before the data set did.
    """

    def __init__(
        self,
        store: TokenStore,
        lock: filelock.BaseFileLock,
        fetch: Fetch,
        tokenizer: Tokenizer,
        wanted: Callable[[], int],
        about: str,
        *,
        patience: Patience,
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(name="text", daemon=True)
        self._store, self._lock, self._fetch, self._tokenizer = store, lock, fetch, tokenizer
        self._wanted, self._about = wanted, about
        self._patience, self._clock, self._say = patience, clock, say
        self._stopping = threading.Event()
        self.failure: DataError | None = None

    def stop(self) -> None:
        """Ask for an end; it comes after the request under way."""
        self._stopping.set()

    def run(self) -> None:
        try:
            self._write()
        except DataError as error:
            self.failure = error
        except Exception as error:  # whatever it is, who waits must hear of it
            words = str(error) if isinstance(error, DaisyError) else repr(error)
            self.failure = DataError(f"{self._about}: the download failed: {words[:300]}")
        finally:
            if self.failure:
                tell_trouble(self._store.folder, self.failure)
            self._lock.release()

    def _write(self) -> None:
        if why := self._store.refresh():
            place = str(self._store.folder)
            self._say(f"{self._about}: the tokens in {place!r} cannot be used ({why}); they are made again.")
        while not self._stopping.is_set() and not self._at_end():
            if self._enough():
                self._clock.sleep(limits.STREAM_SLICE_S)
                continue
            try:
                self._append_some()
            except HubTrouble as trouble:
                self._wait_after(trouble)

    def _at_end(self) -> bool:
        manifest = self._store.manifest
        return manifest.end in ("whole", "limit") or (manifest.end == "space" and not self._store.has_space())

    def _enough(self) -> bool:
        return self._store.manifest.tokens >= min(self._wanted(), limits.STREAM_MAX_TOKENS)

    def _wait_after(self, trouble: HubTrouble) -> None:
        wait_s = self._patience.next_wait_s(trouble.retry_after_s)
        if wait_s is None:
            raise DataLostError(
                f"{self._about}: the hub {trouble}, and still did after {self._patience.most_s:g} s. {ADVICE}"
            )
        self._say(f"{self._about}: the hub {trouble}; it is asked again in {wait_s:.0f} s.")
        sleep_unless(self._stopping.is_set, wait_s, self._clock)

    def _append_some(self) -> None:
        """Read on until the end, a stop, or trouble; whatever was read is kept."""
        pending: list[U16] = []
        state: State | None = self._store.manifest.state
        try:
            for texts, after in self._fetch(state):
                state = after
                self._patience.progress()
                pending.append(pack(texts, self._tokenizer))
                if sum(map(len, pending)) >= limits.STREAM_PIECE_TOKENS:
                    self._append(pending, state)
                if self._at_end() or not self._may_go_on():
                    return
        except HubTrouble:
            self._append(pending, state)
            raise
        self._append(pending, state, "whole")

    def _may_go_on(self) -> bool:
        """Wait while there is enough; False for a stop."""
        while self._enough() and not self._stopping.is_set():
            self._clock.sleep(limits.STREAM_SLICE_S)
        return not self._stopping.is_set()

    def _append(self, pending: list[U16], state: Any, end: str | None = None) -> None:
        tokens = np.concatenate([*pending, np.empty(0, np.uint16)])
        pending.clear()
        room = limits.STREAM_MAX_TOKENS - self._store.manifest.tokens
        if len(tokens) >= room:
            tokens, end = tokens[:room], "limit"
            self._say(
                f"{self._about}: the limit of {limits.STREAM_MAX_TOKENS} tokens is reached; it begins anew."
            )
        elif end is None and not self._store.has_space():
            end = "space"
            self._say(f"{self._about}: the disk is nearly full; no more is fetched, and it begins anew.")
        if len(tokens) or end:
            self._store.append(tokens, state, end)


def tell(path: Path, content: bytes) -> None:
    """A word to other processes. On a disk that refuses, the writer fails next and says so."""
    with contextlib.suppress(OSError):
        write_atomic(path, content)


def tell_trouble(folder: Path, failure: DataError) -> None:
    """Let others who wait know: they need not find out for themselves, each with patience of its own."""
    body = {"time_s": time.time(), "lost": isinstance(failure, DataLostError), "words": str(failure)}
    tell(folder / TROUBLE, json.dumps(body).encode())


def told_trouble(folder: Path, since_s: float) -> DataError | None:
    """What was told after `since_s`, seconds of this machine's calendar clock; nothing from after now, when the clock
    was set back."""
    try:
        body = json.loads((folder / TROUBLE).read_bytes())
        if not since_s <= float(body["time_s"]) <= time.time():
            return None
        return (DataLostError if body["lost"] else DataError)(str(body["words"])[:1_000])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
