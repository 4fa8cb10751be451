"""One node's own part of a step: its samples through the model, forward and backward."""

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from daisychain.base import limits
from daisychain.base.clock import Clock
from daisychain.base.errors import ConfigError, DataLostError, FleetError, NonFiniteError, StoppedError
from daisychain.cluster.fleet.waiting import bounded
from daisychain.cluster.gradients import FlatGradient
from daisychain.cluster.records import Fault
from daisychain.cluster.replica import Replica
from daisychain.tasks.attempt import attempt
from daisychain.tasks.task import SampleIds, Task, loss_sum_and_count, to_device

SLOWDOWN = "DAISY_TEST_SLOWDOWN"  # a factor by which computing takes longer, for tests of the plan


@dataclass(frozen=True)
class Share:
    """What a node found on its samples; its gradient is in the fleet's sums."""

    samples: int
    count: int
    loss_sum: float
    compute_s: float
    fault: Fault | None


def slowdown(env: Mapping[str, str]) -> float:
    """The factor in DAISY_TEST_SLOWDOWN, 1 if there is none. Raises ConfigError."""
    text = env.get(SLOWDOWN) or "1"
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 1.0 <= factor <= 1000.0:
        raise ConfigError(f"{SLOWDOWN} is {text!r}; it has to be a number from 1 to 1000.")
    return factor


def sampler(task: Task, stop: threading.Event, clock: Clock) -> Callable[[SampleIds], Any]:
    """`task.sample`; one that may wait for a network raises StoppedError soon after `stop` is set, and DataLostError
    at its limit."""
    if not getattr(task, "streamed", False):
        return task.sample

    def sample(ids: SampleIds) -> Any:
        asked_s: list[float] = []

        def look_up() -> None:
            if stop.is_set():
                asked_s.append(clock.now_s())
                if clock.now_s() - asked_s[0] >= limits.STOP_WAIT_S:
                    raise StoppedError("it was asked to stop while it waited for its samples")

        def late() -> DataLostError:
            return DataLostError(f"its samples did not come within {limits.SAMPLE_LIMIT_S:g} s")

        return bounded(lambda: task.sample(ids), clock, limits.SAMPLE_LIMIT_S, look_up, late)

    return sample


def compute_share(
    task: Task,
    sample: Callable[[SampleIds], Any],
    replica: Replica,
    gradient: FlatGradient,
    ids: SampleIds,
    clock: Clock,
    slowdown_factor: float,
) -> Share:
    """Put the sum of the samples' gradients into the fleet's sums.

    Whatever the task raises becomes the share's fault, with every sum started all the same, so that no other node
    waits for this one. A FleetError alone is raised: then there is nobody left to keep in step with.
    """
    count, loss_sum, fault = 0, 0.0, None
    start_s = clock.now_s()
    gradient.begin()
    try:
        if len(ids):
            loss, count = _loss(task, sample, replica, ids)
            replica.check_own()
            loss_sum = float(loss.detach())
            if not math.isfinite(loss_sum):
                raise NonFiniteError(f"the loss is {loss_sum}")
            attempt(loss.backward, "the backward pass failed")
    except StoppedError as error:  # the others have to hear of it
        fault = Fault.of(error)
    except FleetError:
        raise
    except Exception as error:
        fault = Fault.of(error)
    compute_s = clock.now_s() - start_s
    if slowdown_factor > 1.0:
        clock.sleep(compute_s * (slowdown_factor - 1.0))
        compute_s *= slowdown_factor
    try:
        gradient.finish(fault is not None)
    except NonFiniteError as error:
        fault = Fault.of(error)
    if fault:
        count, loss_sum = 0, 0.0
    return Share(len(ids), count, loss_sum, compute_s, fault)


def _loss(
    task: Task, sample: Callable[[SampleIds], Any], replica: Replica, ids: SampleIds
) -> tuple[torch.Tensor, int]:
    batch = to_device(attempt(lambda: sample(ids), "sample() failed"), replica.device)
    return loss_sum_and_count(attempt(lambda: task.loss(replica.model, batch), "loss() failed"), len(ids))
