"""A trial of a task, so that a mistake in it shows before any node trains, and what it answers, checked."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from daisychain.base.errors import TaskError
from daisychain.tasks.attempt import attempt
from daisychain.tasks.task import Task, loss_sum_and_count, shown, to_device

TRIAL_SAMPLES = 2
_CPU = torch.device("cpu")


def check_settings(task: Task, name: str) -> None:
    """The numbers that task `name` chooses. TaskError for one that cannot be used."""
    for setting, least in (("sample_count", 1), ("batch_samples", 1), ("warmup_steps", 0)):
        value = attempt(partial(getattr, task, setting), f"task {name!r}: {setting} cannot be read")
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise TaskError(
                f"task {name!r}: {setting} is {shown(value)}; it must be a whole number of at least {least}."
            )
    rate = attempt(lambda: task.learning_rate, f"task {name!r}: learning_rate cannot be read")
    if not (isinstance(rate, float | int) and 0 < rate < math.inf):
        raise TaskError(f"task {name!r}: learning_rate is {shown(rate)}; it must be a positive number.")


def check_task(task: Task, samples: int = TRIAL_SAMPLES, device: torch.device = _CPU) -> None:
    """Build a model and take the loss of some samples and its gradient on `device`, and throw all away.

    TaskError says what was returned and what is wanted. Torch's generator is left as it was.
    """
    ids = np.arange(min(samples, task.sample_count), dtype=np.int64)
    which = ids.tolist() if len(ids) <= TRIAL_SAMPLES else f"0 … {len(ids) - 1}"
    with torch.random.fork_rng(devices=[]):
        model = build_model(task)
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise _fault(
                task, "the model has no parameters that require a gradient; there is nothing to train."
            )
        model = attempt(lambda: model.to(device), f"task {task.name!r}: the model cannot go to {device}")
        batch = attempt(
            lambda: to_device(task.sample(ids), device), f"task {task.name!r}: sample({which}) failed"
        )
        loss = attempt(lambda: task.loss(model, batch), f"task {task.name!r}: loss(model, batch) failed")
        try:
            total, _ = loss_sum_and_count(loss, len(ids))
        except TaskError as error:
            raise _fault(task, str(error)) from None
        if not torch.isfinite(total):
            raise _fault(
                task, f"the loss of samples {which} is {total.item()}; look for bad data or weights."
            )
        attempt(total.backward, f"task {task.name!r}: the backward pass failed")


def build_model(task: Task) -> torch.nn.Module:
    """A new model of the task. TaskError if it raises or returns something else."""
    model = attempt(task.build_model, f"task {task.name!r}: build_model() failed")
    if not isinstance(model, torch.nn.Module):
        raise _fault(task, f"build_model returned {shown(model)}; it must be a torch.nn.Module.")
    return model


def evaluate(task: Task, model: torch.nn.Module) -> dict[str, float]:
    """The task's metrics as finite numbers, by name. TaskError for anything else."""
    metrics = attempt(lambda: task.evaluate(model), f"task {task.name!r}: evaluate(model) failed")
    if not isinstance(metrics, Mapping):
        raise _fault(task, f"evaluate returned {shown(metrics)}; it must be a dictionary of numbers.")
    return {str(name): _metric(task, name, value) for name, value in metrics.items()}


def _metric(task: Task, name: object, value: Any) -> float:
    try:
        number = float(value)
    except Exception:
        number = math.nan
    if not math.isfinite(number):
        raise _fault(task, f"evaluate returned {shown(value)} as {name!r}; it must be a finite number.")
    return number


def predict(task: Task, model: torch.nn.Module, table: Any) -> Sequence[Mapping[str, Any]]:
    """The task's answers, one a row, all with the same names. TaskError for anything else."""
    answers = attempt(lambda: task.predict(model, table), f"task {task.name!r}: predict(model, table) failed")
    if not isinstance(answers, Sequence) or not all(isinstance(answer, Mapping) for answer in answers):
        raise _fault(task, f"predict returned {shown(answers)}; it must be a list of dictionaries.")
    if any(answer.keys() != answers[0].keys() for answer in answers):
        raise _fault(task, "predict returned rows with different names; every row needs the same.")
    return answers


def _fault(task: Task, what: str) -> TaskError:
    return TaskError(f"task {task.name!r}: {what}")
