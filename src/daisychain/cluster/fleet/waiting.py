"""Waiting for calls that may never return."""

import threading
from collections.abc import Callable
from typing import TypeVar

from daisychain.base import limits
from daisychain.base.clock import Clock

T = TypeVar("T")


def bounded(
    call: Callable[[], T],
    clock: Clock,
    limit_s: float,
    look_up: Callable[[], None],
    late: Callable[[], Exception],
) -> T:
    """The result of `call`, run in a thread of its own, which is left behind where it never ends.

    `look_up` is called in every slice of the wait and may raise. At the limit `late` says what to raise.
    """
    results: list[T] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # handed to the caller
            failures.append(error)
        done.set()

    threading.Thread(target=run, name="daisychain-bounded", daemon=True).start()
    await_event(done, clock, limit_s, look_up, late)
    if failures:
        raise failures[0]
    return results[0]


def await_event(
    done: threading.Event,
    clock: Clock,
    limit_s: float,
    look_up: Callable[[], None],
    late: Callable[[], Exception],
) -> None:
    """Wait in slices; see `bounded`."""
    deadline_s = clock.now_s() + limit_s
    while not done.wait(limits.WAIT_SLICE_S):
        look_up()
        if clock.now_s() >= deadline_s:
            raise late()
