"""Whether a run fits into this machine's memory, before any of it is taken."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil
import torch

from daisychain.base.errors import ConfigError
from daisychain.cluster.estimate import estimate, fits
from daisychain.nn.spikewhale import SpikeWhaleConfig

AVAILABLE = "DAISY_TEST_MEMORY_BYTES"  # what counts as free, for tests of the refusal
CONTROL_GROUP = Path("/sys/fs/cgroup")  # a container's own limit, on Linux


def available_bytes(
    environment: Mapping[str, str] = os.environ,
    free: Callable[[], int] = lambda: psutil.virtual_memory().available,
    group: Path = CONTROL_GROUP,
) -> int:
    """Memory that a new process may take: what the system can give, or less in a container with a limit."""
    if given := environment.get(AVAILABLE):
        if not given.isdecimal():
            raise ConfigError(f"{AVAILABLE} is {given!r:.60}; it has to be a whole number of bytes.")
        return int(given)
    limit, used = (_number(group / name) for name in ("memory.max", "memory.current"))
    return free() if limit is None or used is None else max(0, min(free(), limit - used))


def _number(path: Path) -> int | None:
    """What a file of the control group says; None where there is none, or no limit."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def check_memory(
    config: SpikeWhaleConfig, batch_samples: int, nodes: int, nodes_here: int, device: torch.device
) -> None:
    """Refuse, with the numbers, a run that this machine cannot hold. Raises ConfigError."""
    found = estimate(config, batch_samples, nodes)
    if device.type != "cpu":  # the samples' part is on the device, of which torch itself says when it is full
        found = found.without("activations", "kernel")
    if reason := fits(found, available_bytes(), nodes_here):
        raise ConfigError(f"this run does not fit: {reason}")
