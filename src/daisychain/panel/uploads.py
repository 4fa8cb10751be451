"""Files that a person brings: limited in size, number and kind, and kept under names of our own.

They lie in `.uploads` in the folder of runs, `<16 hex digits>.csv` or `.txt`, beside a `.json` with the name they
had. That name is shown and never used as a path.
"""

import asyncio
import contextlib
import csv
import io
import json
import os
import re
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from daisychain.base import limits
from daisychain.base.errors import ConfigError, DataError
from daisychain.base.files import PARTIAL_SUFFIX, write_atomic

UPLOADS = ".uploads"  # no run can have a name with a dot before it
KINDS = {"csv": ".csv", "text": ".txt"}
_OWN_NAME = re.compile(r"[0-9a-f]{16}\.(csv|txt)")


class TooLargeError(ConfigError):
    """More bytes than an upload may have, or than there is room for."""


@dataclass(frozen=True)
class Upload:
    """A file that was brought. `columns` are a table's, in its order; `shown` is what its owner called it."""

    path: Path
    kind: str
    shown: str
    size_bytes: int
    columns: tuple[str, ...] = ()


class Uploads:
    """The files of one folder. Made when the first of them comes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._receiving = 0

    def checked(self, path: str, local: bool) -> Path:
        """The file at `path`, if it is one of these, or if whoever asks sits at this machine. Raises ConfigError."""
        given = Path(path)
        try:
            own = bool(_OWN_NAME.fullmatch(given.name)) and given.parent.resolve() == self.folder.resolve()
            if not own and not local:
                raise ConfigError(
                    "a path can only be given on the machine that shows these pages; upload the file here."
                )
            real = given if own else given.expanduser()
            if real.exists() and not (own and (real.is_symlink() or not real.is_file())):
                return real.resolve()
        except OSError as error:
            raise ConfigError(f"{path} cannot be opened: {error.strerror}; choose another file.") from error
        except (RuntimeError, ValueError):  # ~ of a user who is not known, links in a circle, a zero byte
            pass
        raise ConfigError(f"there is no file {path}; choose another.")

    def list(self) -> list[Upload]:
        """What is there, the newest first."""
        found = []
        for path in self.folder.glob("*.*"):
            if _OWN_NAME.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                found.append((path.stat().st_mtime, _upload_of(path)))
        return [upload for _, upload in sorted(found, key=lambda one: one[0], reverse=True)]

    def remove(self, path: Path) -> None:
        """Forget a file; nothing happens to any that is not one of these."""
        if path.parent == self.folder and _OWN_NAME.fullmatch(path.name):
            for file in (path, path.with_suffix(".json")):
                file.unlink(missing_ok=True)

    async def receive(
        self, chunks: AsyncIterator[bytes], kind: str, shown: str, length: int | None = None
    ) -> Upload:
        """Keep what comes, as it comes. Raises ConfigError (TooLargeError) or DataError with the reason, and then keeps
        nothing. `length` is what was announced, if it was."""
        if kind not in KINDS:
            raise ConfigError(f"an upload is {' or '.join(KINDS)}, not {kind[:20]!r}.")
        if self._receiving >= limits.UPLOADS_AT_ONCE:
            raise ConfigError("other uploads are going on; wait until they are there.")
        self._receiving += 1
        try:
            most = self._room(length or 0)
            return await asyncio.wait_for(
                self._receive(chunks, kind, shown_name(shown), most), limits.UPLOAD_LIMIT_S
            )
        except asyncio.TimeoutError:
            raise ConfigError(f"the upload took longer than {limits.UPLOAD_LIMIT_S:.0f} s.") from None
        except OSError as error:
            raise ConfigError(f"the file cannot be kept: {error.strerror}; make room.") from error
        finally:
            self._receiving -= 1

    def _room(self, length: int) -> int:
        """How many bytes may come now. Raises TooLargeError where that is too few."""
        held = self.list()
        left = limits.UPLOADS_MAX_BYTES - sum(upload.size_bytes for upload in held)
        if len(held) >= limits.UPLOADS_MAX_FILES or left <= 0:
            raise TooLargeError(f"{self.folder} is full ({len(held)} files); remove some of the files there.")
        most = min(limits.UPLOAD_MAX_BYTES, left)
        if length > most:
            raise _too_large(most)
        return most

    async def _receive(self, chunks: AsyncIterator[bytes], kind: str, shown: str, most: int) -> Upload:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{secrets.token_hex(8)}{KINDS[kind]}"
        partial = path.with_name(f".{path.name}{PARTIAL_SUFFIX}")
        size = 0
        try:
            with partial.open("xb") as file:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > most:
                        raise _too_large(most)
                    await asyncio.to_thread(file.write, chunk)
                await asyncio.to_thread(_flush, file)
            columns = _looked_at(partial, kind, shown)
            about = {"shown": shown, "columns": columns}
            write_atomic(path.with_suffix(".json"), json.dumps(about).encode())
            os.replace(partial, path)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
        return Upload(path, kind, shown, size, columns)


def shown_name(name: str) -> str:
    """What a file was called, fit to be shown: no folders, nothing that cannot be printed, not too long."""
    last = re.split(r"[\\/]", name)[-1]
    printable = "".join(letter for letter in last if letter.isprintable())
    return printable.strip()[: limits.UPLOAD_NAME_CHARACTERS] or "file"


def columns_of(text: str) -> tuple[str, ...]:
    """The names in the first line of a CSV. Raises DataError where it is no header of a table."""
    try:
        names = next(csv.reader(io.StringIO(text, newline="")), [])
    except csv.Error as error:
        raise DataError(f"its first line cannot be read as CSV ({error}).") from error
    if len(names) < 2 or not all(name.strip() and name.isprintable() for name in names):
        raise DataError("its first line does not name two columns or more, with commas between them.")
    if len(names) > limits.UPLOAD_MAX_COLUMNS or max(map(len, names)) > limits.PANEL_TEXT_CHARACTERS:
        raise DataError(f"its first line names {len(names)} columns, or one with too long a name.")
    if len(set(names)) < len(names):
        raise DataError("two of its columns have the same name.")
    return tuple(names)


def _looked_at(path: Path, kind: str, shown: str) -> tuple[str, ...]:
    """The columns of a file that is what it says it is. Raises DataError."""
    with path.open("rb") as file:
        start = file.read(limits.UPLOAD_SAMPLE_BYTES)
    try:
        if not start.strip():
            raise DataError("it is empty.")
        if b"\0" in start:
            raise DataError("it is no text.")
        text = _decoded(start)
        return columns_of(text.removeprefix("\ufeff")) if kind == "csv" else ()
    except DataError as error:
        raise DataError(f"{shown} cannot be used: {error}") from None


def _decoded(start: bytes) -> str:
    """The sample as text; its last character may be cut."""
    try:
        return start.decode()
    except UnicodeDecodeError as error:
        if error.start >= len(start) - 3 and len(start) == limits.UPLOAD_SAMPLE_BYTES:
            return start[: error.start].decode()
        raise DataError("it is not written in UTF-8; save it as UTF-8.") from None


def _upload_of(path: Path) -> Upload:
    about: Any = {}
    with contextlib.suppress(OSError, ValueError):
        about = json.loads(path.with_suffix(".json").read_bytes()[: limits.UPLOAD_SAMPLE_BYTES * 8])
    about = about if isinstance(about, dict) else {}
    columns = about.get("columns")
    names = [name for name in columns if isinstance(name, str)] if isinstance(columns, list) else []
    kind = "csv" if path.suffix == ".csv" else "text"
    return Upload(
        path, kind, shown_name(str(about.get("shown", path.name))), path.stat().st_size, tuple(names)
    )


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _too_large(most: int) -> TooLargeError:
    return TooLargeError(
        f"the file is larger than {most / (1 << 20):.0f} MiB, which is all that may be uploaded."
    )
