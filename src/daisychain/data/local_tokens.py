"""Tokens of this machine's own text; those of a long one are kept, so that it is tokenised once."""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import filelock
import numpy as np
import numpy.typing as npt

from daisychain.base import limits
from daisychain.base.errors import DataError
from daisychain.base.log import say
from daisychain.data.token_store import LOCK, TokenStore
from daisychain.data.tokenizer import load_tokenizer, pack, tokenizer_digest

U16 = npt.NDArray[np.uint16]


def kept_tokens(documents: Sequence[bytes], cache: Path) -> U16:
    """The packed tokens of documents of UTF-8; what is not becomes U+FFFD. DataError where it cannot be read back."""
    if sum(map(len, documents)) < limits.LOCAL_CACHE_BYTES:
        return _tokenise(documents)
    content = hashlib.sha256()
    for document in documents:
        content.update(len(document).to_bytes(8, "little") + document)
    source = {"content": content.hexdigest(), "tokenizer": tokenizer_digest()}
    try:
        store = TokenStore(cache / "local" / content.hexdigest()[:32], source)
        with _locked(store):
            return _kept(store, documents)
    except DataError as error:
        say(f"tokens of this text are not kept: {error}")
        return _tokenise(documents)


def _kept(store: TokenStore, documents: Sequence[bytes]) -> U16:
    why = store.refresh()
    if store.manifest.end != "whole":
        if why:
            say(f"the tokens kept in {str(store.folder)!r} cannot be used ({why}); they are made again.")
        tokens = _tokenise(documents)
        try:
            if store.has_space() and len(tokens) <= limits.STREAM_MAX_TOKENS:
                store.append(tokens, None, "whole")
        except DataError as error:
            say(f"tokens of this text are not kept: {error}")
        return tokens
    return store.read(0, store.manifest.tokens)


@contextlib.contextmanager
def _locked(store: TokenStore) -> Iterator[None]:
    """Let the nodes of one machine tokenise one after the other, so that all but the first find it done."""
    lock = filelock.FileLock(store.folder / LOCK)
    with contextlib.suppress(filelock.Timeout):
        lock.acquire(timeout=limits.LOCAL_CACHE_WAIT_S)
    try:
        yield
    finally:
        lock.release()


def _tokenise(documents: Sequence[bytes]) -> U16:
    return pack((document.decode("utf-8", "replace") for document in documents), load_tokenizer())
