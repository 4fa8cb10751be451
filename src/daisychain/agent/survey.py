"""Which device and which kernel this machine computes with, and why. Run as a process of its own, so that the agent
holds no torch while others train: `python -m daisychain.agent.survey` prints one JSON object.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from daisychain.agent.reading import Reader, one_line, read_object
from daisychain.agent.report import FAILED, PROOFS, PROVING
from daisychain.base import limits
from daisychain.base.errors import ReportError

COMMAND = (sys.executable, "-m", "daisychain.agent.survey")
NICENESS = 10  # whatever trains here goes first


@dataclass(frozen=True)
class Survey:
    """The part of a report that takes a proof. `proof` is proving, ready or failed."""

    proof: str = PROVING
    device: str | None = None
    device_reason: str = ""
    backend: str | None = None
    backend_reason: str = "being proven"


def survey() -> dict[str, Any]:
    """Choose a device and prove the kernels. Loads torch, and takes seconds."""
    from daisychain import kernels
    from daisychain.base.errors import DaisyError
    from daisychain.cluster.device import choose_device

    try:
        device = choose_device()
        found = {"device": str(device.device), "device_reason": one_line(device.reason)}
    except DaisyError as error:
        return {"proof": FAILED, "device_reason": one_line(str(error))}
    try:
        registry = kernels.default(device.device.type)
        registry.choose(quiet=True)
    except DaisyError as error:
        return {"proof": FAILED, **found, "backend_reason": one_line(str(error))}
    return {"proof": "ready", **found, "backend": registry.name, "backend_reason": one_line(registry.choice)}


async def survey_in_process(
    command: Sequence[str] = COMMAND, limit_s: float = limits.AGENT_SURVEY_LIMIT_S
) -> Survey:
    """The survey of a child process. Where that fails or takes too long, the survey says so."""
    try:
        child = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        return _failed(f"the proof could not be started ({error})")
    try:
        output, errors = await asyncio.wait_for(child.communicate(), limit_s)
    except asyncio.TimeoutError:
        return _failed(f"the proof did not end within {limit_s:g} s")
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        lines = errors.decode(errors="replace").strip().splitlines() or [f"exit code {child.returncode}"]
        return _failed(f"the proof ended with {lines[-1]}")
    try:
        return _read(output)
    except ReportError as error:
        return _failed(f"the proof said something else ({error})")


def _read(output: bytes) -> Survey:
    fields = read_object(output, "the survey", limits.AGENT_REPORT_BYTES)
    read = Reader(fields, "survey")
    return Survey(
        proof=read.choice("proof", PROOFS),
        device=read.optional("device", read.text),
        device_reason=read.optional("device_reason", read.text) or "",
        backend=read.optional("backend", read.text),
        backend_reason=read.optional("backend_reason", read.text) or "",
    )


def _failed(reason: str) -> Survey:
    return Survey(proof=FAILED, backend_reason=one_line(reason))


if __name__ == "__main__":
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    sys.stdout.write(json.dumps(survey()))
