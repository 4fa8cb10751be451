"""How often a hub in trouble is asked again, and what is said about it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from daisychain.base import limits
from daisychain.base.clock import Clock


@dataclass
class Patience:
    """Waits that grow, within a limit on all of them together; progress begins anew.

    >>> while True:
    ...     try: work(); break
    ...     except HubTrouble as trouble:
    ...         if (wait_s := patience.next_wait_s(trouble.retry_after_s)) is None: raise
    """

    clock: Clock
    most_s: float = field(default_factory=lambda: limits.HUB_PATIENCE_S)
    _since_s: float | None = None  # when the trouble began
    _tries: int = 0

    def progress(self) -> None:
        """Something was got."""
        self._since_s, self._tries = None, 0

    def next_wait_s(self, asked_s: float | None) -> float | None:
        """How long to wait before the next try; None when it is time to give up. `asked_s`: what the server wants."""
        now_s = self.clock.now_s()
        if self._since_s is None:
            self._since_s = now_s
        wait_s = min(limits.HUB_RETRY_FIRST_S * 2.0**self._tries, limits.HUB_RETRY_MOST_S)
        wait_s = max(wait_s, asked_s or 0.0)
        self._tries += 1
        return wait_s if now_s + wait_s - self._since_s <= self.most_s else None


def sleep_unless(stopped: Callable[[], bool], wait_s: float, clock: Clock) -> None:
    """Wait, in slices, and end early when `stopped` says so."""
    ends_s = clock.now_s() + wait_s
    while not stopped() and (left_s := ends_s - clock.now_s()) > 0:
        clock.sleep(min(left_s, limits.STREAM_SLICE_S))
