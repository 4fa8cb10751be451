"""One step on a model that is thrown away, so that kernels are chosen at the task's own shapes."""

import torch

from daisychain import kernels
from daisychain.base.heap import give_back_free_memory
from daisychain.base.log import say
from daisychain.kernels import Kernels
from daisychain.tasks.check import check_task
from daisychain.tasks.task import Task
from daisychain.units.counts import counts


def try_kernels(task: Task, samples: int, device: torch.device) -> None:
    """Try the task on as many samples as a node will have, choose the kernel by the shapes it met, and say which."""
    registry = try_quietly(task, samples, device)
    if registry.shapes:
        registry.choose(quiet=True)
        give_back_free_memory()
        say(f"kernel: {registry.choice}")


def try_quietly(task: Task, samples: int, device: torch.device) -> Kernels:
    """The trial alone, on whichever kernel is the fastest in general. Raises TaskError, and KernelError if none is."""
    registry = kernels.default(device.type)
    registry.choose(quiet=True)
    registry.shapes.clear()
    with counts.paused():
        check_task(task, samples, device)
    give_back_free_memory()  # of the model that was thrown away
    return registry
