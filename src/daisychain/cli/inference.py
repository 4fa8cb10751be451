"""`daisychain predict`, `generate` and `export`: what a trained model is for."""

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import torch
import typer

from daisychain.base.errors import ConfigError
from daisychain.base.files import write_atomic
from daisychain.base.log import say
from daisychain.cluster.storage.restore import restore_model
from daisychain.tasks import Writer
from daisychain.tasks import predict as predict_by
from daisychain.tasks.room_model import is_room_model, is_zip, read_room_model

CheckpointFile = Annotated[
    Path,
    typer.Argument(
        help="A checkpoint or model.safetensors of a run, or a model that a browser room saved.",
        metavar="CHECKPOINT",
    ),
]
OwnTask = Annotated[
    str | None, typer.Option("--task", help="module:Class that made the checkpoint, if it was your own code.")
]


def predict(
    path: CheckpointFile,
    rows: Annotated[
        Path, typer.Argument(help="CSV or Parquet file with the rows to answer.", metavar="ROWS")
    ],
    task: OwnTask = None,
) -> None:
    """Answer each row of a table: CSV on standard output."""
    _, made_by, model = restore_model(path, task)
    answers = predict_by(made_by, model, rows)
    if answers:
        writer = csv.DictWriter(sys.stdout, ["row", *answers[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows({"row": number, **answer} for number, answer in enumerate(answers))


def generate(
    path: CheckpointFile,
    prompt: Annotated[str, typer.Option(help="What the text begins with.")],
    tokens: Annotated[int, typer.Option(help="Tokens to add; bytes, for a model of task text.")] = 200,
    temperature: Annotated[
        float, typer.Option(help="0 takes the likeliest; 1 is as likely as trained.")
    ] = 0.8,
    seed: Annotated[int, typer.Option(help="The same seed gives the same text.")] = 0,
) -> None:
    """Go on with a text: the prompt and what follows, on standard output."""
    out = sys.stdout.buffer
    pieces = _continuation(path, prompt, tokens, temperature, seed)
    out.write(prompt.encode(errors="surrogateescape"))
    for piece in pieces:
        out.write(piece)
        out.flush()
    out.write(b"\n")
    out.flush()


def _continuation(path: Path, prompt: str, tokens: int, temperature: float, seed: int) -> Iterator[bytes]:
    """What goes on from a prompt, by a room's model or by a run's."""
    if is_room_model(path) or is_zip(path):
        pieces = read_room_model(path).generate(prompt, tokens, temperature, seed)
        return (piece.encode() for piece in pieces)
    meta, made_by, model = restore_model(path)
    if not isinstance(made_by, Writer):
        raise ConfigError(
            f"{path} is a model of task {meta.task!r}, which writes no text; use `daisychain predict`."
        )
    return made_by.generate(model, prompt, tokens, temperature, seed)


def export(
    path: CheckpointFile,
    to: Annotated[Path, typer.Argument(help="model.pt or model.safetensors.", metavar="FILE")],
    task: OwnTask = None,
) -> None:
    """Write the weights alone, as a state dict: `.pt` for torch.load(weights_only=True), or `.safetensors`."""
    if is_room_model(path):
        tensors = read_room_model(path).tensors()
        state = {name: torch.from_numpy(tensor.copy()) for name, tensor in tensors.items()}
    else:
        _, _, model = restore_model(path, task)
        state = {name: tensor.detach().contiguous().clone() for name, tensor in model.state_dict().items()}
    if to.suffix == ".safetensors":
        from safetensors.torch import save

        write_atomic(to, save(state))
    elif to.suffix == ".pt":
        buffer = io.BytesIO()
        torch.save(state, buffer)
        write_atomic(to, buffer.getvalue())
    else:
        raise ConfigError(f"{to} has neither .pt nor .safetensors at its end, so its format is not known.")
    say(f"wrote {to}: {len(state)} tensors, {sum(t.numel() for t in state.values()):,} numbers.")
