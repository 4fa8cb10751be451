"""From checkpoints back to models."""

from pathlib import Path

import torch

from daisychain.base.errors import CheckpointError
from daisychain.cluster.agreement import setup_of
from daisychain.cluster.config import TrainConfig
from daisychain.cluster.replica import Replica
from daisychain.cluster.storage import checkpoint
from daisychain.cluster.storage.checkpoint import MODEL, OPTIMIZER, Meta
from daisychain.numerics import Optimizer
from daisychain.tasks.task import Task


def load_model(path: Path, model: torch.nn.Module) -> Meta:
    """Fill `model` from a checkpoint or a final model; CheckpointError, the model untouched, if it does not fit."""
    return _load(path, Replica(model), None)


def resume(
    path: Path, task: Task, task_name: str, config: TrainConfig, replica: Replica, optimizer: Optimizer
) -> Meta:
    """Fill `replica` and `optimizer` to go on with a run; CheckpointError if it was another task, data or seed."""
    meta = checkpoint.read_meta(path)
    mine = setup_of(task, task_name, config, replica)
    for name in ("task", "samples", "data", "seed", "optimizer", "arithmetic"):
        if meta.setup.get(name) != mine[name]:
            raise CheckpointError(
                f"checkpoint {path} was made with {name} {meta.setup.get(name)!r}, this run has {mine[name]!r}; "
                "resume with the same task, data and settings."
            )
    if meta.step >= config.steps:
        raise CheckpointError(
            f"checkpoint {path} has {meta.step} steps done already; ask for more than {meta.step}."
        )
    return _load(path, replica, optimizer)


def _load(path: Path, replica: Replica, optimizer: Optimizer | None) -> Meta:
    layout = {MODEL + name: kind for name, kind in replica.layout().items()}
    arrays = optimizer.arrays() if optimizer else {}
    layout |= {OPTIMIZER + name: (array.dtype.str[1:], array.shape) for name, array in arrays.items()}
    meta, tensors = checkpoint.load(path, layout, {MODEL + name for name in replica.buffers})
    if optimizer:
        if set(meta.numbers) != set(optimizer.numbers()):
            raise CheckpointError(f"checkpoint {path} holds other optimiser numbers than this optimiser has.")
        optimizer.load({name: tensors[OPTIMIZER + name] for name in arrays}, dict(meta.numbers))
    replica.load({name: tensors[MODEL + name] for name in replica.layout()})
    return meta
