"""Ctrl-C: the first one asks for a clean end after the step, the second one ends the process at once."""

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from types import FrameType

from daisychain.base.errors import INTERRUPTED


@contextlib.contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """Inside, SIGINT and SIGTERM set the event; a second signal ends the process, even one that waits for a peer.

    Python runs handlers only between its own instructions, so a thread listens to the wake-up socket instead. Use
    in the main thread.
    """
    requested = threading.Event()
    read, write = socket.socketpair()
    write.setblocking(False)

    def listen() -> None:
        while data := read.recv(1):
            if data[0] in (signal.SIGINT, signal.SIGTERM):
                if requested.is_set():
                    os._exit(INTERRUPTED)
                requested.set()

    def nothing(number: int, frame: FrameType | None) -> None:
        """Keep the default handler from raising; the thread does the rest."""

    before = {number: signal.signal(number, nothing) for number in (signal.SIGINT, signal.SIGTERM)}
    wakeup = signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=listen, name="stop-on-signal", daemon=True)
    thread.start()
    try:
        yield requested
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        write.close()
        thread.join(timeout=1.0)
        read.close()
