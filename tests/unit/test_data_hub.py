"""Data sets of a hub on loopback, through the real packages: what is found, what is refused, what goes wrong."""

import json
import os
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest

from daisychain.base import limits
from daisychain.base.errors import ConfigError, DataError, DataLostError
from daisychain.data import hub, hub_session
from daisychain.data.hub_session import HubTrouble
from daisychain.data.hub_text import Found, HubReader, find, listed, text_column
from daisychain.data.packed import open_tokens
from daisychain.data.source import TextChoice
from daisychain.data.tokenizer import load_tokenizer, pack

from . import text_help

hub_server = text_help.hub_server()
#: Python 3.11's own tempfile and pyarrow's buffers, closed late by the packages' files.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:(datasets|multiprocess|dill|fsspec).*"),
]


@pytest.fixture(scope="module")
def made():
    return hub_server.repositories()


@pytest.fixture
def stand_in(made, tmp_path, monkeypatch):
    text_help.quick(monkeypatch)
    held = {name: hub_server.Repository(**parts(repository)) for name, repository in made.items()}
    with text_help.hub(held, tmp_path, monkeypatch) as server:
        yield server


def parts(repository):
    names = ("files", "private", "gated", "fault", "healthy", "heal_after", "retry_after_s")
    return {name: getattr(repository, name) for name in names}


@pytest.fixture
def opened():
    """Opens texts, and ends their downloads."""
    texts = []

    def open_(choice, sequence=64, seed=0):
        texts.append(open_tokens(choice, sequence, seed))
        return texts[-1]

    yield open_
    for text in texts:
        if text.streamed:
            text.close()


def stories(start, rows, column="text"):
    return hub_server.stories(start, rows)[column]


def read_all(found, state=None):
    return [text for some, _ in HubReader(found)(state) for text in some]


# What a choice means


def test_a_data_set_is_found_and_read_in_order(stand_in) -> None:
    found = find(TextChoice(dataset="demo/stories"))
    assert found == Found("demo/stories", "default", "train", "text", stand_in.held["demo/stories"].sha)
    texts = read_all(found)
    assert texts == stories(0, 3_000)


def test_files_other_than_parquet_are_read_too(stand_in) -> None:
    found = find(TextChoice(dataset="demo/lines"))
    assert (found.column, found.split) == ("content", "train")
    texts = read_all(found)
    assert texts == stories(0, 1_500)


def test_a_plain_text_is_read_by_paragraph_and_a_table_by_row(stand_in) -> None:
    assert [text.strip() for text in read_all(find(TextChoice(dataset="demo/plain")))] == stories(0, 300)
    assert read_all(find(TextChoice(dataset="demo/tables"))) == ["one, two"] * 90


def test_files_that_are_not_the_data_sets_own_are_not_read(stand_in, tmp_path) -> None:
    (tmp_path / "secret.txt").write_text("my own words")
    elsewhere = (
        f"http://localhost:{stand_in.store.server_port}/demo/stories/data/train-00000-of-00002.parquet"
    )
    other = (
        f"hf://datasets/demo/stories@{stand_in.held['demo/stories'].sha}/data/train-00000-of-00002.parquet"
    )
    for n, path in enumerate([tmp_path / "secret.txt", elsewhere, other]):
        readme = hub_server.OUTSIDE.format(path=path).encode()
        stand_in.held[f"bad/set{n}"] = hub_server.Repository({"README.md": readme, "train.txt": b"good"})
        with pytest.raises(DataError, match=r"outside of itself|belong to bad/set"):
            read_all(find(TextChoice(dataset=f"bad/set{n}")))


