"""Looking at a path before it is read, so that nothing is read that hangs or does not fit."""

import os
import stat
from pathlib import Path

from daisychain.base.errors import DataError


def file_status(path: Path) -> os.stat_result:
    """The status of an existing path. Raises DataError."""
    try:
        return path.stat()
    except FileNotFoundError:
        raise DataError(f"{str(path)!r} does not exist; check the path.") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{str(path)!r} cannot be looked at: {reason(error)}.") from None


def check_regular(path: Path, most_bytes: int) -> int:
    """The size of a regular, non-empty file of at most `most_bytes`. Raises DataError."""
    status = file_status(path)
    if stat.S_ISDIR(status.st_mode):
        raise DataError(f"{str(path)!r} is a folder; give a file.")
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{str(path)!r} is a device, a pipe or a socket; give a regular file.")
    if status.st_size == 0:
        raise DataError(f"{str(path)!r} is empty; give a file with data in it.")
    if status.st_size > most_bytes:
        raise DataError(
            f"{str(path)!r} has {status.st_size} bytes; the most is {most_bytes}. Use a part of it."
        )
    return status.st_size


def read_bytes(path: Path, most_bytes: int) -> bytes:
    """The content of a file that `check_regular` accepts. Raises DataError."""
    size = check_regular(path, most_bytes)
    try:
        with open(path, "rb") as file:
            return file.read(size)
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be read: {reason(error)}.") from None


def reason(error: Exception) -> str:
    """What an error says, on one line, without the path it repeats."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:300].rstrip(".") or type(error).__name__
