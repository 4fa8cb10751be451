"""Memory that is free within this process, given back to the system."""

import ctypes
import sys


def give_back_free_memory() -> None:
    """Let the C library return what it keeps of freed memory; what it keeps counts as this process's until then.

    Does nothing where the library cannot: it then returns memory by rules of its own.
    """
    if sys.platform == "linux":
        try:
            ctypes.CDLL(None).malloc_trim(0)
        except (OSError, AttributeError):  # another C library than glibc
            return