@pytest.mark.parametrize("dataset", ["demo/stories", "demo/lines"])
def test_reading_goes_on_from_any_state(stand_in, dataset) -> None:
    found = find(TextChoice(dataset=dataset))
    texts, states = [], []
    for some, state in HubReader(found)(None):
        texts.append(some)
        states.append(json.loads(json.dumps(state)))
    for n in (0, len(states) // 2, len(states) - 1):
        rest = read_all(found, states[n])
        assert rest == [text for some in texts[n + 1 :] for text in some]


def test_going_on_in_the_middle_of_a_file_downloads_little(stand_in) -> None:
    found = find(TextChoice(dataset="demo/stories"))
    states = [state for _, state in HubReader(found)(None)]
    before = stand_in.bytes_sent
    reader = HubReader(found)(states[len(states) // 4])
    next(reader)
    sizes = sum(map(len, stand_in.held["demo/stories"].files.values()))
    assert stand_in.bytes_sent - before < 70_000 + sizes / 20  # a file's end, and one row group
    reader.close()


def test_only_the_column_that_is_wanted_is_downloaded(stand_in) -> None:
    found = find(TextChoice(dataset="demo/stories", column="title"))
    before = stand_in.bytes_sent
    titles = read_all(found)
    assert titles == stories(0, 3_000, "title")
    assert stand_in.bytes_sent - before < sum(map(len, stand_in.held["demo/stories"].files.values())) / 2


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"dataset": "demo/pairs"}, "several columns; there are question, answer: choose with --column"),
        ({"dataset": "demo/pairs", "column": "text"}, "no column 'text'; there are question, answer"),
        ({"dataset": "demo/numbers"}, "no column of plain text; its columns are a, b"),
        ({"dataset": "demo/chat"}, "no column of plain text; its columns are messages, score"),
        ({"dataset": "demo/chat", "column": "messages"}, "holds no plain text"),
        (
            {"dataset": "demo/configs"},
            "several configs; there are english, small: choose with --dataset-config",
        ),
        ({"dataset": "demo/configs", "config": "german"}, "no config 'german'; there are english, small"),
        ({"dataset": "demo/configs", "config": "small", "split": "test"}, "no split 'test'; there are train"),
        ({"dataset": "demo/script"}, "made by a program of its author, which is never run here"),
        ({"dataset": "demo/pictures"}, "of the kind 'imagefolder'; text is read from parquet, json"),
        ({"dataset": "demo/stories", "revision": "v9"}, "no such revision"),
        (
            {"dataset": "no/thing"},
            "was not found at http://127.0.0.1:.* private: log in with `hf auth login`",
        ),
        (
            {"dataset": "demo/secret"},
            "was not found at .* private: log in with `hf auth login`, or set HF_TOKEN",
        ),
        ({"dataset": "demo/gated"}, "is gated: accept its terms on http://127.0.0.1:.*/datasets/demo/gated"),
    ],
)
def test_a_choice_that_the_hub_cannot_serve_is_refused_in_words(stand_in, capfd, choice, words) -> None:
    with pytest.raises(DataError, match=words) as caught:
        find(TextChoice(**choice))
    assert not isinstance(caught.value, DataLostError)
    assert "\n" not in str(caught.value)
    assert "this ran" not in "".join(capfd.readouterr())


def test_config_and_split_are_heeded(stand_in) -> None:
    texts = read_all(find(TextChoice(dataset="demo/configs", config="english", split="test")))
    assert texts == stories(1_000, 100)


def test_the_text_column_of_many() -> None:
    assert text_column({"a": False, "b": True}, None, "x/y") == "b"
    assert text_column({"title": True, "text": True}, None, "x/y") == "text"
    assert text_column({"title": True, "text": True}, "title", "x/y") == "title"
    assert text_column({"story": True, "content": True}, None, "x/y") == "content"
    assert listed([f"c{n}" for n in range(30)]).endswith("c19 and 10 more")
    assert listed([]) == "none"


# The token


def authorised(server, name):
    return [headers.get("authorization") for where, _, _, headers in server.requests if where == name]


def test_a_token_opens_what_is_private_and_stays_with_the_hub(stand_in, monkeypatch) -> None:
    monkeypatch.setenv("HF_TOKEN", hub_server.TOKEN)
    for dataset in ("demo/secret", "demo/gated"):
        texts = read_all(find(TextChoice(dataset=dataset)))
        assert texts == stories(0, 1_000)
    assert f"Bearer {hub_server.TOKEN}" in authorised(stand_in, "hub")
    assert stand_in.downloads()
    assert set(authorised(stand_in, "store")) == {None}


