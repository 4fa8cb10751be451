"""Files that are whole or absent, whatever happens while they are written; locks; where a user's files are kept."""

import contextlib
import os
import secrets
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

PARTIAL_SUFFIX = ".partial"


def write_atomic(path: Path, chunks: bytes | Iterable[bytes | memoryview], *, durable: bool = True) -> None:
    """Write `path` so that a reader sees the old file or the new one, never a part.

    Temporary file in the same folder, fsync, rename, fsync of the folder. On any error the old file stays and
    the temporary one is removed. What is not `durable` is not waited for until it is on the disk, and may be lost
    with the power.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{PARTIAL_SUFFIX}")
    try:
        with open(temporary, "xb") as file:
            for chunk in [chunks] if isinstance(chunks, bytes) else chunks:
                file.write(chunk)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        fsync_folder(path.parent)


def fsync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable, where the system can (Windows cannot open a folder)."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def user_data_folder() -> Path:
    """Where this system keeps a user's data of a program."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library/Application Support"
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    return base / "daisychain"


if sys.platform == "win32":
    import msvcrt

    def try_lock(file: TextIO) -> bool:
        """Lock an open file for this process, until it is closed or the process dies; False if another has it."""
        try:
            file.seek(1 << 20)  # beyond the owner's name, so that others can read it
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def try_lock(file: TextIO) -> bool:
        """Lock an open file for this process, until it is closed or the process dies; False if another has it."""
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True
