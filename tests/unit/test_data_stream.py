"""Tokens that are downloaded as they are needed: order, ends, trouble, two at once, and what a kill leaves."""

import itertools
import json
import subprocess
import sys
import threading
import time

import filelock
import numpy as np
import pytest

from daisychain.base import limits
from daisychain.base.errors import DataError, DataLostError
from daisychain.data.hub_session import HubTrouble, retry_after_s
from daisychain.data.packed import StreamedText, shuffled
from daisychain.data.patience import Patience
from daisychain.data.stream import TokenStream
from daisychain.data.stream_writer import StreamWriter, tell_trouble, told_trouble
from daisychain.data.token_store import Manifest, TokenStore, decode, encode
from daisychain.data.tokenizer import load_tokenizer, pack

from . import text_help

SOURCE = {"dataset": "demo/made", "tokenizer": "t"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    text_help.quick(monkeypatch)
    text_help.small(monkeypatch)


class Library:
    """A data set in memory: `faults` are raised before the batch of that number, once each."""

    def __init__(self, rows: int = 400, faults: dict[int, Exception] | None = None) -> None:
        self.texts = [f"[{n}] " + "the old cat waits by the warm lamp and " * 8 for n in range(rows)]
        self.faults = faults or {}
        self.batches = 0
        self.begun: list[int] = []

    def __call__(self, state):
        start = state["row"] if state else 0
        self.begun.append(start)
        for at in range(start, len(self.texts), 10):
            if (fault := self.faults.pop(at // 10, None)) or (fault := self.faults.get(-1)):
                raise fault
            self.batches += 1
            yield self.texts[at : at + 10], {"row": at + 10}

    def tokens(self):
        return pack(self.texts, load_tokenizer())


class Streams:
    """Opens streams on one folder, and closes them."""

    def __init__(self, folder) -> None:
        self.folder, self.opened, self.said = folder, [], []

    def __call__(self, library) -> TokenStream:
        self.opened.append(TokenStream(self.folder, SOURCE, library, "data set made", say=self.said.append))
        return self.opened[-1]

    def close(self) -> None:
        for stream in self.opened:
            stream.close()


@pytest.fixture
def streams(tmp_path):
    opened = Streams(tmp_path / "store")
    yield opened
    opened.close()


def test_the_whole_stream_is_the_packed_text(streams) -> None:
    library = Library()
    stream = streams(library)
    stream.wait(limits.STREAM_MAX_TOKENS)
    assert stream.end == "whole"
    assert np.array_equal(stream.read(0, stream.tokens), library.tokens())


def test_no_more_is_downloaded_than_is_wanted(streams, monkeypatch) -> None:
    monkeypatch.setattr(limits, "STREAM_PIECE_TOKENS", 1_000)
    library = Library(2_000)
    stream = streams(library)
    stream.wait(500)
    time.sleep(0.2)
    first = library.batches
    assert first <= 3
    stream.wait(1_500, ahead=3_000)
    time.sleep(0.2)
    assert first < library.batches < 20
    assert library.begun == [0]


def test_a_second_stream_reads_what_the_first_one_downloads(streams) -> None:
    library, other = Library(), Library(faults={-1: AssertionError("asked the hub too")})
    first, second = streams(library), streams(other)
    first.wait(100)
    second.wait(limits.STREAM_MAX_TOKENS)  # its wish is what the writer of the first heeds
    assert np.array_equal(second.read(0, second.tokens), library.tokens())
    assert other.begun == []


def test_another_takes_over_where_the_writer_ended(streams) -> None:
    library, other = Library(), Library()
    first, second = streams(library), streams(other)
    first.wait(100)
    first.close()
    second.wait(limits.STREAM_MAX_TOKENS)
    assert np.array_equal(second.read(0, second.tokens), library.tokens())
    assert other.begun[0] > 0


def test_trouble_is_outlived_and_nothing_is_read_twice(streams) -> None:
    library = Library(faults={3: HubTrouble("answered 503"), 17: HubTrouble("sent nothing", 0.02)})
    stream = streams(library)
    stream.wait(limits.STREAM_MAX_TOKENS)
    assert np.array_equal(stream.read(0, stream.tokens), library.tokens())
    assert library.batches == 40
    assert library.begun == [0, 30, 170]
    assert len(streams.said) == 2
    assert "answered 503; it is asked again in" in streams.said[0]


def test_patience_is_whole_again_after_every_text(streams, monkeypatch) -> None:
    class Clock:
        passed_s = 0.0

        def now_s(self):
            return self.passed_s

        def sleep(self, wait_s):
            self.passed_s += wait_s

    monkeypatch.setattr(limits, "HUB_RETRY_FIRST_S", 1.0)
    monkeypatch.setattr(limits, "HUB_RETRY_MOST_S", 1.0)
    library = Library(faults={batch: HubTrouble("is away") for batch in range(5, 40, 5)})
    store, clock = TokenStore(streams.folder, SOURCE), Clock()
    lock = filelock.FileLock(streams.folder / "lock")
    lock.acquire()
    wanted, patience = limits.STREAM_MAX_TOKENS, Patience(clock)
    writer = StreamWriter(
        store,
        lock,
        library,
        load_tokenizer(),
        lambda: wanted,
        "made",
        patience=patience,
        clock=clock,
        say=print,
    )
    writer.run()
    assert writer.failure is None
    assert clock.passed_s > 3 * limits.HUB_PATIENCE_S
    assert np.array_equal(store.read(0, store.manifest.tokens), library.tokens())


def test_patience_ends_with_what_to_do(streams) -> None:
    stream = streams(Library(faults={-1: HubTrouble("answered 503 Service Unavailable")}))
    with pytest.raises(DataLostError, match=r"data set made: the hub answered 503 .*--resume") as caught:
        stream.wait(100)
    assert "\n" not in str(caught.value)
    assert streams.said


def test_who_waits_for_a_writer_that_gives_up_hears_why_at_once(streams) -> None:
    lost, other = Library(faults={-1: HubTrouble("is away")}), Library()
    first, second = streams(lost), streams(other)
    errors = []

    def wait(stream) -> None:
        try:
            stream.wait(100)
        except DataLostError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=wait, args=(stream,)) for stream in (first, second)]
    threads[0].start()
    time.sleep(0.05)  # so that the first is the writer
    threads[1].start()
    for thread in threads:
        thread.join(20)
    assert len(errors) == 2
    assert other.begun == []
    assert "is away" in errors[0]
    assert errors[0] == errors[1]


def test_who_waits_for_another_process_waits_while_text_comes_and_no_longer(streams) -> None:
    class Clock:
        passed_s, pieces = 0.0, 12

        def now_s(self):
            return self.passed_s

        def sleep(self, _):
            self.passed_s += limits.HUB_STALL_S / 4
            if self.pieces:
                self.pieces -= 1
                other.append(np.zeros(100, np.uint16), None)

    clock, other = Clock(), TokenStore(streams.folder, SOURCE)
    with filelock.FileLock(streams.folder / "lock"):
        stream = TokenStream(streams.folder, SOURCE, Library(), "data set made", clock=clock)
        stream.wait(1_200)
        assert clock.passed_s == 3 * limits.HUB_STALL_S
        with pytest.raises(DataLostError, match="no text came for 200 s"):
            stream.wait(1_300)


def test_trouble_of_another_time_is_no_news(tmp_path) -> None:
    tell_trouble(tmp_path, DataLostError("away"))
    now_s = time.time()
    assert str(told_trouble(tmp_path, now_s - 60)) == "away"
    assert told_trouble(tmp_path, now_s + 60) is None
    for content in ({"time_s": now_s + 3_600, "lost": True, "words": "the clock was set back since"}, 5):
        (tmp_path / "trouble.json").write_text(json.dumps(content))
        assert told_trouble(tmp_path, now_s - 60) is None
    (tmp_path / "trouble.json").write_bytes(b"[" * 100_000)
    assert told_trouble(tmp_path, now_s - 60) is None


def test_a_hub_that_is_back_is_asked_again(streams) -> None:
    library = Library(faults={-1: HubTrouble("is away")})
    stream = streams(library)
    with pytest.raises(DataLostError):
        stream.wait(100)
    library.faults.clear()
    stream.wait(100)
    assert stream.tokens >= 100


def test_a_fault_of_the_data_set_is_no_trouble_of_the_hub(streams) -> None:
    stream = streams(Library(faults={5: DataError("column 'text' holds an int")}))
    for _ in range(2):
        with pytest.raises(DataError, match="holds an int") as caught:
            stream.wait(limits.STREAM_MAX_TOKENS)
        assert not isinstance(caught.value, DataLostError)
    assert streams.said == []


def test_a_surprise_reaches_who_waits(streams) -> None:
    stream = streams(Library(faults={5: ZeroDivisionError("what?")}))
    with pytest.raises(DataError, match=r"the download failed: ZeroDivisionError"):
        stream.wait(limits.STREAM_MAX_TOKENS)


def test_the_limit_on_tokens_ends_a_stream(streams, monkeypatch) -> None:
    monkeypatch.setattr(limits, "STREAM_MAX_TOKENS", 12_345)
    library = Library(3_000)
    stream = streams(library)
    stream.wait(99_999)
    assert (stream.tokens, stream.end) == (12_345, "limit")
    assert np.array_equal(stream.read(0, 12_345), library.tokens()[:12_345])
    assert "limit" in streams.said[0]


def test_a_nearly_full_disk_ends_a_stream_until_there_is_space(streams, monkeypatch) -> None:
    monkeypatch.setattr(limits, "CACHE_FREE_BYTES", 1 << 60)
    library = Library(3_000)
    stream = streams(library)
    stream.wait(99_999)
    assert stream.end == "space"
    assert stream.tokens < 99_999
    assert "disk" in streams.said[0]
    monkeypatch.setattr(limits, "CACHE_FREE_BYTES", 1)
    stream.wait(99_999)
    assert np.array_equal(stream.read(0, 99_999), library.tokens()[:99_999])


def test_a_full_disk_is_said(streams, monkeypatch) -> None:
    def refuse(self, at, content) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TokenStore, "_write", refuse)
    with pytest.raises(DataError, match=r"the disk is full\. Free some space or set DAISY_CACHE"):
        streams(Library()).wait(100)


