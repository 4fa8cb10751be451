"""The child's end of the local launcher: its standard input says when to stop, and ends when the launcher does.

A pipe works the same on every system, does not reach a child twice as a terminal's Ctrl-C would, and closes
whatever kills the launcher.
"""

import _thread
import os
import signal
import threading
import time
from collections.abc import Mapping

from daisychain.base import limits

LAUNCHED = "DAISY_LAUNCHED"  # set by the launcher for its children
STOP = b"stop\n"


def listen_to_launcher(env: Mapping[str, str] = os.environ, grace_s: float = limits.END_GRACE_S) -> None:
    """Call once, in a process that may be a launcher's child; does nothing elsewhere.

    A stop word or the launcher's end becomes this process's SIGINT. An orphan that has not ended `grace_s` later
    is ended.
    """
    if env.get(LAUNCHED) == "1":
        threading.Thread(target=_listen, args=(grace_s,), name="daisychain-launched", daemon=True).start()


def _listen(grace_s: float) -> None:
    # os.read and not sys.stdin, whose lock a reading thread would hold at the interpreter's end.
    while os.read(0, len(STOP)):
        _thread.interrupt_main(signal.SIGINT)
    _thread.interrupt_main(signal.SIGINT)
    time.sleep(grace_s)
    os._exit(1)
