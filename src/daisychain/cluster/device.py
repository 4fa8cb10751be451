"""Which device a node computes on: one that exists and has just run a real operation."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from daisychain.base.errors import ConfigError

VISIBLE = "CUDA_VISIBLE_DEVICES"
NONE_VISIBLE = ("", "-1", "NoDevFiles")


@dataclass(frozen=True)
class Device:
    """A device that works, and why it was chosen."""

    device: torch.device
    reason: str

    def __str__(self) -> str:
        return f"{self.device}: {self.reason}"


def real_operation(device: torch.device) -> None:
    """A product on the device, copied back and compared. Raises RuntimeError where anything fails."""
    left = (
        torch.arange(64 * 64, dtype=torch.float32).reshape(64, 64) % 7
    )  # exact whatever the device rounds to
    expected = left @ left.T
    there = left.to(device)
    if not torch.equal((there @ there.T).cpu(), expected):
        raise RuntimeError("a matrix product came back wrong")


def choose_device(
    wanted: str = "auto",
    *,
    env: Mapping[str, str] = os.environ,
    available: Callable[[], bool] = torch.cuda.is_available,
    operation: Callable[[torch.device], None] = real_operation,
) -> Device:
    """The device for `wanted`: "auto", "cpu", "cuda" or "cuda:N".

    "auto" is CUDA where it works, else the CPU with the reason. Raises ConfigError for a name that is none of
    these, and for a device that was named and does not work.
    """
    if wanted == "cpu":
        return Device(torch.device("cpu"), "as wanted")
    kind, _, number = wanted.partition(":")
    if wanted != "auto" and (kind != "cuda" or (":" in wanted and not number.isdecimal())):
        raise ConfigError(f"device {wanted!r} is unknown: auto, cpu, cuda or cuda:N is needed")
    device = torch.device("cuda" if wanted == "auto" else wanted)
    fault = _fault(device, env, available, operation)
    if fault is None:
        return Device(device, "it ran a real operation")
    if wanted != "auto":
        raise ConfigError(f"device {wanted!r} cannot be used: {fault}; use cpu or auto")
    return Device(torch.device("cpu"), fault)


def _fault(
    device: torch.device,
    env: Mapping[str, str],
    available: Callable[[], bool],
    operation: Callable[[torch.device], None],
) -> str | None:
    """Why a CUDA device cannot be used, or None."""
    if env.get(VISIBLE, "all").strip() in NONE_VISIBLE:
        return f"{VISIBLE}={env[VISIBLE]!r} hides every GPU"
    if not available():
        return "no CUDA device"
    try:
        operation(device)
    except (RuntimeError, AssertionError) as error:  # torch asserts where it was built without CUDA
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        return f"CUDA is there, but its first operation failed ({first_line})"
    return None
