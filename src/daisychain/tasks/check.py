"""A tiny trial of a task, so that a mistake in it shows before any node trains."""

import math

import numpy as np
import torch

from daisychain.base.errors import TaskError
from daisychain.tasks.attempt import attempt
from daisychain.tasks.task import Task, loss_sum_and_count, shown

TRIAL_SAMPLES = 2


def check_task(task: Task) -> None:
    """Build a model and the loss of two samples, and throw both away. TaskError says what was returned and what
    is wanted. Torch's generator is left as it was."""
    if not (isinstance(task.learning_rate, float | int) and 0 < task.learning_rate < math.inf):
        raise _fault(task, f"learning_rate is {shown(task.learning_rate)}; it must be a positive number.")
    if not isinstance(task.batch_samples, int) or task.batch_samples < 1:
        raise _fault(
            task, f"batch_samples is {shown(task.batch_samples)}; it must be a whole number of at least 1."
        )
    with torch.random.fork_rng(devices=[]):
        _trial(task)


def _trial(task: Task) -> None:
    model = attempt(task.build_model, f"task {task.name!r}: build_model() failed")
    if not isinstance(model, torch.nn.Module):
        raise _fault(task, f"build_model returned {shown(model)}; it must be a torch.nn.Module.")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise _fault(task, "the model has no parameters that require a gradient; there is nothing to train.")
    ids = np.arange(min(TRIAL_SAMPLES, task.sample_count), dtype=np.int64)
    batch = attempt(lambda: task.sample(ids), f"task {task.name!r}: sample({ids.tolist()}) failed")
    loss = attempt(lambda: task.loss(model, batch), f"task {task.name!r}: loss(model, batch) failed")
    try:
        total, _ = loss_sum_and_count(loss, len(ids))
    except TaskError as error:
        raise _fault(task, str(error)) from None
    if not torch.isfinite(total):
        raise _fault(
            task, f"the loss of samples {ids.tolist()} is {total.item()}; look for bad data or weights."
        )
    attempt(total.backward, f"task {task.name!r}: the backward pass failed")


def _fault(task: Task, what: str) -> TaskError:
    return TaskError(f"task {task.name!r}: {what}")
