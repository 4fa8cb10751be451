"""Text of the hub as windows: pinned at first contact, tokenised once a machine, in the same order for ever."""

import atexit
import hashlib
import json
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import numpy.typing as npt

from daisychain.base import limits
from daisychain.base.clock import Clock, SystemClock
from daisychain.base.errors import ConfigError, DataError, DataLostError
from daisychain.base.files import write_atomic
from daisychain.base.log import say
from daisychain.data.files import reason
from daisychain.data.hub_session import HubTrouble, hub_endpoint
from daisychain.data.hub_text import Found, find
from daisychain.data.patience import Patience
from daisychain.data.source import TextChoice
from daisychain.data.stream_writer import ADVICE, Fetch, StreamWriter, tell, told_trouble
from daisychain.data.token_store import LOCK, TokenStore
from daisychain.data.tokenizer import load_tokenizer, tokenizer_digest

U16 = npt.NDArray[np.uint16]
WANTED = "wanted"
STOP_LIMIT_S = 2.0  # a request under way is not waited for at the end of the program


class TokenStream:
    """Tokens that are downloaded as they are needed, by this process or by another one that uses the same folder."""

    def __init__(
        self,
        folder: Path,
        source: Mapping[str, Any],
        fetch: Fetch,
        about: str,
        *,
        clock: Clock | None = None,
        say: Callable[[str], None] = say,
    ) -> None:
        self._store = TokenStore(folder, source)
        self._lock = filelock.FileLock(folder / LOCK, thread_local=False)
        self._fetch, self.about = fetch, about
        self._clock, self._say = clock or SystemClock(), say
        self._writer: StreamWriter | None = None
        self._wanted_tokens = 0
        self._failure: DataError | None = None  # of this wait; a fault of the data set's own stays
        self._began_wall_s = time.time()
        atexit.register(_close_if_alive, weakref.ref(self))

    @property
    def tokens(self) -> int:
        """Tokens that are there."""
        return self._store.manifest.tokens

    @property
    def end(self) -> str | None:
        """Why there were no more when last looked at (token_store.ENDS), or None."""
        return self._store.manifest.end

    def wait(self, tokens: int, ahead: int = 0) -> None:
        """Return when `tokens` are there or the end is known; `ahead` more are downloaded meanwhile and afterwards.

        Raises DataError where the data set is at fault, DataLostError where the hub gave nothing for too long.
        """
        self._forgive()
        self._want(tokens + ahead)
        self._began_wall_s = time.time()
        began_s, seen = self._clock.now_s(), -1
        while True:
            self._store.refresh()
            if self.tokens >= tokens or self.ended:
                self._help()
                return
            if self._failure:
                raise self._failure
            if self.tokens > seen:
                seen, began_s = self.tokens, self._clock.now_s()
            if self._clock.now_s() - began_s > limits.HUB_STALL_S:
                raise DataLostError(f"{self.about}: no text came for {limits.HUB_STALL_S:g} s. {ADVICE}")
            self._help()
            self._clock.sleep(limits.STREAM_SLICE_S)

    def read(self, start: int, stop: int) -> U16:
        """Tokens start … stop, which are there."""
        return self._store.read(start, stop)

    def close(self) -> None:
        """Stop downloading."""
        if self._writer:
            self._writer.stop()
            self._writer.join(STOP_LIMIT_S)

    @property
    def ended(self) -> bool:
        """Whether there will be no more. What stopped for want of space may go on where there is some again."""
        return self.end is not None and (self.end != "space" or not self._store.has_space())

    def _forgive(self) -> None:
        """A hub that was lost while nobody waited for it is tried anew, with fresh patience."""
        if self._writer and not self._writer.is_alive():
            self._failure, self._writer = self._writer.failure, None
        if isinstance(self._failure, DataLostError):
            self._failure = None

    def _want(self, tokens: int) -> None:
        """Have so many tokens downloaded, by whoever holds the lock. The wish is kept in a file for it to see."""
        pieces = -(-tokens // limits.STREAM_PIECE_TOKENS)
        rounded = min(pieces * limits.STREAM_PIECE_TOKENS, limits.STREAM_MAX_TOKENS)
        if rounded > max(self._wanted_tokens, self._wanted_by_others()):
            tell(self._store.folder / WANTED, str(rounded).encode())
        self._wanted_tokens = max(self._wanted_tokens, rounded)

    def _wanted_by_others(self) -> int:
        try:
            text = (self._store.folder / WANTED).read_text(encoding="ascii")
        except (OSError, ValueError):
            return 0
        return int(text) if text.isdecimal() and len(text) < 20 else 0

    def _help(self) -> None:
        """Become the writer, where nobody is."""
        if self._writer and not self._writer.is_alive():
            self._failure, self._writer = self._writer.failure, None
        if self._writer or self._failure or self.ended:
            return
        try:
            self._lock.acquire(timeout=0)
        except filelock.Timeout:
            return
        # A writer tells of its trouble before it lets go of the lock.
        self._failure = told_trouble(self._store.folder, self._began_wall_s)
        if self._failure:
            self._lock.release()
            return
        self._writer = StreamWriter(
            TokenStore(self._store.folder, self._store.source),
            self._lock,
            self._fetch,
            load_tokenizer(),
            lambda: max(self._wanted_tokens, self._wanted_by_others()),
            self.about,
            patience=Patience(self._clock),
            clock=self._clock,
            say=self._say,
        )
        self._writer.start()


def _close_if_alive(reference: "weakref.ref[TokenStream]") -> None:
    if stream := reference():
        stream.close()


def pinned(choice: TextChoice, cache: Path, clock: Clock, say: Callable[[str], None]) -> Found:
    """What a choice means: as it was found at first contact from this machine, else as the hub says now.

    Raises DataError for a choice that cannot be, DataLostError where the hub cannot be asked.
    """
    wish = {"endpoint": hub_endpoint(), **asdict(choice), "path": None, "on_failure": None}
    path = cache / "hub/pins" / f"{digest(wish)}.json"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with filelock.FileLock(path.with_suffix(".lock"), timeout=limits.CACHE_LOCK_WAIT_S):
            return _known(path, say) or _first_contact(choice, path, clock, say)
    except filelock.Timeout:
        raise DataLostError(
            f"data set {choice.dataset!r}: another process has been asking the hub for "
            f"{limits.CACHE_LOCK_WAIT_S:g} s. {ADVICE}"
        ) from None
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be written ({reason(error)}); set DAISY_CACHE.") from None


def _known(path: Path, say: Callable[[str], None]) -> Found | None:
    try:
        return Found.from_json(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, ConfigError) as error:
        say(f"{str(path)!r} cannot be used ({reason(error)}); the hub is asked again.")
        return None


def _first_contact(choice: TextChoice, path: Path, clock: Clock, say: Callable[[str], None]) -> Found:
    found = _find_patiently(choice, clock, say)
    write_atomic(path, json.dumps(asdict(found)).encode())
    return found


def _find_patiently(choice: TextChoice, clock: Clock, say: Callable[[str], None]) -> Found:
    patience = Patience(clock)
    while True:
        try:
            return find(choice)
        except HubTrouble as trouble:
            wait_s = patience.next_wait_s(trouble.retry_after_s)
            if wait_s is None:
                raise DataLostError(
                    f"data set {choice.dataset!r}: the hub {trouble}, and still did after {patience.most_s:g} s. "
                    f"{ADVICE}"
                ) from None
            say(f"data set {choice.dataset!r}: the hub {trouble}; it is asked again in {wait_s:.0f} s.")
            clock.sleep(wait_s)


def digest(content: Mapping[str, Any]) -> str:
    """A short name for JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def open_stream(
    choice: TextChoice, cache: Path, fetch: Callable[[Found], Fetch], clock: Clock, say: Callable[[str], None]
) -> tuple[TokenStream, dict[str, Any]]:
    """The stream of a choice, and what tells it from every other."""
    found = pinned(choice, cache, clock, say)
    source = {**asdict(found), "tokenizer": tokenizer_digest()}
    folder = cache / "hub" / digest({"endpoint": hub_endpoint(), **source})
    return TokenStream(folder, source, fetch(found), f"data set {found}", clock=clock, say=say), source