def test_a_wrong_token_is_said_without_showing_it(stand_in, monkeypatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(
        DataError, match=r"'demo/secret': the hub does not accept your token \(401\)"
    ) as caught:
        find(TextChoice(dataset="demo/secret"))
    assert "hf_wrong" not in str(caught.value)


def test_a_token_is_kept_in_no_file_and_no_identity(stand_in, monkeypatch, tmp_path, opened) -> None:
    monkeypatch.setenv("HF_TOKEN", hub_server.TOKEN)
    text = opened(TextChoice(dataset="demo/secret"))
    assert hub_server.TOKEN not in json.dumps(text.identity) + " ".join(text.notes)
    for path in (tmp_path / "cache").rglob("*"):
        assert path.is_dir() or hub_server.TOKEN.encode() not in path.read_bytes()


# Streams


def test_a_stream_is_the_packed_documents_whoever_is_asked(stand_in, opened) -> None:
    text = opened(TextChoice(dataset="demo/stories"))
    tokens = pack(stories(0, 3_000), load_tokenizer())
    held_out = text.held_out()
    assert np.array_equal(held_out.reshape(-1)[:65], tokens[:65])
    numbers = np.arange(300)
    rows = {row.tobytes() for row in text.windows(numbers)}
    first = len(held_out)
    block = {
        tokens[n * 64 : n * 64 + 65].astype(np.int64).tobytes()
        for n in range(first, first + limits.STREAM_BLOCK_WINDOWS)
    }
    assert rows < block
    assert text.identity["revision"] == stand_in.held["demo/stories"].sha
    assert json.loads(json.dumps(text.identity)) == text.identity
    assert "demo/stories" in text.notes[0]
    length = sum(len(load_tokenizer().decode(row[1:]).replace("<|end|>", "").encode()) for row in held_out)
    assert text.bytes_per_token == pytest.approx(length / held_out[:, 1:].size)


def test_a_second_run_downloads_nothing_and_works_offline(stand_in, opened, monkeypatch) -> None:
    first = opened(TextChoice(dataset="demo/stories"))
    windows = first.windows(np.arange(200))
    first.close()
    before = stand_in.bytes_sent
    again = opened(TextChoice(dataset="demo/stories"))
    assert np.array_equal(again.windows(np.arange(200)), windows)
    assert stand_in.bytes_sent == before
    again.close()
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert np.array_equal(opened(TextChoice(dataset="demo/stories")).windows(np.arange(200)), windows)
    with pytest.raises(DataLostError, match="HF_HUB_OFFLINE is set"):
        opened(TextChoice(dataset="demo/lines"))


def test_a_pin_holds_when_the_data_set_changes(stand_in, opened) -> None:
    first = opened(TextChoice(dataset="demo/configs", config="small"))
    stand_in.held["demo/configs"].sha = "f" * 40
    assert opened(TextChoice(dataset="demo/configs", config="small")).identity == first.identity


def test_a_pin_that_was_altered_is_asked_for_again(stand_in, opened, tmp_path, capsys) -> None:
    choice = TextChoice(dataset="demo/configs", config="small")
    first = opened(choice)
    (path,) = (tmp_path / "cache/hub/pins").glob("*.json")
    for content in (
        b"{",
        b"[]",
        b"[" * 100_000,
        b'{"dataset": "../x"}',
        path.read_bytes().replace(f'"{first.identity["revision"]}"'.encode(), b"null"),
        path.read_bytes().replace(b'"train"', b'"../train"'),
    ):
        path.write_bytes(content)
        assert opened(choice).identity == first.identity
        assert "the hub is asked again" in capsys.readouterr().err


# Trouble


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("503", "answered 503 Service Unavailable"),
        ("429", "answered 429 Too Many Requests"),
        ("reset", "broke off"),
        ("cut", "broke off"),
        ("silent", "sent nothing for 0.3 s"),
        ("slow", "is too slow"),
    ],
)
def test_a_hub_in_trouble_fails_at_once_and_says_how(stand_in, monkeypatch, fault, words) -> None:
    monkeypatch.setattr(limits, "HUB_WAIT_S", 0.3)
    monkeypatch.setattr(limits, "HUB_GRACE_S", 0.3)
    found = find(TextChoice(dataset="demo/stories"))
    repository = stand_in.held["demo/stories"]
    repository.fault, repository.failures = fault, 0
    with pytest.raises(HubTrouble, match=words):
        read_all(found)
    assert repository.failures == 1  # neither of the packages tried again


@pytest.mark.parametrize("dataset", ["demo/stories", "demo/lines"])
@pytest.mark.parametrize("fault", ["503", "cut"])
def test_a_hub_that_recovers_gives_the_same_stream(stand_in, opened, capsys, dataset, fault) -> None:
    expected = pack(stories(0, 1_500 if dataset == "demo/lines" else 3_000), load_tokenizer())
    repository = stand_in.held[dataset]
    repository.fault, repository.healthy, repository.heal_after = fault, 2, 2
    text = opened(TextChoice(dataset=dataset))
    text.windows(np.array([100_000]))
    assert np.array_equal(text._stream.read(0, text._stream.tokens), expected)
    assert repository.failures == 2
    assert "it is asked again in 0 s" in capsys.readouterr().err


