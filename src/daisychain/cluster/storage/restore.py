"""From checkpoints back to models, to go on training or to answer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from daisychain import kernels
from daisychain.base.errors import CheckpointError, ConfigError
from daisychain.cluster.agreement import first_difference
from daisychain.cluster.replica import Replica
from daisychain.cluster.storage import checkpoint
from daisychain.cluster.storage.checkpoint import MODEL, OPTIMIZER, Meta
from daisychain.numerics import Optimizer
from daisychain.tasks import Task, build_model, restore_task
from daisychain.tasks.room_model import is_room_model

MODEL_FILE = "model.safetensors"  # of a run's folder
SAME = (
    "task",
    "samples",
    "description",
    "seed",
    "optimizer",
    "arithmetic",
)  # of the setup; the rest may change


def restore_model(path: Path, allow: str | None = None) -> tuple[Meta, Task, torch.nn.Module]:
    """The task and the model of a checkpoint, or of a run's folder, ready to answer; `allow` as in `restore_task`.

    A description that asks for more than the file holds is refused before memory is taken for it. Raises
    CheckpointError, TaskError, and ConfigError for the model of a browser room.
    """
    path = path / MODEL_FILE if path.is_dir() else path
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
    with torch.device("meta"):
        numbers = sum(parameter.numel() for parameter in build_model(task).parameters())
    if numbers * 4 > path.stat().st_size:
        raise CheckpointError(
            f"checkpoint {path} describes a model of {numbers:,} numbers, more than it holds."
        )


def load_model(path: Path, model: torch.nn.Module) -> Meta:
    """Fill `model` from a checkpoint or a final model; CheckpointError, the model untouched, if it does not fit."""
    return _load(path, Replica(model), None)


def resume(path: Path, setup: Mapping[str, Any], replica: Replica, optimizer: Optimizer) -> Meta:
    """Fill `replica` and `optimizer` to go on with a run of this `setup`; CheckpointError, naming the difference, if
    it was another task, data or seed."""
    meta = checkpoint.read_meta(path)
    then, now = ({name: part.get(name) for name in SAME} for part in (meta.setup, setup))
    if found := first_difference(then, now):
        name, was, is_now = found
        raise CheckpointError(
            f"checkpoint {path} was made with {name} {was!r}, this run has {is_now!r}; "
            "resume with the same task, data and settings."
        )
    if meta.step >= setup["steps"]:
        raise CheckpointError(
            f"checkpoint {path} has {meta.step} steps done already; ask for more in all, with --steps."
        )
    return _load(path, replica, optimizer)


def _load(path: Path, replica: Replica, optimizer: Optimizer | None) -> Meta:
    layout = {MODEL + name: kind for name, kind in replica.layout().items()}
    arrays = optimizer.arrays() if optimizer else {}
    layout |= {OPTIMIZER + name: (array.dtype.str[1:], array.shape) for name, array in arrays.items()}
    own = {OPTIMIZER + name: array for name, array in arrays.items()}
    meta, tensors = checkpoint.load(path, layout, {MODEL + name for name in replica.buffers}, own)
    if optimizer:
        if set(meta.numbers) != set(optimizer.numbers()):
            raise CheckpointError(f"checkpoint {path} holds other optimiser numbers than this optimiser has.")
        optimizer.load({name: tensors[OPTIMIZER + name] for name in arrays}, dict(meta.numbers))
    replica.load({name: tensors[MODEL + name] for name in replica.layout()})
    return meta
