"""Files that are whole or absent, whatever happens while they are written."""

import contextlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

PARTIAL_SUFFIX = ".partial"


def write_atomic(path: Path, chunks: bytes | Iterable[bytes]) -> None:
    """Write `path` so that a reader sees the old file or the new one, never a part.

    Temporary file in the same folder, fsync, rename, fsync of the folder. On any error the old file stays and
    the temporary one is removed.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{PARTIAL_SUFFIX}")
    try:
        with open(temporary, "xb") as file:
            for chunk in [chunks] if isinstance(chunks, bytes) else chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
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
