"""`daisychain doctor`: what this machine has, what was chosen and why, and what to fix."""

import os
import platform
import sys
from dataclasses import dataclass
from typing import Annotated

import psutil
import torch
import typer
from rich.table import Table

from daisychain import kernels
from daisychain.base import limits
from daisychain.base.errors import DaisyError
from daisychain.cli.show import console
from daisychain.cluster.device import choose_device
from daisychain.cluster.fleet import network
from daisychain.kernels.compiled import CompiledElementwise

ENOUGH_MEMORY_BYTES = 2 << 30
ENOUGH_DISK_BYTES = 1 << 30


@dataclass(frozen=True)
class Finding:
    """One line of the report. `fix` says what to do, if anything."""

    what: str
    state: str
    fix: str = ""


def doctor(
    master_addr: Annotated[
        str | None, typer.Option(envvar="MASTER_ADDR", help="A coordinator to look for.")
    ] = None,
    master_port: Annotated[int, typer.Option(envvar="MASTER_PORT")] = limits.DEFAULT_PORT,
) -> None:
    """Say what this machine has, which kernel and interface it would use, and what to fix."""
    findings = [*_machine(), _device(), *_kernel(), *_network(master_addr, master_port)]
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for finding in findings:
        table.add_row(finding.what, finding.state)
        if finding.fix:
            table.add_row("", f"[yellow]→ {finding.fix}[/yellow]")
    console.print(table)
    to_fix = sum(bool(finding.fix) for finding in findings)
    console.print(f"{to_fix} thing{'s' * (to_fix != 1)} to look at." if to_fix else "Ready.", style="bold")


def _machine() -> list[Finding]:
    memory, disk = psutil.virtual_memory(), psutil.disk_usage(os.getcwd())
    return [
        Finding("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        Finding(
            "torch",
            f"{torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}",
        ),
        Finding("cores", f"{psutil.cpu_count(logical=False) or '?'} physical, {psutil.cpu_count()} logical"),
        Finding(
            "memory",
            f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB free",
            "close other programs" if memory.available < ENOUGH_MEMORY_BYTES else "",
        ),
        Finding(
            "disk",
            f"{disk.free / 2**30:.1f} GiB free here",
            "make room: checkpoints need some" if disk.free < ENOUGH_DISK_BYTES else "",
        ),
    ]


def _device() -> Finding:
    return Finding("device", str(choose_device()))


def _kernel() -> list[Finding]:
    registry = kernels.default()
    missing = CompiledElementwise().unavailable()
    compiled = Finding(
        "compiled passes",
        "by numba" if missing is None else "none",
        f"{missing}; layers are slower without" if missing else "",
    )
    try:
        verdict = registry.choose()
    except DaisyError as error:
        return [compiled, Finding("kernel", "none", str(error))]
    others = [f"{v.name}: {v.reason}" for v in registry.verdicts.values() if not v.admitted]
    chosen = Finding("kernel", f"{verdict.name}, {verdict.ratio or 0:.2f} × float32's time")
    return [compiled, chosen, *(Finding("", other) for other in others)]


def _network(master_addr: str | None, port: int) -> list[Finding]:
    interfaces = ", ".join(f"{name} {' '.join(a)}" for name, a in network.list_interfaces().items())
    findings = [Finding("interfaces", interfaces or "none", "" if interfaces else "connect to a network")]
    if owner := network.port_owner(port):
        findings.append(
            Finding(
                "port", f"{port} is in use by {owner}", "another run may be going on; or use --master-port"
            )
        )
    if master_addr:
        try:
            findings.append(
                Finding("coordinator", f"{master_addr} by {network.choose_address(master_addr, port)}")
            )
        except DaisyError as error:
            findings.append(Finding("coordinator", master_addr, str(error)))
    if sys.platform == "win32":
        findings.append(Finding("windows", "gloo works; int8 speed depends on the CPU"))
    return findings
