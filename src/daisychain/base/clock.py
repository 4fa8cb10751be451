"""Time, passed in, so that tests and the simulator can own it."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_s(self) -> float:
        """Seconds on a clock that never goes back."""

    def sleep(self, duration_s: float) -> None: ...


class SystemClock:
    def now_s(self) -> float:
        return time.perf_counter()

    def sleep(self, duration_s: float) -> None:
        time.sleep(duration_s)
