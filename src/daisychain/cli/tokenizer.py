"""`daisychain tokenizer train`: the vocabulary of the browser room, from texts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from daisychain.base.files import write_atomic
from daisychain.data.text import read_text
from daisychain.data.tokenizer import Tokenizer, train_tokenizer

PART_CHARACTERS = 1 << 16  # handed to the trainer at once

app = typer.Typer(help="The vocabulary of the browser room.", no_args_is_help=True)


@app.callback()
def _tokenizer() -> None:
    """The vocabulary of the browser room."""


@app.command("train")
def train(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH…", help="Text files, or folders of them.")],
    out: Annotated[Path, typer.Option(help="The tokenizer file to write.")],
) -> None:
    """Train a byte-level BPE tokenizer (docs/TOKENIZER.md)."""
    content = train_tokenizer(_parts(paths))
    tokenizer = Tokenizer(content, str(out))
    write_atomic(out, content.encode())
    print(f"{out}: {tokenizer.size} entries, {len(content.encode())} bytes")


def _parts(paths: list[Path]) -> Iterator[str]:
    for path in paths:
        content, line = read_text(path)
        print(line)
        text = content.decode("utf-8", "replace")
        yield from (text[at : at + PART_CHARACTERS] for at in range(0, len(text), PART_CHARACTERS))