def test_a_rate_limit_is_waited_out(stand_in, opened, capsys, monkeypatch) -> None:
    monkeypatch.setattr(limits, "HUB_RETRY_AFTER_MOST_S", 0.15)
    monkeypatch.setattr(limits, "HUB_PATIENCE_S", 30.0)
    began_s = time.monotonic()
    assert opened(TextChoice(dataset="demo/limited")).windows(np.arange(3)).shape == (3, 65)
    assert time.monotonic() - began_s >= 0.3
    assert capsys.readouterr().err.count("answered 429") == 2


def test_a_hub_that_does_not_recover_is_given_up(stand_in, opened) -> None:
    with pytest.raises(
        DataLostError, match=r"demo/broken .*: the hub answered 503 .* --on-data-failure embedded"
    ):
        opened(TextChoice(dataset="demo/broken")).windows(np.array([100_000]))


def test_the_embedded_corpus_stands_in_where_that_was_chosen(stand_in, opened, capsys) -> None:
    text = opened(TextChoice(dataset="demo/broken", on_failure="embedded"), sequence=32)
    embedded = open_tokens(TextChoice(), 32, 0)
    late = text.windows(np.array([3, 100_000]))
    assert np.array_equal(late[1:], embedded.windows(np.array([100_000 % embedded.sample_count])))
    assert capsys.readouterr().err.count("goes on with the embedded corpus") == 1


def test_a_hub_out_of_reach_from_the_start(stand_in, opened, capsys) -> None:
    stand_in.hub.shutdown()
    stand_in.hub.server_close()
    with pytest.raises(DataLostError, match="cannot be reached"):
        opened(TextChoice(dataset="demo/stories"))
    text = opened(TextChoice(dataset="demo/stories", on_failure="embedded"))
    assert text.identity == open_tokens(TextChoice(), 64, 0).identity
    assert "embedded corpus takes its place" in capsys.readouterr().err


def test_a_wrong_choice_is_no_failure_to_stand_in_for(stand_in, opened) -> None:
    with pytest.raises(DataError, match="was not found"):
        opened(TextChoice(dataset="no/thing", on_failure="embedded"))


# The picker


def test_a_search_finds_names(stand_in) -> None:
    assert hub.search("stor") == ["demo/stories"]
    assert len(hub.search("demo", 3)) == 3
    assert "demo/secret" not in hub.search("")
    assert hub.search("nothing like it") == []


def test_a_private_data_set_is_found_with_a_token(stand_in, monkeypatch) -> None:
    monkeypatch.setenv("HF_TOKEN", hub_server.TOKEN)
    assert "demo/secret" in hub.search("secret")
    description = hub.describe("demo/secret")
    assert (description.private, description.column) == (True, "text")


def test_a_data_set_is_described(stand_in) -> None:
    plain = hub.describe("demo/stories")
    assert (plain.configs, plain.splits, plain.columns) == (("default",), ("train",), ("title", "text"))
    assert (plain.text_columns, plain.column, plain.gated) == (("title", "text"), "text", False)
    several = hub.describe("demo/configs")
    assert (several.configs, several.config, several.splits) == (
        ("english", "small"),
        "english",
        ("train", "test"),
    )
    assert hub.describe("demo/configs", "small").splits == ("train",)
    chat = hub.describe("demo/chat")
    assert (chat.columns, chat.text_columns, chat.column) == (("messages", "score"), (), None)
    assert hub.describe("demo/pairs").column is None


def test_a_preview_is_cut_and_in_words(stand_in, monkeypatch) -> None:
    monkeypatch.setattr(limits, "HUB_PREVIEW_CHARACTERS", 30)
    rows = hub.preview(TextChoice(dataset="demo/stories"), 3)
    assert [row["title"][:8] for row in rows] == ["Story 0:", "Story 1:", "Story 2:"]
    assert all(len(row["text"]) == 30 and row["text"].endswith("…") for row in rows)
    assert hub.preview(TextChoice(dataset="demo/chat"), 1) == [
        {"messages": "[{'role': 'user', 'content': …"[:30], "score": "1"}
    ]
    assert len(hub.preview(TextChoice(dataset="demo/stories"), 10_000)) == limits.HUB_PREVIEW_ROWS


