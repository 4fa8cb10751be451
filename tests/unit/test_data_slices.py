"""Slices of text: from a stand-in of the Hugging Face hub, well and faulty, and from the embedded corpus."""

import io
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daisychain.base import limits
from daisychain.base.errors import ConfigError, DataError
from daisychain.data.fineweb import FOLDER
from daisychain.data.slices import TextSource
from daisychain.data.text import read_text
from daisychain.data.tokenizer import END

from .hub_help import GROUP_ROWS, Hub, make_shard, running_hub

pytest.importorskip("huggingface_hub")

WANTED = 1 << 17
NAME = f"{FOLDER}/000_00000.parquet"


@pytest.fixture(scope="session")
def shard() -> bytes:
    return make_shard()


@pytest.fixture
def hub(shard: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with running_hub({NAME: shard}) as running:
        yield running


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SLICE_WAIT_S", 0.3)
    monkeypatch.setattr(limits, "SLICE_GRACE_S", 0.3)


def small_shard(**columns: object) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


ALTERED = bytearray(small_shard(text=["some text " * 100]))
ALTERED[4:40] = bytes(36)


def test_a_slice_of_the_hub(hub: Hub, shard: bytes) -> None:
    source = TextSource("fineweb-edu", hub.endpoint)
    for seed in range(5):
        before = hub.bytes_sent
        piece = source.text(WANTED, seed)
        assert len(piece.text.encode()) == WANTED
        assert piece.source == "fineweb-edu"
        numbers = [int(document.split("]")[0][1:]) for document in piece.text.split(END)]
        group = int(re.fullmatch(rf"row group (\d+) of {NAME}", piece.reason)[1])  # type: ignore[index]
        assert numbers == list(range(group * GROUP_ROWS, group * GROUP_ROWS + len(numbers)))
        share = piece.bytes_read / len(shard)
        print(f"slice of {WANTED} bytes: {piece.bytes_read} bytes read, {share:.2%} of {len(shard)}")
        assert hub.bytes_sent - before == piece.bytes_read
        assert share < 0.02
    assert len(shard) > 49_000_000


def test_the_token_stays_with_the_hub(hub: Hub) -> None:
    TextSource("fineweb-edu", hub.endpoint).text(WANTED, 0)
    seen = {(server, headers.get("authorization")) for server, _, headers in hub.requests}
    assert seen == {("hub", "Bearer hf_secret"), ("store", None)}


def test_seeds_choose(hub: Hub) -> None:
    first, second = (TextSource("auto", hub.endpoint) for _ in range(2))
    assert first.text(WANTED, 1).text == second.text(WANTED, 1).text
    assert len({first.text(1_000, seed).text for seed in range(10)}) > 5


def test_footers_and_slices_are_kept(hub: Hub) -> None:
    source = TextSource("auto", hub.endpoint)
    first, other = source.text(WANTED, 0), source.text(WANTED, 1)
    assert other.bytes_read < first.bytes_read - 50_000
    asked = len(hub.requests)
    again = source.text(WANTED, 0)
    assert (again.text, again.bytes_read, len(hub.requests)) == (first.text, 0, asked)
    for seed in range(2, 2 + limits.SLICES_CACHED):
        source.text(1_000, seed)
    assert source.text(WANTED, 0).bytes_read > 0


def test_readers_at_once_read_once(hub: Hub) -> None:
    source = TextSource("auto", hub.endpoint)
    read: list[int] = []
    threads = [
        threading.Thread(target=lambda: read.append(source.text(WANTED, 0).bytes_read)) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(read) == 6
    assert sorted(read)[:5] == [0] * 5


def test_a_server_that_does_not_heed_ranges(hub: Hub, shard: bytes) -> None:
    expected = TextSource("fineweb-edu", hub.endpoint).text(WANTED, 0).text
    hub.fault = "whole"
    piece = TextSource("fineweb-edu", hub.endpoint).text(WANTED, 0)
    assert piece.text == expected
    assert len(shard) < piece.bytes_read < len(shard) + 1_000


def test_a_whole_file_that_is_too_long(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SLICE_MAX_READ_BYTES", 1_000_000)
    hub.fault = "whole"
    with pytest.raises(DataError, match="more than 1000000 bytes for one slice"):
        TextSource("fineweb-edu", hub.endpoint).text(WANTED, 0)
    assert hub.bytes_sent < 40_000_000


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("503", "answered 503 Service Unavailable"),
        ("429", "answered 429 Too Many Requests"),
        ("404", "answered 404 Not Found"),
        ("cut", r"sent \d+ of \d+ bytes|stopped in the middle"),
        ("slow", r"is slow: \d+ bytes/s"),
        ("silent", r"cannot be reached \(timed out\)"),
        ("elsewhere", r"sent 'bytes \d+-\d+/\d+' for bytes"),
        ("listing", "sent no list of files"),
        ("scheme", "Redirection to url 'file:///etc/.* is not allowed"),
        ("circle", "answered 302"),
    ],
)
def test_faults_have_reasons(hub: Hub, fault: str, reason: str) -> None:
    hub.fault = fault
    piece = TextSource("auto", hub.endpoint).text(5_000, 0)
    assert (piece.source, piece.bytes_read) == ("embedded", 0)
    assert 4_990 <= len(piece.text.encode()) <= 5_000
    assert re.search(rf"^FineWeb-Edu: the hub \({hub.endpoint}\) .*({reason})", piece.reason)
    with pytest.raises(DataError, match=reason):
        TextSource("fineweb-edu", hub.endpoint).text(5_000, 0)


@pytest.mark.usefixtures("impatient")
def test_the_last_limit_ends_every_wait(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SLICE_LIMIT_S", 0.5)
    monkeypatch.setattr(limits, "SLICE_WAIT_S", 30.0)
    hub.fault = "silent"
    assert "took longer than 0.5 s" in TextSource("auto", hub.endpoint).text(5_000, 0).reason


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (ALTERED, "cannot be used: "),
        (b"PAR1" + b"x" * 10_000 + b"PAR1", "cannot be used: "),
        (b"", "cannot be used: "),
        (small_shard(txt=["a"]), "cannot be used: .*text"),
        (small_shard(text=[1, 2]), "'text' holds no strings"),
        (small_shard(text=pa.array([], pa.string())), "no rows"),
        (small_shard(text=pa.array([b"\xff\xfe"]).view(pa.string())), "cannot be used: .*utf-8"),
    ],
    ids=["altered", "garbage", "empty", "no text", "numbers", "no rows", "no UTF-8"],
)
def test_broken_shards_have_reasons(content: bytes, reason: str) -> None:
    with running_hub({NAME: content}) as hub:
        piece = TextSource("auto", hub.endpoint).text(5_000, 0)
        assert piece.source == "embedded"
        assert re.search(reason, piece.reason)


