"""Text: windows that cover it once, and every bad path refused on one line."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.base import limits
from daisychain.base.errors import DataError
from daisychain.data.text import cut_windows, read_text


@given(text=st.binary(min_size=33, max_size=400), sequence=st.integers(1, 16), seed=st.integers(0, 5))
def test_windows_predict_every_byte_once_and_nothing_held_out_is_trained(
    text: bytes, sequence: int, seed: int
) -> None:
    windows = cut_windows(text, sequence, seed)
    numbers = np.concatenate([windows.train, windows.held_out])
    count = (len(text) - 1) // sequence
    assert sorted(numbers.tolist()) == list(range(count))
    batch = windows.batch(np.arange(count))
    assert batch.shape == (count, sequence + 1)
    assert batch.dtype == np.int64
    assert bytes(batch[:, 1:].astype(np.uint8).ravel()) == text[1 : count * sequence + 1]
    assert bytes(batch[:, :-1].astype(np.uint8).ravel()) == text[: count * sequence]
    assert len(text) - 1 - count * sequence < sequence


@pytest.mark.parametrize("length", [0, 1, 128, 256])
def test_short_text_is_refused(length: int) -> None:
    with pytest.raises(DataError, match=rf"has {length} bytes; sequences of 128 take at least 257"):
        cut_windows(b"a" * length, 128, 0)


def test_shortest_text_is_enough() -> None:
    windows = cut_windows(b"a" * 257, 128, 0)
    assert len(windows.train) == len(windows.held_out) == 1


def test_embedded_corpus() -> None:
    text, note = read_text(None)
    assert len(text) > 300_000
    assert "embedded corpus" in note
    assert read_text(None)[0] == text


def test_file_of_any_bytes(tmp_path: Path) -> None:
    content = bytes(range(256)) * 4
    (tmp_path / "binary.bin").write_bytes(content)
    assert read_text(tmp_path / "binary.bin")[0] == content


def test_folder_is_read_in_path_order_without_binary_hidden_and_empty_files(tmp_path: Path) -> None:
    for name, content in {
        "b.txt": b"second",
        "a/z.md": b"first \xff",
        "c.png": b"\x89PNG\0\0",
        ".hidden": b"no",
        ".git/x": b"no",
        "empty.txt": b"",
        "d": b"third",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    text, note = read_text(tmp_path)
    assert text == b"first \xff\nsecond\nthird"
    assert "3 files, 2 empty or binary ones left out" in note


def test_folder_link_to_itself_does_not_hang(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert read_text(tmp_path)[0] == b"hello"


def test_bad_paths(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "picture").write_bytes(b"\0\1")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, words in {
        "absent.txt": "does not exist",
        "empty.txt": "is empty",
        "folder": "no text files",
        "pipe": "a pipe",
        "loop": "cannot be looked at",
        "nul\0": "cannot be looked at",
        "x" * 5_000: "cannot be looked at",
    }.items():
        with pytest.raises(DataError, match=words) as caught:
            read_text(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("12345678")
    (tmp_path / "b.txt").write_text("12345678")
    monkeypatch.setattr(limits, "MAX_TEXT_BYTES", 10)
    with pytest.raises(DataError, match="more than 10 bytes"):
        read_text(tmp_path)
    monkeypatch.setattr(limits, "MAX_TEXT_BYTES", 7)
    with pytest.raises(DataError, match="has 8 bytes; the most is 7"):
        read_text(tmp_path / "a.txt")
    monkeypatch.setattr(limits, "MAX_TEXT_FILES", 1)
    with pytest.raises(DataError, match="more than 1 files"):
        read_text(tmp_path)
