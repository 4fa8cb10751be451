"""Text to entries of the vocabulary and back: byte-level BPE, the same ids as static/model/tokenizer.js.

The file is in the standard format of the package `tokenizers`. Text is first cut into pieces by PATTERN, which names
ASCII characters only: classes like `\\p{L}` follow the Unicode version of each engine, and pieces would differ.
"""

import functools
import hashlib
import importlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from daisychain.base import limits
from daisychain.base.errors import ConfigError, DataError

U16 = npt.NDArray[np.uint16]

TOKENIZER_FILE = Path(__file__).with_name("tokenizer.json")
END = "<|end|>"  # stands between documents; the only entry that is no string of bytes

_SPACE = r"\t-\r "
_LETTER = r"[^\x00-@\[-`{-\x7f]"  # A–Z, a–z and everything beyond ASCII
_SIGN = r"[\x00-\x08\x0e-\x1f!-/:-@\[-`{-\x7f]"
#: What a piece may be. Runs are cut so that merging a piece is cheap however long the run.
PATTERN = (
    rf"'(?:s|t|re|ve|m|ll|d)| ?{_LETTER}{{1,32}}| ?[0-9]{{1,3}}| ?{_SIGN}{{1,16}}"
    rf"|[{_SPACE}]{{1,32}}(?![^{_SPACE}])|[{_SPACE}]{{1,32}}"
)


class Tokenizer:
    """The vocabulary of a tokenizer file; `size` entries, `end` the id of END."""

    def __init__(self, content: str, source: str) -> None:
        """Raises DataError for content that is not a tokenizer of limits.VOCABULARY entries."""
        package = _package()
        try:
            self._inner = package.Tokenizer.from_str(content)
        except Exception as error:  # the package raises nothing narrower
            raise DataError(f"{source} is no tokenizer: {error}. Train it anew or reinstall.") from None
        self.size: int = self._inner.get_vocab_size()
        if self.size != limits.VOCABULARY or self._inner.token_to_id(END) is None:
            raise DataError(
                f"{source} has {self.size} entries; {limits.VOCABULARY} are needed, {END!r} among them. "
                "Train it anew or reinstall."
            )
        self.end: int = self._inner.token_to_id(END)
        alphabet = _alphabet()
        self._bytes = [
            END.encode() if id == self.end else bytes(alphabet[character] for character in text)
            for text, id in sorted(self._inner.get_vocab().items(), key=lambda entry: entry[1])
        ]

    def encode(self, text: str) -> U16:
        """The ids of a text; END in it becomes one entry. A lone surrogate counts as U+FFFD."""
        well_formed = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return np.array(self._inner.encode(well_formed).ids, np.uint16)

    def byte_lengths(self) -> npt.NDArray[np.int64]:
        """The bytes that each entry stands for: (size,); END stands for none."""
        lengths = np.array([len(entry) for entry in self._bytes], np.int64)
        lengths[self.end] = 0
        return lengths

    def decode(self, ids: Sequence[int] | U16) -> str:
        """The text of ids; bytes that are not UTF-8 become U+FFFD. Raises ConfigError for an id out of range."""
        for id in ids:
            if not 0 <= id < self.size:
                raise ConfigError(f"id {id} is not in the vocabulary; ids are 0 … {self.size - 1}.")
        return b"".join(self._bytes[id] for id in ids).decode("utf-8", "replace")


@functools.cache
def load_tokenizer() -> Tokenizer:
    """The tokenizer of the package. Raises ConfigError without the package `tokenizers`."""
    return Tokenizer(TOKENIZER_FILE.read_text(encoding="utf-8"), f"the file {TOKENIZER_FILE.name}")


def text_pieces(ids: Iterable[int]) -> Iterator[str]:
    """The text of ids, cut only between whole characters: a token may end within one."""
    decode, pending = load_tokenizer().decode, list[int]()
    for id in ids:
        pending.append(id)
        text = decode(pending)
        if not text.endswith("\ufffd"):
            yield text
            pending.clear()
    if pending:
        yield decode(pending)


def pack(documents: Iterable[str], tokenizer: Tokenizer) -> U16:
    """Documents as one row of ids, END after each."""
    end = np.array([tokenizer.end], np.uint16)
    parts = [np.empty(0, np.uint16)]
    for document in documents:
        parts += [tokenizer.encode(part) for part in _parts(document)]
        parts.append(end)
    return np.concatenate(parts)


def _parts(document: str) -> Iterator[str]:
    """A document as it is, or cut before spaces where it would take much memory to tokenise at once."""
    start = 0
    while len(document) - start > limits.TOKENIZE_CHARACTERS:
        most = start + limits.TOKENIZE_CHARACTERS
        at = document.rfind(" ", start + 1, most)
        end = at if at > 0 else most
        yield document[start:end]
        start = end
    yield document[start:]


@functools.cache
def tokenizer_digest() -> str:
    """What tells this tokenizer from every other: SHA-256 of its file, in hex."""
    return hashlib.sha256(TOKENIZER_FILE.read_bytes()).hexdigest()


def train_tokenizer(texts: Iterable[str]) -> str:
    """The content of a tokenizer file with limits.VOCABULARY entries: END, the 256 bytes, merges.

    Raises DataError for texts that have too few different pieces.
    """
    package = _package()
    inner = package.Tokenizer(package.models.BPE())
    inner.pre_tokenizer = package.pre_tokenizers.Sequence(
        [
            package.pre_tokenizers.Split(package.Regex(PATTERN), "isolated"),
            package.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    inner.decoder = package.decoders.ByteLevel()
    trainer = package.trainers.BpeTrainer(
        vocab_size=limits.VOCABULARY,
        special_tokens=[END],
        initial_alphabet=sorted(_alphabet()),
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)
    if (size := inner.get_vocab_size()) != limits.VOCABULARY:
        raise DataError(f"the text gives {size} entries, {limits.VOCABULARY} are needed; give more text.")
    return json.dumps(json.loads(inner.to_str()), ensure_ascii=False, separators=(",", ":"))


def _package() -> Any:
    try:
        return importlib.import_module("tokenizers")
    except ImportError:
        raise ConfigError(
            "the package 'tokenizers' is not installed; pip install 'daisychain[room]'."
        ) from None


@functools.cache
def _alphabet() -> dict[str, int]:
    """The character that stands for each byte in the file: itself if it is visible, else one from U+0100 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + n): byte for n, byte in enumerate(others)}
