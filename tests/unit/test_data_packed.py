"""Text of this machine as packed windows, and what a choice of text may be."""

import errno
import json
from pathlib import Path

import numpy as np
import pytest

from daisychain.base import limits
from daisychain.base.errors import ConfigError, DataError
from daisychain.data import local_tokens
from daisychain.data.packed import open_tokens, shuffled
from daisychain.data.source import FINEWEB_EDU, FINEWEB_EDU_CONFIG, TextChoice, cache_folder
from daisychain.data.text import read_documents
from daisychain.data.tokenizer import load_tokenizer, pack


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DAISY_CACHE", str(tmp_path / "cache"))


def numbered(count: int) -> str:
    return " ".join(f"word{n} and {n * 7919 % 1_000_003};" for n in range(count))


def test_the_embedded_corpus_is_there_without_a_network() -> None:
    text = open_tokens(TextChoice(), 64, 0)
    assert text.sample_count > 1_000
    assert not text.streamed
    windows = text.windows(np.arange(8))
    assert windows.shape == (8, 65)
    assert windows.dtype == np.int64
    assert windows.min() >= 0
    assert windows.max() < limits.VOCABULARY
    assert text.held_out().shape == (limits.HELD_OUT_MAX_WINDOWS, 65)
    assert json.loads(json.dumps(text.identity)) == text.identity
    assert "embedded corpus" in text.notes[0]