def test_nobody_there() -> None:
    piece = TextSource("auto", "http://127.0.0.1:9").text(5_000, 0)
    assert piece.source == "embedded"
    assert "cannot be reached (Connection refused)" in piece.reason


def test_no_network_is_said_in_words_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def lookup(*arguments: object, **options: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    told = "FineWeb-Edu: the hub (http://hub.test) cannot be reached (no network or no name service)."
    source = TextSource("auto", "http://hub.test")
    assert source.text(5_000, 0).reason == told
    with pytest.raises(DataError) as refusal:
        source.text(5_000, 0, "fineweb-edu")
    assert str(refusal.value) == f"{told} Choose the built-in text, or start the server with --data embedded."
    with pytest.raises(DataError) as refusal:  # then the page cannot choose
        TextSource("fineweb-edu", "http://hub.test").text(5_000, 0, "embedded")
    assert str(refusal.value) == f"{told} Start the server with --data embedded."


def test_after_a_failure_the_hub_is_left_alone(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.fault = "503"
    source = TextSource("auto", hub.endpoint)
    first = source.text(5_000, 0)
    asked = len(hub.requests)
    hub.fault = ""
    assert source.text(5_000, 1).reason == first.reason
    assert len(hub.requests) == asked
    monkeypatch.setattr("daisychain.data.slices.time.monotonic", lambda: 1e12)
    assert source.text(5_000, 1).source == "fineweb-edu"


def test_the_endpoint_is_the_hubs_setting(hub: Hub) -> None:
    script = "from daisychain.data.slices import TextSource; print(TextSource('fineweb-edu').text(5_000, 0).source)"
    environment = os.environ | {"HF_ENDPOINT": hub.endpoint}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("fineweb-edu\n", 0), done.stderr


def test_the_hubs_offline_setting_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in TextSource("auto").text(5_000, 0).reason


def test_the_embedded_corpus() -> None:
    corpus = read_text(None)[0].decode()
    source = TextSource("embedded")
    piece = source.text(10_000, 3)
    assert (piece.source, piece.bytes_read) == ("embedded", 0)
    assert piece.text in corpus
    assert 9_990 <= len(piece.text.encode()) <= 10_000
    assert piece == source.text(10_000, 3)
    assert len({source.text(10_000, seed).text for seed in range(5)}) == 5
    assert source.text(1 << 24, 3).text == corpus


def test_what_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="'c4'; it is one of auto, embedded, fineweb-edu"):
        TextSource("c4")
    for wrong in ("ftp://a", "nothing", "file:///etc"):
        with pytest.raises(ConfigError, match="give a web address"):
            TextSource("fineweb-edu", wrong).text(1_000, 0)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "'huggingface_hub' is not installed" in TextSource("auto").text(1_000, 0).reason
    with pytest.raises(ConfigError, match=r"pip install 'daisychain\[room\]'"):
        TextSource("fineweb-edu").text(1_000, 0)


def test_the_asker_chooses_where_the_server_leaves_it_open(hub):
    open_source = TextSource("auto", hub.endpoint)
    assert open_source.text(WANTED, 0, "embedded").source == "embedded"
    assert open_source.text(WANTED, 0, "fineweb-edu").source == "fineweb-edu"
    assert TextSource("embedded", hub.endpoint).text(WANTED, 0, "fineweb-edu").source == "embedded"
