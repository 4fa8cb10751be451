"""Running code of the user's own."""

import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import daisychain
from daisychain.base.errors import DaisyError, TaskError

T = TypeVar("T")
NOT_THE_USERS = ("<", sysconfig.get_path("stdlib"), str(Path(daisychain.__file__).parent))


def attempt(action: Callable[[], T], what: str) -> T:
    """Run code of the user's own. Whatever it raises becomes a TaskError on one line."""
    try:
        return action()
    except DaisyError:
        raise
    except (Exception, SystemExit) as error:
        raise TaskError(f"{what}: {_in_one_line(error)}") from error


def _in_one_line(error: BaseException) -> str:
    """`ValueError: what it says (file.py:12)`: the innermost line of the user's own."""
    lines = [
        f" ({Path(frame.filename).name}:{frame.lineno})"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(NOT_THE_USERS) and "site-packages" not in frame.filename
    ]
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}{lines[-1] if lines else ''}"