def test_every_token_is_predicted_in_one_window_only(tmp_path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(numbered(3_000))
    text = open_tokens(TextChoice(path), 50, 3)
    tokens = pack([path.read_text()], load_tokenizer())
    predicted = np.concatenate(
        [text.windows(np.arange(text.sample_count))[:, 1:], text.held_out()[:, 1:]]
    ).reshape(-1)
    count = (len(tokens) - 1) // 50
    assert len(predicted) == count * 50
    assert sorted(predicted) == sorted(tokens[1 : count * 50 + 1])
    trained = {row.tobytes() for row in text.windows(np.arange(text.sample_count))}
    assert not trained & {row.tobytes() for row in text.held_out()}


def test_documents_end_with_the_end() -> None:
    tokenizer = load_tokenizer()
    tokens = pack(["one", "", "two words"], tokenizer)
    assert tokenizer.decode(tokens) == "one<|end|><|end|>two words<|end|>"
    assert pack([], tokenizer).shape == (0,)


def test_files_of_a_folder_are_documents(tmp_path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(f"{name} {numbered(200)}")
    documents, note = read_documents(tmp_path)
    assert [document[:1] for document in documents] == [b"a", b"b"]
    assert "2 files" in note
    text = open_tokens(TextChoice(tmp_path), 8, 0)
    ends = sum(
        (window[1:] == load_tokenizer().end).sum() for window in text.windows(np.arange(text.sample_count))
    )
    ends += (text.held_out()[:, 1:] == load_tokenizer().end).sum()
    assert ends >= 1


def test_text_that_is_no_utf_8_is_used_and_said(tmp_path) -> None:
    latin, good = tmp_path / "latin.txt", tmp_path / "good.txt"
    latin.write_bytes("Gänseblümchen ".encode("latin-1") * 100)
    good.write_bytes(b"daisies " * 100)
    assert (
        open_tokens(TextChoice(latin), 8, 0)
        .notes[0]
        .endswith("it is not all UTF-8, and what is not counts as �: save as UTF-8")
    )
    assert "1 of 2 files are not all UTF-8" in open_tokens(TextChoice(tmp_path), 8, 0).notes[0]
    assert "UTF-8" not in open_tokens(TextChoice(good), 8, 0).notes[0]


def test_a_long_document_is_tokenised_in_parts_without_losing_a_character(monkeypatch) -> None:
    monkeypatch.setattr(limits, "TOKENIZE_CHARACTERS", 50)
    tokenizer = load_tokenizer()
    for document in (numbered(300), "x" * 333, " " * 120, "short"):
        assert tokenizer.decode(pack([document], tokenizer)) == document + "<|end|>"


def test_bytes_per_token_are_those_of_the_held_out_text(tmp_path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("é" + numbered(2_000))
    text = open_tokens(TextChoice(path), 40, 0)
    tokenizer = load_tokenizer()
    length = sum(len(tokenizer.decode(row[1:]).removesuffix("<|end|>").encode()) for row in text.held_out())
    assert text.bytes_per_token == pytest.approx(length / text.held_out()[:, 1:].size)
    assert tokenizer.byte_lengths()[tokenizer.end] == 0


def test_identity_tells_texts_apart(tmp_path) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    one.write_text(numbered(500))
    two.write_text(numbered(500)[:-1] + "!")
    same, other = open_tokens(TextChoice(one), 16, 0), open_tokens(TextChoice(two), 16, 0)
    assert same.identity == open_tokens(TextChoice(one), 16, 5).identity
    assert same.identity != other.identity


def test_a_text_too_short_is_refused(tmp_path) -> None:
    path = tmp_path / "short"
    path.write_text("a few words only")
    with pytest.raises(DataError, match=r"tokens; sequences of 64 take at least 129"):
        open_tokens(TextChoice(path), 64, 0)


def test_a_long_text_is_tokenised_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(limits, "LOCAL_CACHE_BYTES", 1_000)
    path = tmp_path / "a.txt"
    path.write_text(numbered(500))
    first = open_tokens(TextChoice(path), 16, 0)
    work = local_tokens._tokenise
    monkeypatch.setattr(local_tokens, "_tokenise", lambda _: pytest.fail("tokenised again"))
    again = open_tokens(TextChoice(path), 16, 0)
    assert np.array_equal(first.windows(np.arange(9)), again.windows(np.arange(9)))
    monkeypatch.setattr(local_tokens, "_tokenise", work)
    path.write_text(numbered(501))
    assert open_tokens(TextChoice(path), 16, 0).identity != first.identity


def test_the_same_bytes_in_other_documents_are_another_text(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(limits, "LOCAL_CACHE_BYTES", 1)
    for documents in ([b"one two", b" three"], [b"one two three"], [b"one", b" two three"]):
        kept = local_tokens.kept_tokens(documents, tmp_path)
        text = "".join(document.decode() + "<|end|>" for document in documents)
        assert load_tokenizer().decode(kept) == text


@pytest.mark.parametrize("harm", ["altered", "cut", "manifest"])
def test_kept_tokens_that_were_altered_are_not_used(tmp_path, monkeypatch, capsys, harm) -> None:
    monkeypatch.setattr(limits, "LOCAL_CACHE_BYTES", 1_000)
    path = tmp_path / "a.txt"
    path.write_text(numbered(500))
    first = open_tokens(TextChoice(path), 16, 0)
    (file,) = (tmp_path / "cache/local").glob("*/tokens.u16")
    content = bytearray(file.read_bytes())
    if harm == "altered":
        content[100] ^= 1
        file.write_bytes(content)
    elif harm == "cut":
        file.write_bytes(content[:-2])
    else:
        manifest = file.with_name("manifest.json")
        manifest.write_bytes(manifest.read_bytes().replace(b"whole", b"space"))
    again = open_tokens(TextChoice(path), 16, 0)
    assert np.array_equal(first.windows(np.arange(9)), again.windows(np.arange(9)))
    assert capsys.readouterr().err.count("\n") == 1


def test_a_cache_that_cannot_be_written_stops_nothing(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(limits, "LOCAL_CACHE_BYTES", 1_000)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DAISY_CACHE", str(tmp_path / "file/cache"))
    path = tmp_path / "a.txt"
    path.write_text(numbered(500))
    assert open_tokens(TextChoice(path), 16, 0).sample_count > 10
    assert "DAISY_CACHE" in capsys.readouterr().err


def test_a_disk_that_is_full_costs_no_second_tokenising(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(limits, "LOCAL_CACHE_BYTES", 1_000)
    work, calls = local_tokens._tokenise, []
    monkeypatch.setattr(local_tokens, "_tokenise", lambda documents: calls.append(1) or work(documents))

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(local_tokens.TokenStore, "_write", refuse)
    path = tmp_path / "a.txt"
    path.write_text(numbered(500))
    assert open_tokens(TextChoice(path), 16, 0).sample_count > 10
    assert len(calls) == 1
    assert "the disk is full" in capsys.readouterr().err


@pytest.mark.parametrize("count", [1, 63, 64, 65, 300])
def test_an_epoch_has_every_window_once(count, monkeypatch) -> None:
    monkeypatch.setattr(limits, "STREAM_BLOCK_WINDOWS", 64)
    numbers = np.arange(3 * count)
    places = shuffled(numbers, count, 7).reshape(3, count)
    assert (np.sort(places, axis=1) == np.arange(count)).all()
    in_blocks = places[0] // 64 == np.arange(count) // 64
    assert in_blocks.all()
    if count > 65:
        assert not np.array_equal(places[1], places[2])
        assert not np.array_equal(places[0, :64], np.arange(64))
        assert not np.array_equal(places[0, :64], places[0, 64:128] - 64)


def test_growth_changes_no_order(monkeypatch) -> None:
    """What is known of whole blocks holds however much comes after them."""
    monkeypatch.setattr(limits, "STREAM_BLOCK_WINDOWS", 64)
    numbers = np.arange(128)
    assert np.array_equal(shuffled(numbers, 128, 1), shuffled(numbers, 1_000, 1))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dataset": "noowner"}, "owner/name"),
        ({"dataset": "a/b/c"}, "owner/name"),
        ({"dataset": "../etc"}, "owner/name"),
        ({"dataset": "a/.."}, "owner/name"),
        ({"dataset": "a/b?x=1"}, "owner/name"),
        ({"dataset": "a/b\n"}, "owner/name"),
        ({"dataset": 7}, "owner/name"),
        ({"dataset": "a/b", "split": "train[:10%]"}, "split"),
        ({"dataset": "a/b", "split": ""}, "split"),
        ({"dataset": "a/b", "config": "\x00"}, "config"),
        ({"dataset": "a/b", "column": "c" * 201}, "column"),
        ({"dataset": "a/b", "revision": "../main"}, "revision"),
        ({"dataset": "a/b", "on_failure": "ignore"}, "on-data-failure"),
        ({"dataset": "a/b", "path": Path("x")}, "both"),
        ({"column": "text"}, "--dataset"),
        ({"path": Path("x"), "config": "c"}, "--dataset"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(given, words) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        TextChoice(**given)
    assert "\n" not in str(caught.value)


def test_the_default_data_set_is_a_choice() -> None:
    assert TextChoice(dataset=FINEWEB_EDU, config=FINEWEB_EDU_CONFIG).split == "train"


def test_the_cache_is_where_it_is_told_to_be() -> None:
    assert cache_folder({"DAISY_CACHE": "here"}) == Path("here")
    assert cache_folder({"XDG_CACHE_HOME": "/x"}).name in ("daisychain", "cache")