def test_a_cut_write_is_overwritten(streams) -> None:
    library = Library()
    first = streams(library)
    first.wait(100)
    first.close()
    with open(streams.folder / "tokens.u16", "ab") as file:
        file.write(b"\xff" * 1_001)
    second = streams(library)
    second.wait(limits.STREAM_MAX_TOKENS)
    assert np.array_equal(second.read(0, second.tokens), library.tokens())


@pytest.mark.parametrize(
    "harm",
    [
        "cut tokens",
        "no tokens",
        "not JSON",
        "other tokenizer",
        "longer",
        "negative",
        "huge",
        "list",
        "half",
        "deep",
        "number",
    ],
)
def test_a_hostile_cache_is_made_again(streams, harm) -> None:
    library = Library()
    first = streams(library)
    first.wait(limits.STREAM_MAX_TOKENS)
    first.close()
    tokens, manifest = streams.folder / "tokens.u16", streams.folder / "manifest.json"
    pieces = decode(manifest.read_bytes(), SOURCE).pieces
    if harm == "cut tokens":
        tokens.write_bytes(tokens.read_bytes()[:-2])
    elif harm == "no tokens":
        tokens.unlink()
    else:
        forged = {
            "not JSON": b"{",
            "other tokenizer": encode(Manifest({**SOURCE, "tokenizer": "u"}, pieces, None, "whole")),
            "longer": encode(Manifest(SOURCE, (*pieces, (5, "0" * 64)), None, "whole")),
            "negative": encode(Manifest(SOURCE, (*pieces, (-5, "0" * 64)), None, "whole")),
            "huge": encode(Manifest(SOURCE, ((1 << 62, "0" * 64),), None, "whole")),
            "list": b"[]",
            "half": encode(Manifest(SOURCE, ((1.5, "0" * 64),), None, "whole")),
            "deep": b"[" * 100_000,
            "number": b'{"hash": "0", "manifest": 5}',
        }[harm]
        manifest.write_bytes(forged)
    second = streams(library)
    second.wait(limits.STREAM_MAX_TOKENS)
    if harm != "no tokens":
        assert "made again" in streams.said[0]
    assert np.array_equal(second.read(0, second.tokens), library.tokens())


