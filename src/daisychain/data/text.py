"""Text as bytes, cut into windows."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from daisychain.base import limits
from daisychain.base.errors import DataError
from daisychain.data.files import file_status, read_bytes, reason
from daisychain.data.split import held_out_split

I64 = npt.NDArray[np.int64]
SNIFF_BYTES = 8_192  # a file of a folder is text if no NUL is among its first bytes


@dataclass(frozen=True)
class Windows:
    """A text cut into windows: number w is bytes w·sequence … (w + 1)·sequence, both ends included.

    A window predicts all its bytes but the first, so every byte is predicted in one window only and none of a
    held-out window is ever trained on. Fewer than `sequence` bytes at the end are left over.
    `train` and `held_out` are window numbers.
    """

    text: npt.NDArray[np.uint8]
    sequence: int
    train: I64
    held_out: I64

    def batch(self, numbers: I64) -> I64:
        """The windows of these numbers: int64 (n, sequence + 1)."""
        places = numbers[:, None] * self.sequence + np.arange(self.sequence + 1)
        return np.asarray(self.text[places], np.int64)


def cut_windows(text: bytes, sequence: int, seed: int, source: str = "the text") -> Windows:
    """Windows of a text, a seeded part of them held out. Raises DataError for a text too short for two."""
    count = (len(text) - 1) // sequence
    if count < 2:
        raise DataError(
            f"{source} has {len(text)} bytes; sequences of {sequence} take at least {2 * sequence + 1}, one to "
            "train on and one held out. Give more text or a shorter --sequence."
        )
    train, held_out = held_out_split(count, limits.HELD_OUT_MAX_WINDOWS, seed)
    return Windows(np.frombuffer(text, np.uint8), sequence, train, held_out)


def read_text(path: Path | None) -> tuple[bytes, str]:
    """A file, all text files of a folder, or without a path the embedded corpus; and a line saying which."""
    parts, note = read_documents(path)
    return (b"\n" if path else b"\n\n").join(parts), note


def read_documents(path: Path | None) -> tuple[list[bytes], str]:
    """The same in pieces: one a file, one a topic of the embedded corpus."""
    if path is None:
        return _embedded()
    if stat.S_ISDIR(file_status(path).st_mode):
        return _read_folder(path)
    text = read_bytes(path, limits.MAX_TEXT_BYTES)
    return [text], f"{str(path)!r}: {len(text)} bytes of text"


def _embedded() -> tuple[list[bytes], str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise DataError("this Python lacks pydoc_data, the embedded corpus; give --data PATH.") from None
    parts = [topics[name].encode() for name in sorted(topics)]
    size = len(b"\n\n".join(parts))
    return parts, f"the embedded corpus, Python's reference topics: {size} bytes of text"


def _read_folder(folder: Path) -> tuple[list[bytes], str]:
    parts: list[bytes] = []
    total = skipped = 0
    for path in _visible_files(folder):
        if not _looks_like_text(path):
            skipped += 1
            continue
        parts.append(read_bytes(path, limits.MAX_TEXT_BYTES))
        total += len(parts[-1]) + 1
        if total > limits.MAX_TEXT_BYTES:
            raise DataError(
                f"{str(folder)!r} has more than {limits.MAX_TEXT_BYTES} bytes of text; give a smaller folder."
            )
    if not parts:
        raise DataError(
            f"{str(folder)!r} has no text files ({skipped} empty or binary ones); give another folder."
        )
    left_out = f", {skipped} empty or binary ones left out" if skipped else ""
    return parts, f"{str(folder)!r}: {total - 1} bytes of text from {len(parts)} files{left_out}"


def _visible_files(folder: Path) -> list[Path]:
    """Regular files below a folder, by their path in it; hidden ones and linked folders are left out."""

    def refuse(error: OSError) -> None:
        raise DataError(f"a folder in {str(folder)!r} cannot be read: {reason(error)}.")

    found: list[Path] = []
    for root, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (Path(root, name) for name in names if not name.startswith("."))
        found += [path for path in paths if path.is_file()]
        if len(found) > limits.MAX_TEXT_FILES:
            raise DataError(
                f"{str(folder)!r} has more than {limits.MAX_TEXT_FILES} files; give a smaller folder."
            )
    return sorted(found, key=lambda path: path.relative_to(folder).parts)


def _looks_like_text(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            head = file.read(SNIFF_BYTES)
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be read: {reason(error)}.") from None
    return bool(head) and b"\0" not in head
