"""The tokenizer: vectors shared with JavaScript, round trips, training, and what it refuses."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain.base import limits
from daisychain.base.errors import ConfigError, DataError
from daisychain.cli.main import run
from daisychain.data import tokenizer_vectors
from daisychain.data.tokenizer import END, TOKENIZER_FILE, Tokenizer, load_tokenizer
from daisychain.numerics.golden import decode

pytest.importorskip("tokenizers")

VECTORS = Path(__file__).parents[2] / "vectors/tokenizer.json"


def test_vectors() -> None:
    """The file that JavaScript reads is what this tokenizer gives."""
    assert json.loads(VECTORS.read_text()) == json.loads(json.dumps(tokenizer_vectors.collect()))
    assert VECTORS.stat().st_size < 60_000


def test_ids_of_no_text() -> None:
    for case in json.loads(VECTORS.read_text())["texts_of"]:
        assert load_tokenizer().decode(decode(case["ids"])) == case["text"]


@settings(deadline=None, derandomize=True)
@given(st.text())
def test_every_text_comes_back(text: str) -> None:
    ids = load_tokenizer().encode(text)
    assert ids.dtype == np.uint16
    assert load_tokenizer().decode(ids) == text


@settings(deadline=None, derandomize=True)
@given(st.binary())
def test_random_bytes_come_back_with_replacements(content: bytes) -> None:
    text = content.decode("utf-8", "replace")
    assert load_tokenizer().decode(load_tokenizer().encode(text)) == text


def test_a_lone_surrogate_counts_as_a_replacement_character() -> None:
    tokenizer = load_tokenizer()
    assert tokenizer.encode("a\ud800b").tolist() == tokenizer.encode("a�b").tolist()
    assert tokenizer.decode(tokenizer.encode("\ud83d\ude00")) == "😀"


def test_the_package_itself_gives_the_same() -> None:
    """Whoever loads the file with `tokenizers` gets our ids and our text."""
    import tokenizers

    theirs = tokenizers.Tokenizer.from_file(str(TOKENIZER_FILE))
    for text in tokenizer_vectors.TEXTS.values():
        if text.isprintable() or text.isascii():
            ids = load_tokenizer().encode(text).tolist()
            assert theirs.encode(text).ids == ids
            assert theirs.decode(ids, skip_special_tokens=False) == load_tokenizer().decode(ids)


def test_the_file() -> None:
    content = TOKENIZER_FILE.read_text(encoding="utf-8")
    entries = json.loads(content)["model"]["vocab"]
    assert sorted(entries.values()) == list(range(limits.VOCABULARY)) == list(range(16_512))
    assert load_tokenizer().encode(END).tolist() == [load_tokenizer().end]
    words = " the of and in water school because people government science energy history planet"
    assert len(load_tokenizer().encode(words)) == len(words.split())


def test_ids_out_of_range_are_refused() -> None:
    for wrong in (-1, limits.VOCABULARY):
        with pytest.raises(ConfigError, match=rf"id {wrong} is not in the vocabulary"):
            load_tokenizer().decode([wrong])


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"model": 1}'])
def test_no_tokenizer_is_refused(content: str) -> None:
    with pytest.raises(DataError, match=r"x is no tokenizer"):
        Tokenizer(content, "x")


def test_another_size_is_refused() -> None:
    file = json.loads(TOKENIZER_FILE.read_text(encoding="utf-8"))
    a, b = file["model"]["merges"].pop()
    del file["model"]["vocab"][a + b]
    with pytest.raises(DataError, match=r"has 16511 entries; 16512 are needed"):
        Tokenizer(json.dumps(file), "x")


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ConfigError, match=r"'tokenizers' is not installed; pip install 'daisychain\[room\]'"):
        Tokenizer("{}", "x")


def test_training_on_too_little_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a short text")
    out = tmp_path / "tokenizer.json"
    assert run(["tokenizer", "train", "--out", str(out), str(text)]) == 2
    assert "16512 are needed; give more text" in capsys.readouterr().err
    assert not out.exists()


def test_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generator = np.random.Generator(np.random.PCG64(1))
    lengths = generator.integers(2, 12, 30_000)
    words = ["".join(map(chr, generator.integers(97, 123, length))) for length in lengths]
    text = tmp_path / "text.txt"
    text.write_text(" ".join(words))
    out = tmp_path / "tokenizer.json"
    assert run(["tokenizer", "train", "--out", str(out), str(text)]) == 0
    assert "16512 entries" in capsys.readouterr().out
    trained = Tokenizer(out.read_text(encoding="utf-8"), "x")
    assert len(trained.encode(words[0])) < len(words[0])
    assert trained.decode(trained.encode(words[0] + "é")) == words[0] + "é"