def test_an_altered_token_is_never_used(streams) -> None:
    library = Library()
    first = streams(library)
    first.wait(limits.STREAM_MAX_TOKENS)
    first.close()
    path = streams.folder / "tokens.u16"
    boundary = decode((streams.folder / "manifest.json").read_bytes(), SOURCE).pieces[0][0]
    content = bytearray(path.read_bytes())
    content[2 * (boundary + 10)] ^= 1
    path.write_bytes(content)
    second = streams(library)
    second.wait(limits.STREAM_MAX_TOKENS)
    assert np.array_equal(second.read(boundary - 50, boundary), library.tokens()[boundary - 50 : boundary])
    with pytest.raises(DataError, match="were altered after they were written; delete the folder"):
        second.read(boundary - 50, boundary + 5)  # a part of the piece that was altered elsewhere


def test_the_windows_of_a_stream_wrap_round_at_its_end(streams) -> None:
    library = Library()
    text = StreamedText(streams(library), 32, 5, SOURCE, False)
    tokens = library.tokens()
    windows = (len(tokens) - 1) // 32
    trained = windows - len(text.held_out())
    assert len(text.held_out()) == 16
    everything = text.windows(np.arange(3 * trained))
    first, second, third = np.split(everything, 3)
    expected = {tokens[n * 32 : n * 32 + 33].astype(np.int64).tobytes() for n in range(16, windows)}
    for epoch in (first, second, third):
        assert len({row.tobytes() for row in epoch}) == len({row.tobytes() for row in first})
        assert {row.tobytes() for row in epoch} == expected
    assert not np.array_equal(second, third)
    # However it is asked for, a number has one window.
    again = StreamedText(streams(library), 32, 5, SOURCE, False)
    for numbers in (
        itertools.batched(range(0, 3 * trained, 7), 5) if sys.version_info >= (3, 12) else [[7, 700]]
    ):
        assert np.array_equal(again.windows(np.array(numbers)), everything[list(numbers)])


