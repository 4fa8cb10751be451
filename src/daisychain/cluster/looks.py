"""Looks at a model between two steps of its training, which leave no trace in it."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from daisychain.base.errors import DaisyError, TaskError
from daisychain.base.heap import give_back_free_memory
from daisychain.base.log import warn
from daisychain.cluster.replica import Array, Replica
from daisychain.tasks.attempt import attempt
from daisychain.tasks.check import evaluate
from daisychain.tasks.task import Glimpse, Task, shown
from daisychain.units.counts import counts


@contextmanager
def looking(replica: Replica, state: Mapping[str, Array]) -> Iterator[torch.nn.Module]:
    """The model in eval mode, without gradients; after it everything is `state` again, and so is torch's generator.

    Unit invocations inside are not counted: they are no part of the training. The gradient, which may be on its way
    into the weights, is out of reach.
    """
    give_back_free_memory()  # of the step's activations, before a copy of the weights is laid beside them
    kept = {name: array.copy() for name, array in state.items()}  # weights in a state are the live ones
    model = replica.model
    for parameter in model.parameters():
        parameter.grad = None  # the next step lays it into the flat vector again
    model.eval()
    devices = [replica.device] if replica.device.type == "cuda" else []
    try:
        with torch.no_grad(), counts.paused(), torch.random.fork_rng(devices=devices):
            yield model
    finally:
        model.train()
        replica.load(kept)


def glimpse(task: Task, replica: Replica, state: Mapping[str, Array]) -> Glimpse | None:
    """What the task shows of a model on the way; None, with a warning, where it fails: no run ends for a look."""
    hook = getattr(task, "glimpse", None)
    if hook is None:
        return None
    try:
        with looking(replica, state) as model:
            seen = attempt(lambda: hook(model), "glimpse() failed")
        return seen if seen is None else _checked(seen)
    except DaisyError as error:
        warn(f"no glimpse of the model: {error}")
        return None


def metrics_of(task: Task, replica: Replica, state: Mapping[str, Array]) -> dict[str, float]:
    """Metrics on held-out data; none, with a warning, where the task fails: the model is trained and saved."""
    try:
        with looking(replica, state) as model:
            return evaluate(task, model)
    except DaisyError as error:
        warn(f"the model is trained and saved, but has no metrics: {error}")
        return {}


def _checked(seen: object) -> Glimpse:
    if (
        not isinstance(seen, Glimpse)
        or not isinstance(seen.metrics, Mapping)
        or not isinstance(seen.text, str)
    ):
        raise TaskError(f"glimpse returned {shown(seen)}; it must be a Glimpse or None.")
    numbers = {str(name): float(value) for name, value in seen.metrics.items() if _is_number(value)}
    return Glimpse(numbers, seen.text)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
