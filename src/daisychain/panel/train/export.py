"""A run's model for PyTorch, made by a child process within a limit; a page never holds a model in memory."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

from daisychain.base import limits

EXPORTER = (sys.executable, "-m", "daisychain.cli.main", "export")


async def export_pt(folder: Path) -> str:
    """Write `model.pt` beside the model of the run in `folder`. Why that failed, in words; empty if it did not."""
    source, target = folder / "model.safetensors", folder / "model.pt"
    child = await asyncio.create_subprocess_exec(
        *EXPORTER,
        "--",
        str(source.resolve()),
        str(target.resolve()),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, said = await asyncio.wait_for(child.communicate(), limits.EXPORT_LIMIT_S)
    except asyncio.TimeoutError:
        return f"the export took longer than {limits.EXPORT_LIMIT_S:.0f} s and was ended."
    finally:
        with contextlib.suppress(ProcessLookupError):
            if child.returncode is None:
                child.kill()
        await child.wait()
    lines = said.decode(errors="replace").strip().splitlines()
    return "" if child.returncode == 0 else (lines[-1] if lines else "the export failed without a word.")
