"""The Task interface, its loader, and the built-in tasks."""

from daisychain.tasks.check import check_task
from daisychain.tasks.loader import BUILT_IN, load_task, restore_task
from daisychain.tasks.task import Loss, SampleIds, Task, TaskOptions, loss_sum_and_count

__all__ = [
    "BUILT_IN",
    "Loss",
    "SampleIds",
    "Task",
    "TaskOptions",
    "check_task",
    "load_task",
    "loss_sum_and_count",
    "restore_task",
]
