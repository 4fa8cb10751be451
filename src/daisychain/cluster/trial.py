"""One step on a model that is thrown away, so that kernels are chosen at the task's own shapes."""

import torch

from daisychain import kernels
from daisychain.base.log import say
from daisychain.kernels import Kernels
from daisychain.tasks.check import check_task
from daisychain.tasks.task import Task
from daisychain.units.counts import counts


def try_kernels(task: Task, samples: int, device: torch.device) -> None:
    """Try the task on as many samples as a node will have, choose the kernel by the shapes it met, and say which."""
    registry = try_quietly(task, samples, device)
    if registry.shapes:
        chosen = registry.choose(quiet=True)
        timed = [v for v in registry.verdicts.values() if v.admitted and v.ratio is not None]
        why = "the fastest of " + ", ".join(f"{v.name} {v.ratio:.2f}" for v in timed) + " × float32"
        say(f"kernel: {chosen.name} ({why if timed else 'forced, or the last that passed its proof'})")


def try_quietly(task: Task, samples: int, device: torch.device) -> Kernels:
    """The trial alone, on whichever kernel is the fastest in general. Raises TaskError, and KernelError if none is."""
    registry = kernels.default(device.type)
    registry.choose(quiet=True)
    registry.shapes.clear()
    with counts.paused():
        check_task(task, samples, device)
    return registry
