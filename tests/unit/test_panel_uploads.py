"""Files that a person brings: bounded while they come, looked at, and kept under names of our own."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from daisychain.base import limits
from daisychain.base.errors import ConfigError, DaisyError
from daisychain.panel.uploads import TooLargeError, Uploads, columns_of, shown_name

TABLE = b"age,income,label\n1,2,a\n"


async def pieces(data: bytes, size: int = 1 << 16) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def bring(uploads: Uploads, data: bytes, kind: str = "csv", shown: str = "my.csv", length: int | None = None):
    return asyncio.run(uploads.receive(pieces(data), kind, shown, length))


@pytest.fixture
def uploads(tmp_path) -> Uploads:
    return Uploads(tmp_path / "runs/.uploads")


def test_a_table_is_kept_with_its_columns(uploads) -> None:
    upload = bring(uploads, b"\xef\xbb\xbf" + TABLE)
    assert upload.columns == ("age", "income", "label")
    assert upload.path.read_bytes().endswith(TABLE)
    assert upload.path.parent == uploads.folder
    assert uploads.list() == [upload]
    assert uploads.checked(str(upload.path), local=False) == upload.path.resolve()
    uploads.remove(upload.path)
    assert list(uploads.folder.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    ["../../evil.csv", "/etc/passwd", "C:\\x\\evil.csv", "a\0b\nc", "", "." * 5, "x" * 10_000, "é\u202e.csv"],
)
def test_the_name_that_a_file_had_is_no_path(uploads, name) -> None:
    upload = bring(uploads, TABLE, shown=name)
    assert upload.path.parent == uploads.folder
    assert len(upload.path.stem) == 16
    assert upload.shown == shown_name(name)
    assert "/" not in upload.shown
    assert upload.shown.isprintable()
    assert len(upload.shown) <= limits.UPLOAD_NAME_CHARACTERS


@pytest.mark.parametrize(
    ("data", "kind", "why"),
    [
        (b"", "csv", "empty"),
        (b" \n\n ", "text", "empty"),
        (b"\x7fELF\0\0", "text", "no text"),
        (b"PK\x03\x04\xff\xfe", "text", "UTF-8"),
        ("grün, blau".encode("latin-1"), "csv", "UTF-8"),
        (b"one column\n1\n", "csv", "two columns"),
        (b"a,,c\n1,2,3\n", "csv", "two columns"),
        (b"a,a\n1,2\n", "csv", "same name"),
        (b"a," + b"x" * 300 + b"\n", "csv", "too long"),
        (b'a,"' + b"x" * 200_000, "csv", "too long"),
        (TABLE, "exe", "an upload is"),
        (TABLE, "../csv", "an upload is"),
    ],
)
def test_what_is_no_table_and_no_text_is_refused(uploads, data, kind, why) -> None:
    with pytest.raises(DaisyError, match=why):
        bring(uploads, data, kind)
    assert not uploads.folder.exists() or list(uploads.folder.iterdir()) == []


def test_a_letter_that_the_sample_cuts_is_no_fault(uploads) -> None:
    text = ("x" * (limits.UPLOAD_SAMPLE_BYTES - 1) + "ü" * 10).encode()
    assert bring(uploads, text, "text").size_bytes == len(text)


def test_200_mb_are_refused_before_they_are_read_and_while_they_come(uploads, monkeypatch) -> None:
    with pytest.raises(TooLargeError, match="64 MiB"):
        bring(uploads, TABLE, length=200_000_000)
    assert not uploads.folder.exists()
    monkeypatch.setattr(limits, "UPLOAD_MAX_BYTES", 1 << 20)
    came = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal came
        while True:
            came += 1 << 16
            yield b"a,b\n" * (1 << 14)

    with pytest.raises(TooLargeError):
        asyncio.run(uploads.receive(endless(), "csv", "x", 10))  # it said ten bytes
    assert came <= (1 << 20) + (1 << 16)
    assert list(uploads.folder.iterdir()) == []


def test_the_folder_has_a_limit_too(uploads, monkeypatch) -> None:
    monkeypatch.setattr(limits, "UPLOADS_MAX_FILES", 2)
    bring(uploads, TABLE)
    bring(uploads, TABLE)
    with pytest.raises(TooLargeError, match="full"):
        bring(uploads, TABLE)
    monkeypatch.setattr(limits, "UPLOADS_MAX_FILES", 100)
    monkeypatch.setattr(limits, "UPLOADS_MAX_BYTES", 2 * len(TABLE) + 5)
    with pytest.raises(TooLargeError):
        bring(uploads, TABLE)


def test_a_slow_or_broken_upload_leaves_nothing(uploads, monkeypatch) -> None:
    monkeypatch.setattr(limits, "UPLOAD_LIMIT_S", 0.05)

    async def slow() -> AsyncIterator[bytes]:
        yield TABLE
        await asyncio.sleep(60)

    async def broken() -> AsyncIterator[bytes]:
        yield TABLE
        raise ConnectionResetError

    with pytest.raises(ConfigError, match="took longer"):
        asyncio.run(uploads.receive(slow(), "csv", "x"))
    with pytest.raises(ConfigError, match="cannot be kept"):
        asyncio.run(uploads.receive(broken(), "csv", "x"))
    assert list(uploads.folder.iterdir()) == []
    bring(uploads, TABLE)  # neither holds a place of those that come at once


def test_few_come_at_once(uploads) -> None:
    async def all_at_once() -> list[object]:
        gate = asyncio.Event()

        async def waiting() -> AsyncIterator[bytes]:
            yield TABLE
            await gate.wait()

        others = [
            asyncio.create_task(uploads.receive(waiting(), "csv", "x")) for _ in range(limits.UPLOADS_AT_ONCE)
        ]
        await asyncio.sleep(0)
        try:
            with pytest.raises(ConfigError, match="other uploads"):
                await uploads.receive(pieces(TABLE), "csv", "x")
        finally:
            gate.set()
        return await asyncio.gather(*others)

    assert len(asyncio.run(all_at_once())) == limits.UPLOADS_AT_ONCE


@pytest.mark.parametrize("path", ["~nobody-here/x", "x" * 300, "loop/x", "a\0b", "/proc/1/fd/0"])
def test_a_path_that_leads_nowhere_is_refused_in_words(uploads, tmp_path, path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for local in (True, False):
        with pytest.raises(ConfigError, match=r"upload the file|no file|cannot be opened"):
            uploads.checked(path if path[0] in "~/" else str(tmp_path / path), local)


def test_only_own_files_are_listed_and_removed(uploads, tmp_path) -> None:
    kept = bring(uploads, TABLE)
    other = uploads.folder / "notes.txt"
    other.write_text("mine")
    outside = tmp_path / "0123456789abcdef.csv"
    outside.write_text("a,b")
    (uploads.folder / "0123456789abcdef.csv").symlink_to(outside)
    assert uploads.list() == [kept]
    uploads.remove(other)
    uploads.remove(outside)
    assert other.exists()
    assert outside.exists()
    kept.path.with_suffix(".json").write_text('{"shown": ["x"], "columns": [1, "a"]}')
    assert uploads.list()[0].columns == ("a",)


def test_columns_with_quotes() -> None:
    assert columns_of('"a, b",c\r\n1,2\r\n') == ("a, b", "c")
