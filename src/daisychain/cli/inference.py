"""`daisychain predict`, `generate` and `export`: what a trained model is for."""

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import torch
import typer

from daisychain import kernels
from daisychain.base.errors import CheckpointError, ConfigError
from daisychain.base.files import write_atomic
from daisychain.base.log import say
from daisychain.cluster.storage import checkpoint
from daisychain.cluster.storage.checkpoint import Meta
from daisychain.cluster.storage.restore import load_model
from daisychain.tasks import Task, build_model, restore_task
from daisychain.tasks import predict as predict_by
from daisychain.tasks.room_model import is_room_model, is_zip, read_room_model
from daisychain.tasks.text import TextTask

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


def restore(path: Path, allow: str | None) -> tuple[Meta, Task, torch.nn.Module]:
    """The task and the model of a checkpoint, or of a run's folder, ready to answer."""
    path = path / "model.safetensors" if path.is_dir() else path
    if is_room_model(path):
        raise ConfigError(f"{path} is a browser room's model, which writes text; use `daisychain generate`.")
    meta = checkpoint.read_meta(path)
    task = restore_task(meta.task, meta.description, allow)
    if allow is None:
        _check_size(path, task)
    kernels.default().choose(quiet=True)
    model = build_model(task)
    load_model(path, model)
    return meta, task, model.eval()


def _check_size(path: Path, task: Task) -> None:
    """Refuse a description whose model is larger than the file, before memory is taken for it."""
    with torch.device("meta"):
        numbers = sum(parameter.numel() for parameter in build_model(task).parameters())
    if numbers * 4 > path.stat().st_size:
        raise CheckpointError(
            f"checkpoint {path} describes a model of {numbers:,} numbers, more than it holds."
        )


def predict(
    path: CheckpointFile,
    rows: Annotated[
        Path, typer.Argument(help="CSV or Parquet file with the rows to answer.", metavar="ROWS")
    ],
    task: OwnTask = None,
) -> None:
    """Answer each row of a table: CSV on standard output."""
    _, made_by, model = restore(path, task)
    answers = predict_by(made_by, model, rows)
    if answers:
        writer = csv.DictWriter(sys.stdout, ["row", *answers[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows({"row": number, **answer} for number, answer in enumerate(answers))


def generate(
    path: CheckpointFile,
    prompt: Annotated[str, typer.Option(help="What the text begins with.")],
    tokens: Annotated[int, typer.Option(help="Bytes to add; tokens, for a room's model.")] = 200,
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
    meta, made_by, model = restore(path, None)
    if not isinstance(made_by, TextTask):
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
        _, _, model = restore(path, task)
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
