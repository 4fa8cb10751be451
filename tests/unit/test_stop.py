"""Ctrl-C: once for a clean end, twice for an end at once, also while the main thread waits in a system call."""

import _thread
import os
import signal
import subprocess
import sys

import pytest

from daisychain.base.errors import INTERRUPTED
from daisychain.cluster.stop import stop_on_signal

WAITER = """
import sys
from daisychain.cluster.stop import stop_on_signal
with stop_on_signal() as stop:
    print("ready", flush=True)
    if sys.argv[1] == "clean":
        stop.wait(30)
        print("asked", flush=True)
    else:
        stop.wait(30)
        print("asked", flush=True)
        import ctypes
        ctypes.CDLL(None).sleep(30)  # as a call that never comes back
"""


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX here")
@pytest.mark.parametrize("mode", ["clean", "stuck"])
def test_the_first_signal_asks_and_the_second_ends(mode):
    process = subprocess.Popen([sys.executable, "-c", WAITER, mode], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "asked\n"
        if mode == "stuck":
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == (0 if mode == "clean" else INTERRUPTED)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGINT)
    with stop_on_signal() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(5)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_word_from_the_local_launcher_asks_too():
    """It comes as an interrupt that a thread simulates, not as a signal from the system."""
    with stop_on_signal() as stop:
        _thread.interrupt_main(signal.SIGINT)
        assert stop.wait(5)
