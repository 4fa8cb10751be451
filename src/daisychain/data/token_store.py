"""Tokens on disk: one file that only grows, and a manifest that says how much of it is whole.

The manifest is written after the tokens it speaks of are safe. What lies beyond it, from a writer that was killed, is
overwritten by the next. Every piece has a hash, checked before any of its tokens is used.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from daisychain.base import limits
from daisychain.base.errors import DataError
from daisychain.base.files import write_atomic
from daisychain.data.files import reason

U16 = npt.NDArray[np.uint16]

FORMAT = 1
MANIFEST, TOKENS, LOCK = "manifest.json", "tokens.u16", "lock"
#: Why a stream is at its end: the data set's, our limit on tokens, or a disk that is nearly full.
ENDS = ("whole", "limit", "space")


@dataclass(frozen=True)
class Manifest:
    """`source` says what the tokens are of. `pieces` are (tokens, SHA-256); `state` is where reading goes on."""

    source: Mapping[str, Any]
    pieces: tuple[tuple[int, str], ...] = ()
    state: Mapping[str, Any] | None = None
    end: str | None = None

    @property
    def tokens(self) -> int:
        return sum(count for count, _ in self.pieces)


class TokenStore:
    """A folder of tokens of one source. Any number of readers; one writer, who holds the folder's lock."""

    def __init__(self, folder: Path, source: Mapping[str, Any]) -> None:
        """Raises DataError where the folder cannot be made."""
        self.folder, self.source = folder, dict(source)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{str(folder)!r} cannot be made ({reason(error)}); set DAISY_CACHE.") from None
        self.manifest = Manifest(self.source)
        self._starts: list[int] = []
        self._stamp: tuple[int, int, int] | None = None
        self._checked: set[tuple[int, str]] = set()  # start and hash of pieces

    def refresh(self) -> str:
        """Read the manifest if it has changed. Returns why it cannot be used, in words, or nothing."""
        path = self.folder / MANIFEST
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
            if stamp == self._stamp:
                return ""
            if status.st_size > limits.MAX_CACHE_MANIFEST_BYTES:
                raise ValueError(f"it has {status.st_size} bytes")
            manifest = decode(path.read_bytes(), self.source)
            size = os.stat(self.folder / TOKENS).st_size
            if size < manifest.tokens * 2:
                raise ValueError(f"it speaks of {manifest.tokens * 2} bytes of tokens, {size} are there")
        except FileNotFoundError:
            self._set(Manifest(self.source), None)
            return ""
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            self._set(Manifest(self.source), None)
            return reason(error)
        self._set(manifest, stamp)
        return ""

    def _set(self, manifest: Manifest, stamp: tuple[int, int, int] | None) -> None:
        self.manifest, self._stamp = manifest, stamp
        self._starts = list(np.cumsum([0, *(count for count, _ in manifest.pieces)])[:-1])

    def append(self, tokens: U16, state: Mapping[str, Any] | None, end: str | None = None) -> None:
        """Add tokens, then say so. For the writer only. Raises DataError for a disk that refuses."""
        content = np.ascontiguousarray(tokens, "<u2").tobytes()
        pieces = self.manifest.pieces
        if content:
            pieces += ((len(tokens), hashlib.sha256(content).hexdigest()),)
        try:
            self._write(self.manifest.tokens * 2, content)
            manifest = replace(self.manifest, pieces=pieces, state=state, end=end)
            write_atomic(self.folder / MANIFEST, encode(manifest))
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            what = "the disk is full" if full else reason(error)
            raise DataError(
                f"tokens cannot be kept in {str(self.folder)!r}: {what}. Free some space or set DAISY_CACHE."
            ) from None
        self._set(manifest, None)

    def _write(self, at: int, content: bytes) -> None:
        handle = os.open(self.folder / TOKENS, os.O_RDWR | os.O_CREAT, 0o600)
        with open(handle, "r+b") as file:
            file.truncate(at)
            file.seek(at)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def has_space(self) -> bool:
        """Whether the disk has more left than the limit."""
        return shutil.disk_usage(self.folder).free > limits.CACHE_FREE_BYTES

    def read(self, start: int, stop: int) -> U16:
        """Tokens start … stop, which the manifest has. Raises DataError for a file that was altered."""
        try:
            with open(self.folder / TOKENS, "rb") as file:
                self._check(file, start, stop)
                file.seek(start * 2)
                return np.frombuffer(file.read((stop - start) * 2), "<u2").astype(np.uint16)
        except OSError as error:
            raise DataError(f"tokens in {str(self.folder)!r} cannot be read: {reason(error)}.") from None

    def _check(self, file: Any, start: int, stop: int) -> None:
        first = int(np.searchsorted(self._starts, start, "right")) - 1
        for at, (count, digest) in zip(self._starts[first:], self.manifest.pieces[first:], strict=True):
            if at >= stop:
                return
            if (at, digest) in self._checked:
                continue
            file.seek(int(at) * 2)
            content = file.read(count * 2)
            whole = hashlib.sha256(content).hexdigest() == digest
            if not whole or np.frombuffer(content, "<u2").max() >= limits.VOCABULARY:
                raise DataError(
                    f"the tokens in {str(self.folder)!r} were altered after they were written; delete the folder "
                    "to have them made again."
                )
            self._checked.add((at, digest))


def encode(manifest: Manifest) -> bytes:
    """A manifest as JSON, with a hash of itself."""
    body = {
        "format": FORMAT,
        "source": manifest.source,
        "pieces": manifest.pieces,
        "state": manifest.state,
        "end": manifest.end,
    }
    text = json.dumps(body)
    return json.dumps({"hash": hashlib.sha256(text.encode()).hexdigest(), "manifest": text}).encode()


def decode(content: bytes, source: Mapping[str, Any]) -> Manifest:
    """The manifest of these tokens. Raises ValueError, KeyError, TypeError or RecursionError for any other content."""
    outer = json.loads(content)
    text = str(outer["manifest"])
    if hashlib.sha256(text.encode()).hexdigest() != outer["hash"]:
        raise ValueError("its manifest was altered")
    body = json.loads(text)
    if body["format"] != FORMAT or body["source"] != source:
        raise ValueError("it is of another format, data set or tokenizer")
    manifest = Manifest(
        source, tuple((count, digest) for count, digest in body["pieces"]), body["state"], body["end"]
    )
    counts = [count for count, _ in manifest.pieces]
    if not all(type(count) is int and count > 0 for count in counts) or manifest.end not in (None, *ENDS):
        raise ValueError("its numbers are out of range")
    if manifest.tokens > limits.STREAM_MAX_TOKENS:
        raise ValueError(f"it has {manifest.tokens} tokens, more than {limits.STREAM_MAX_TOKENS}")
    return manifest