def test_a_number_has_the_same_window_before_the_end_is_known(streams, monkeypatch) -> None:
    library = Library(1_500)
    monkeypatch.setattr(limits, "STREAM_PIECE_TOKENS", 2_000)
    text = StreamedText(streams(library), 32, 5, SOURCE, False)
    early = text.windows(np.arange(40))
    assert text._stream.end is None
    text.windows(np.array([100_000]))
    assert text._stream.end == "whole"
    assert np.array_equal(text.windows(np.arange(40)), early)


def test_few_windows_are_split_too(streams) -> None:
    library = Library(4)
    text = StreamedText(streams(library), 32, 0, SOURCE, False)
    windows = (len(library.tokens()) - 1) // 32
    assert len(text.held_out()) == max(1, windows // 5)
    assert text.windows(np.arange(3)).shape == (3, 33)


def test_a_full_disk_moves_no_window_into_or_out_of_what_is_held_out(streams, monkeypatch) -> None:
    """A run that began on a nearly full disk goes on when there is space: each number is the window that it was."""
    monkeypatch.setattr(limits, "STREAM_PIECE_TOKENS", 1_500)
    monkeypatch.setattr(limits, "CACHE_FREE_BYTES", 1 << 62)
    short = StreamedText(streams(Library()), 32, 5, SOURCE, False)
    assert short._stream.end == "space"
    assert short._stream.tokens < 80 * 32, "fewer than would be waited for"
    monkeypatch.setattr(limits, "CACHE_FREE_BYTES", 0)
    whole = StreamedText(streams(Library()), 32, 5, SOURCE, False)
    assert np.array_equal(short.held_out(), whole.held_out())
    assert len(whole.held_out()) == 16


def test_a_data_set_too_small_is_refused(streams) -> None:
    with pytest.raises(DataError, match=r"'demo/made' has \d+ tokens; sequences of 4096 take at least 8193"):
        StreamedText(streams(Library(3)), 4_096, 0, SOURCE, False)


def test_the_embedded_corpus_stands_in_for_what_is_lost(streams, monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setenv("DAISY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(limits, "STREAM_PIECE_TOKENS", 2_000)
    library = Library(1_500)
    whole = StreamedText(streams(library), 32, 5, SOURCE, True)
    early = whole.windows(np.arange(10))
    library.faults[-1] = HubTrouble("is away")
    late = whole.windows(np.array([1, 40_000, 3]))
    assert np.array_equal(late[[0, 2]], early[[1, 3]])
    assert np.array_equal(late, whole.windows(np.array([1, 40_000, 3])))
    assert np.array_equal(
        whole._substitute.windows(np.array([40_000 % whole._substitute.sample_count])), late[1:2]
    )
    said = capsys.readouterr().err
    assert said.count("goes on with the embedded corpus") == 1
    # A block that is there in part has no order yet, so none of it is used.
    blocks = (whole._stream.tokens - 1) // 32 - 16
    blocks -= blocks % 64
    both = np.arange(blocks - 2, blocks + 64)
    stand_ins = whole._substitute.windows(both[2:] % whole._substitute.sample_count)
    assert np.array_equal(whole.windows(both)[2:], stand_ins)
    assert not np.array_equal(whole.windows(both)[:2], whole._substitute.windows(both[:2]))


def test_space_that_comes_back_at_any_moment_is_used(streams, monkeypatch) -> None:
    monkeypatch.setattr(limits, "STREAM_PIECE_TOKENS", 1_500)
    monkeypatch.setattr(limits, "CACHE_FREE_BYTES", 1 << 62)
    text = StreamedText(streams(Library()), 32, 5, SOURCE, False)
    looks = itertools.chain([False], itertools.repeat(True))
    monkeypatch.setattr(TokenStore, "has_space", lambda _: next(looks))
    number = np.array([200])
    assert np.array_equal(
        text.windows(number), StreamedText(streams(Library()), 32, 5, SOURCE, False).windows(number)
    )


def test_the_order_of_windows_is_pinned() -> None:
    """A run goes on with another version of the program."""
    assert shuffled(np.array([0, 1, 2, 63, 64, 150, 151, 400]), 160, 7).tolist() == [
        7,
        9,
        17,
        39,
        93,
        141,
        139,
        29,
    ]


def test_two_runs_with_other_sequences_share_the_tokens(streams) -> None:
    library, other = Library(), Library()
    StreamedText(streams(library), 32, 5, SOURCE, False).windows(np.array([10_000]))
    text = StreamedText(streams(other), 48, 9, SOURCE, False)
    assert np.array_equal(text.held_out()[0], library.tokens()[:49])
    assert other.begun == []


KILLED = """
import sys, time
from daisychain.base import limits
from daisychain.data.stream import TokenStream
from pathlib import Path
limits.STREAM_PIECE_TOKENS = 500
limits.STREAM_SLICE_S = 0.005
def fetch(state):
    start = state["row"] if state else 0
    for n in range(start, 400):
        time.sleep(0.01)
        yield [f"[{n}] " + "the old cat waits by the warm lamp and " * 8], {"row": n + 1}
stream = TokenStream(Path(sys.argv[1]), {"dataset": "demo/made", "tokenizer": "t"}, fetch, "made")
stream.wait(3_000, 10**9)
print("ready", flush=True)
stream.wait(10**9)
"""


def test_a_killed_writer_leaves_what_another_goes_on_from(streams) -> None:
    library = Library()
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(streams.folder)], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"ready\n"
        second = streams(library)
        second.wait(4_000)
        assert library.begun == []  # the other process still writes
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    second.wait(limits.STREAM_MAX_TOKENS)
    assert library.begun[0] > 20
    assert np.array_equal(second.read(0, second.tokens), library.tokens())


class FakeClock:
    def __init__(self) -> None:
        self.time_s = 0.0

    def now_s(self) -> float:
        return self.time_s

    def sleep(self, duration_s: float) -> None:
        self.time_s += duration_s


def test_waits_grow_up_to_a_limit_on_all_of_them(monkeypatch) -> None:
    monkeypatch.undo()
    clock = FakeClock()
    patience = Patience(clock)
    waits = []
    while (wait_s := patience.next_wait_s(None)) is not None:
        waits.append(wait_s)
        clock.sleep(wait_s)
    assert waits[:6] == [1.0, 2.0, 4.0, 8.0, 16.0, 20.0]
    assert sum(waits) <= limits.HUB_PATIENCE_S < sum(waits) + 20.0
    patience.progress()
    assert patience.next_wait_s(None) == 1.0
    assert patience.next_wait_s(33.0) == 33.0


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [(None, None), ("3", 3.0), (" 5 ", 5.0), ("86400", 60.0), ("soon", None), ("-1", None), ("", None)],
)
def test_a_server_may_ask_for_a_wait_within_reason(monkeypatch, header, wait_s) -> None:
    monkeypatch.undo()
    assert retry_after_s(header) == wait_s


def test_a_manifest_is_read_back() -> None:
    manifest = Manifest(SOURCE, ((3, "a"), (4, "b")), {"row": 7}, None)
    assert decode(encode(manifest), SOURCE) == manifest
    assert json.loads(encode(manifest))["hash"]
