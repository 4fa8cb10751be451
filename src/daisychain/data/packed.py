"""Text as tokens, packed end to end and cut into windows: what a language model is trained on."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from daisychain.base import limits
from daisychain.base.clock import SystemClock
from daisychain.base.errors import DataError, DataLostError
from daisychain.base.log import say
from daisychain.data.hub_text import HubReader
from daisychain.data.local_tokens import kept_tokens
from daisychain.data.source import TextChoice, cache_folder
from daisychain.data.split import data_hash, held_out_split
from daisychain.data.stream import TokenStream, open_stream
from daisychain.data.text import read_documents
from daisychain.data.tokenizer import load_tokenizer, tokenizer_digest
from daisychain.numerics import sample_ids

I64 = npt.NDArray[np.int64]
U16 = npt.NDArray[np.uint16]


class PackedText:
    """Windows of a packed text. Number w of a split is `sequence` tokens and the one after them.

    A window predicts all its tokens but the first, so every token is predicted in one window only and none of a
    held-out window is ever trained on. `sample_count` windows are for training; `streamed` says that they are still
    being fetched, so that they are best used in rising order. `identity` is JSON, equal on every node that has the
    same data. `bytes_per_token` is the held-out text's, for bits per byte.
    """

    streamed = False

    def __init__(
        self,
        sequence: int,
        sample_count: int,
        held_out: I64,
        identity: Mapping[str, Any],
        notes: Iterable[str],
    ) -> None:
        """`held_out`: (m, sequence + 1)."""
        self.sequence, self.sample_count = sequence, sample_count
        self._held_out = held_out
        self.identity = identity
        self.notes = tuple(notes)
        predicted = held_out[:, 1:]
        self.bytes_per_token = float(load_tokenizer().byte_lengths()[predicted].sum() / predicted.size)

    def held_out(self) -> I64:
        """The windows that are never trained on: (m, sequence + 1)."""
        return self._held_out

    def windows(self, numbers: I64) -> I64:
        """Training windows by their number, 0 … sample_count − 1: (n, sequence + 1).

        The same number gives the same window on every node. Raises DataError where it cannot be had.
        """
        raise NotImplementedError


class LocalText(PackedText):
    """Windows of tokens that are all in memory; a seeded part of them is held out."""

    def __init__(
        self,
        tokens: U16,
        sequence: int,
        seed: int,
        source: str,
        identity: Mapping[str, Any],
        notes: Iterable[str],
    ) -> None:
        count = (len(tokens) - 1) // sequence
        if count < 2:
            raise DataError(
                f"{source} has {len(tokens)} tokens; sequences of {sequence} take at least {2 * sequence + 1}, one to "
                "train on and one held out. Give more text or a shorter --sequence."
            )
        self._tokens = tokens
        self._train, held_out = held_out_split(count, limits.HELD_OUT_MAX_WINDOWS, seed)
        super().__init__(sequence, len(self._train), cut(tokens, held_out, sequence), identity, notes)

    def windows(self, numbers: I64) -> I64:
        return cut(self._tokens, self._train[numbers], self.sequence)


def cut(tokens: U16, places: I64, sequence: int) -> I64:
    """The windows at these places of a packed text: (n, sequence + 1)."""
    return np.asarray(tokens[places[:, None] * sequence + np.arange(sequence + 1)], np.int64)


class StreamedText(PackedText):
    """Windows of a stream: the first ones are held out, the others are shuffled in blocks as they come.

    Numbers beyond the end of the data set begin a new epoch in another order; `sample_count` is the limit on what is
    kept of any data set, not the size of this one. Where the hub fails and `embedded` is given, it stands in.
    """

    streamed = True

    def __init__(
        self, stream: TokenStream, sequence: int, seed: int, source: Mapping[str, Any], embedded: bool
    ) -> None:
        self._stream, self._seed, self._embedded = stream, seed, embedded
        self._substitute: LocalText | None = None
        enough = limits.STREAM_HELD_OUT_WINDOWS + limits.STREAM_BLOCK_WINDOWS
        self._ahead = limits.STREAM_AHEAD_BLOCKS * limits.STREAM_BLOCK_WINDOWS * sequence
        stream.wait(enough * sequence + 1, self._ahead)
        there = (stream.tokens - 1) // sequence
        if there < 2:
            raise DataError(
                f"data set {source['dataset']!r} has {stream.tokens} tokens; sequences of {sequence} take at least "
                f"{2 * sequence + 1}. Choose another or a shorter --sequence."
            )
        self._first = min(limits.STREAM_HELD_OUT_WINDOWS, there)
        # At least four fifths of a small data set are for training; one that stopped for want of space may be large.
        if stream.end == "whole" or there < 2 * self._first:
            self._first = min(self._first, max(1, int(there * limits.HELD_OUT_FRACTION)))
        held_out = self._cut(np.arange(self._first), sequence)
        count = (limits.STREAM_MAX_TOKENS - 1) // sequence - limits.STREAM_HELD_OUT_WINDOWS
        identity = {**source, "sequence": sequence}
        super().__init__(sequence, count, held_out, identity, [self._note()])

    def windows(self, numbers: I64) -> I64:
        places, missing = self._places(numbers)
        while missing.any() and self._substitute is None:  # for want of space, of which there is some by now
            places, missing = self._places(numbers)
        if not missing.any():
            return self._cut(places, self.sequence)
        windows = self._stand_in(numbers)
        windows[~missing] = self._cut(places[~missing], self.sequence)
        return windows

    def close(self) -> None:
        """Stop downloading."""
        self._stream.close()

    def _places(self, numbers: I64) -> tuple[I64, npt.NDArray[np.bool_]]:
        """Where these windows are in the stream, and which of them cannot be had."""
        block = limits.STREAM_BLOCK_WINDOWS
        last = (int(numbers.max(initial=-1)) // block + 1) * block
        if self._substitute is None:
            self._wait((self._first + last) * self.sequence + 1)
        trained = (self._stream.tokens - 1) // self.sequence - self._first
        if not self._stream.ended:
            # The last block may be a part of one that will grow, so it has no order yet.
            places = shuffled(numbers, trained // block * block + block, self._seed)
            return places + self._first, numbers >= trained // block * block
        return shuffled(numbers, trained, self._seed) + self._first, np.zeros(len(numbers), np.bool_)

    def _cut(self, places: I64, sequence: int) -> I64:
        rows = [self._stream.read(at * sequence, (at + 1) * sequence + 1) for at in places.tolist()]
        return np.array(rows, np.int64).reshape(len(rows), sequence + 1)

    def _wait(self, tokens: int) -> None:
        """Have these tokens here, or the embedded corpus where that may stand in for them."""
        try:
            self._stream.wait(tokens, self._ahead)
        except DataLostError as error:
            if not self._embedded:
                raise
            say(f"{error} To its end this run goes on with the embedded corpus.")
            self._substitute = open_local(None, self.sequence, self._seed)

    def _stand_in(self, numbers: I64) -> I64:
        assert self._substitute is not None
        return self._substitute.windows(numbers % self._substitute.sample_count)

    def _note(self) -> str:
        ends = {
            None: "more are fetched as they are needed",
            "whole": "that is all of it",
            "limit": f"kept up to the limit of {limits.STREAM_MAX_TOKENS} tokens",
            "space": "no more for want of disk space; then it begins anew",
        }
        return (
            f"{self._stream.about}: {self._stream.tokens} tokens are here, {ends[self._stream.end]}; "
            f"{self._first} windows held out"
        )


def shuffled(numbers: I64, count: int, seed: int) -> I64:
    """The places of these numbers among `count`: each once an epoch.

    In the first epoch within blocks, so that a block can be used as soon as it is there; afterwards all over.
    """
    block = limits.STREAM_BLOCK_WINDOWS
    places = sample_ids(numbers, count, seed)
    start = numbers // block * block
    whole = start + block <= count
    places[whole] = (start + sample_ids(numbers, block, seed))[whole]
    last = (numbers < count) & ~whole
    if last.any():
        places[last] = start[last] + sample_ids(numbers[last] - start[last], count % block, seed)
    return places


def open_tokens(choice: TextChoice, sequence: int, seed: int) -> PackedText:
    """The text of a choice, ready to be used; for a data set as soon as its first part is there.

    Raises ConfigError or DataError; DataLostError where the hub cannot be had and the choice is to stop then.
    """
    if choice.dataset is None:
        return open_local(choice.path, sequence, seed)
    try:
        stream, source = open_stream(choice, cache_folder(), HubReader, SystemClock(), say)
        return StreamedText(stream, sequence, seed, source, choice.on_failure == "embedded")
    except DataLostError as error:
        if choice.on_failure != "embedded":
            raise
        say(f"{error} The embedded corpus takes its place.")
        return open_local(None, sequence, seed, [f"in place of data set {choice.dataset!r}"])


def open_local(path: Path | None, sequence: int, seed: int, notes: Iterable[str] = ()) -> LocalText:
    """The text of a file or a folder, or without a path the embedded corpus."""
    documents, note = read_documents(path)
    tokens = kept_tokens(documents, cache_folder())
    source = str(path) if path else "the embedded corpus"
    identity = {"tokens": data_hash(tokens), "tokenizer": tokenizer_digest(), "sequence": sequence}
    if broken := sum(not _is_utf8(document) for document in documents):
        which = "it is" if len(documents) == 1 else f"{broken} of {len(documents)} files are"
        note += f"; {which} not all UTF-8, and what is not counts as \N{REPLACEMENT CHARACTER}: save as UTF-8"
    return LocalText(tokens, sequence, seed, source, identity, [*notes, note])


def _is_utf8(document: bytes) -> bool:
    try:
        document.decode()
    except UnicodeDecodeError:
        return False
    return True