@pytest.mark.parametrize("dataset", ["demo/secret", "demo/gated", "demo/script", "no/thing", "demo/limited"])
def test_what_cannot_be_shown_is_said(stand_in, dataset) -> None:
    for call in (lambda: hub.describe(dataset), lambda: hub.preview(TextChoice(dataset=dataset))):
        with pytest.raises(DataError) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_a_call_has_a_limit(stand_in, monkeypatch) -> None:
    monkeypatch.setattr(limits, "HUB_CALL_LIMIT_S", 0.2)
    stand_in.held["demo/stories"].fault = "silent"
    began_s = time.monotonic()
    with pytest.raises(DataLostError, match=r"the hub took longer than 0\.2 s"):
        hub.describe("demo/stories")
    assert time.monotonic() - began_s < 5
    stand_in.heal()


def test_names_that_are_none_are_refused_before_the_hub_is_asked(stand_in) -> None:
    for name in ("", "a", "a/../b", "a/b?c", "http://a/b"):
        with pytest.raises(ConfigError):
            hub.describe(name)
    assert stand_in.requests == []


def test_without_the_packages_it_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    hub_session._prepared.cache_clear()
    try:
        with pytest.raises(ConfigError, match=r"'datasets' is not installed; pip install 'daisychain\[hf\]'"):
            hub.search("x")
    finally:
        hub_session._prepared.cache_clear()


# Several processes


NODE = """
import sys
import numpy as np
from daisychain.base import limits
from daisychain.data.packed import open_tokens
from daisychain.data.source import TextChoice
limits.STREAM_PIECE_TOKENS, limits.STREAM_BLOCK_WINDOWS, limits.STREAM_HELD_OUT_WINDOWS = 20_000, 64, 16
rank, nodes, to = map(int, sys.argv[1:4])
text = open_tokens(TextChoice(dataset="demo/stories"), 64, 3)
print("open", flush=True)
for at in range(rank * 8, to, nodes * 8):
    numbers = np.arange(at, at + 8)
    for number, row in zip(numbers, text.windows(numbers)):
        print(number, *row, flush=True)
"""


def run_nodes(server, folder, nodes, to):
    def start(rank):
        return text_help.start(server, folder, NODE, arguments=[str(rank), str(nodes), str(to)])

    processes = [start(rank) for rank in range(nodes)]
    answers = [process.communicate(timeout=60) for process in processes]
    for process, (_, error) in zip(processes, answers, strict=True):
        assert process.returncode == 0, error
    return rows(out for out, _ in answers)


def rows(outputs):
    """Number → window, of what NODE printed."""
    lines = [line.split() for out in outputs for line in out.splitlines() if line[:1].isdecimal()]
    numbers = [int(line[0]) for line in lines]
    assert len(numbers) == len(set(numbers))
    return {int(line[0]): line[1:] for line in lines if len(line) == 66}


@pytest.fixture
def alone(stand_in, opened, monkeypatch):
    """What one process gets, by the number of a window, and what it downloads for that."""
    text_help.small(monkeypatch)
    text = opened(TextChoice(dataset="demo/stories"), 64, 3)
    windows = {n: [*map(str, row)] for n, row in enumerate(text.windows(np.arange(2_400)))}
    return windows, stand_in.bytes_sent


def test_three_processes_get_what_one_gets_and_download_it_once(stand_in, alone, tmp_path) -> None:
    windows, downloaded = alone
    three = run_nodes(stand_in, tmp_path / "three", 3, 720)
    assert three == {n: windows[n] for n in range(720)}
    assert stand_in.bytes_sent - downloaded < 1.5 * downloaded


def test_a_killed_process_is_gone_on_from(stand_in, alone, tmp_path) -> None:
    windows, downloaded = alone
    process = text_help.start(stand_in, tmp_path / "cut", NODE, arguments=["0", "1", "2400"])
    assert process.stdout.readline() == "open\n"
    before = [process.stdout.readline() for _ in range(900)]
    process.kill()
    rest, _ = process.communicate()
    first = rows(["".join(before)])
    again = run_nodes(stand_in, tmp_path / "cut", 1, 2_400)
    assert again == windows
    assert first.items() <= again.items()
    assert stand_in.bytes_sent - downloaded < 1.5 * downloaded
    assert rest is not None


def test_the_stand_in_is_a_program_too(tmp_path) -> None:
    process = subprocess.Popen(
        [sys.executable, str(text_help.TESTS / "hub_server.py"), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        endpoint = process.stdout.readline().strip()
        with urllib.request.urlopen(f"{endpoint}/api/datasets?search=stories", timeout=10) as answer:
            assert [info["id"] for info in json.load(answer)] == ["demo/stories"]
        request = urllib.request.Request(f"{endpoint}/_stand-in/heal", data=b"")
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200
    finally:
        process.kill()
        process.communicate()
