"""The pages run at a lower priority than runs do, and yet start runs at the normal one.

On Linux a priority belongs to a thread and a new process has that of the thread that started it. So one thread keeps
the normal priority, and starts whatever must have it. On other systems nothing is lowered.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from daisychain.base import limits

Answer = TypeVar("Answer")
_normal: ThreadPoolExecutor | None = None


def lower() -> None:
    """From here on this thread, and every thread that it starts, gives way to runs."""
    global _normal  # noqa: PLW0603  priorities belong to the process
    if sys.platform != "linux" or _normal is not None:
        return
    _normal = ThreadPoolExecutor(1, thread_name_prefix="normal-priority")
    _normal.submit(lambda: None).result()  # its thread exists before the priority falls
    os.nice(limits.PANEL_NICENESS)


def at_normal_priority(action: Callable[[], Answer]) -> Answer:
    """What `action` answers; a process that it starts has the priority that this program was started with."""
    return action() if _normal is None else _normal.submit(action).result()
