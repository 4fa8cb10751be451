"""Bounded waits for calls that may never return."""

import threading

import pytest

from daisychain.base.clock import SystemClock
from daisychain.base.errors import FleetError
from daisychain.cluster.fleet.waiting import bounded


def nothing() -> None:
    pass


def late() -> FleetError:
    return FleetError("too late")


def test_results_and_errors_come_through() -> None:
    assert bounded(lambda: 7, SystemClock(), 5.0, nothing, late) == 7
    with pytest.raises(ZeroDivisionError):
        bounded(lambda: 1 // 0, SystemClock(), 5.0, nothing, late)


def test_a_call_that_never_returns_is_left_behind() -> None:
    forever = threading.Event()
    with pytest.raises(FleetError, match="too late"):
        bounded(forever.wait, SystemClock(), 0.1, nothing, late)
    looks: list[int] = []

    def look_up() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise FleetError("seen while waiting")

    with pytest.raises(FleetError, match="seen while waiting"):
        bounded(forever.wait, SystemClock(), 60.0, look_up, late)
    forever.set()
