"""The Task interface, its loader, and the built-in tasks."""

from daisychain.tasks.check import build_model, check_settings, check_task, evaluate, predict
from daisychain.tasks.loader import BUILT_IN, load_task, restore_task
from daisychain.tasks.task import (
    Glimpse,
    Loss,
    SampleIds,
    Task,
    TaskOptions,
    Writer,
    loss_sum_and_count,
    to_device,
)

__all__ = [
    "BUILT_IN",
    "Glimpse",
    "Loss",
    "SampleIds",
    "Task",
    "TaskOptions",
    "Writer",
    "build_model",
    "check_settings",
    "check_task",
    "evaluate",
    "load_task",
    "loss_sum_and_count",
    "predict",
    "restore_task",
    "to_device",
]
