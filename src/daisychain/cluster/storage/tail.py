"""Files of a run that somebody else may be writing, or may have spoiled: read a piece at a time, and never believed.

Nothing here raises for what is in a file or for one that is not there: such a file is empty.
"""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from daisychain.base import limits

_CHUNK_BYTES = 1 << 20
_MARK_BYTES = 64  # of what was read last, to see that a file was not written anew in place
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; OSError for a link, which could lead out of the folder, and for a pipe, which could
    wait for ever."""
    if os.name == "nt":
        if not stat.S_ISREG(path.lstat().st_mode):
            raise OSError(f"{path} is no ordinary file")
        return open(path, "rb")
    handle = os.open(path, _OPEN_FLAGS)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(f"{path} is no ordinary file")
    return os.fdopen(handle, "rb")


def read_json(path: Path) -> Any:
    """What a small JSON file says; None where there is none that can be read."""
    try:
        with open_regular(path) as file:
            text = file.read(limits.RECORD_FILE_BYTES + 1)
        return json.loads(text) if len(text) <= limits.RECORD_FILE_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None


class Tail:
    """The whole lines of a file that grows, each once.

    A line without its end waits for it. A line of more than RECORD_LINE_BYTES is skipped. `bytes_read` counts what
    was read from the disk.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.bytes_read = 0
        self._start_over()

    def _start_over(self) -> None:
        self._seen: tuple[int, ...] | None = None  # the file as it was when it was last read to its end
        self._file: tuple[int, int] | None = None
        self._offset = 0
        self._mark = b""
        self._partial = b""
        self._skipping = False

    def restarted(self) -> bool:
        """Look at the file; whether it is another one, or was cut, so that what was read of it is void.

        Call before `lines`, which goes on where it ended, or begins again after this was true.
        """
        if self._file is None:
            return False
        try:
            now = self._path.lstat()
            if self._seen == _state(now):
                return False
            same = (
                (now.st_dev, now.st_ino) == self._file and now.st_size >= self._offset and self._mark_holds()
            )
        except OSError:
            same = False
        if not same:
            self._start_over()
        return not same

    def lines(self) -> Iterator[bytes]:
        """Every whole line that has come since, up to HISTORY_READ_BYTES at once."""
        try:
            if self._seen == _state(self._path.lstat()):
                return
            with open_regular(self._path) as file:
                now = os.fstat(file.fileno())
                if self._file not in (None, (now.st_dev, now.st_ino)):
                    return  # replaced a moment ago: `restarted` will say so
                self._file = (now.st_dev, now.st_ino)
                file.seek(self._offset)
                left = limits.HISTORY_READ_BYTES
                while left > 0 and (chunk := file.read(min(left, _CHUNK_BYTES))):
                    left -= len(chunk)
                    yield from self._split(chunk)
            self._seen = _state(now) if self._offset == now.st_size else None
        except OSError:
            return

    def _split(self, chunk: bytes) -> Iterator[bytes]:
        self.bytes_read += len(chunk)
        self._offset += len(chunk)
        self._mark = (self._mark + chunk)[-_MARK_BYTES:]
        *whole, self._partial = (self._partial + chunk).split(b"\n")
        for line in whole:
            if not self._skipping and 0 < len(line) <= limits.RECORD_LINE_BYTES:
                yield line
            self._skipping = False
        if len(self._partial) > limits.RECORD_LINE_BYTES:
            self._partial, self._skipping = b"", True

    def _mark_holds(self) -> bool:
        with open_regular(self._path) as file:
            file.seek(self._offset - len(self._mark))
            self.bytes_read += len(self._mark)
            return file.read(len(self._mark)) == self._mark


def _state(of: os.stat_result) -> tuple[int, ...]:
    return of.st_dev, of.st_ino, of.st_size, of.st_mtime_ns
