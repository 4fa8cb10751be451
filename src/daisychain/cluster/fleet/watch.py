"""Heartbeats: a thread that publishes this node's beat and reads the others', through its own connection.

The thread alone touches the store after the join, because a call to a frozen coordinator does not return. All
others ask `Liveness`, which never waits.
"""

import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch.distributed.distributed_c10d import Store

from daisychain.base import limits
from daisychain.base.clock import Clock
from daisychain.cluster.fleet.liveness import AwakeClock, Beat, Liveness, Verdict

STOP_LIMIT_S = 0.3


@dataclass(frozen=True)
class FleetLimits:
    """Bounds on every wait of a fleet; the defaults are those of `base.limits`."""

    join_s: float = limits.JOIN_LIMIT_S
    operation_s: float = limits.OPERATION_LIMIT_S
    heartbeat_s: float = limits.HEARTBEAT_EVERY_S
    lost_after_s: float = limits.PEER_LOST_AFTER_S
    dial_s: float = limits.DIAL_LIMIT_S
    leave_s: float = limits.LEAVE_LIMIT_S


class Watch:
    """This node's heartbeat, and its view of the others."""

    def __init__(
        self, store: Store, rank: int, roster: Iterable[int], bounds: FleetLimits, clock: Clock
    ) -> None:
        self._store = store
        self._rank = rank
        self._roster = tuple(roster)
        self._bounds = bounds
        self._awake = AwakeClock(clock, longest_tick_s=2 * max(bounds.heartbeat_s, limits.WAIT_SLICE_S))
        self._liveness = Liveness(rank, self._roster, bounds.lost_after_s, self._awake.now_s())
        self._lock = threading.Condition()
        self._operations = 0
        self._word = ""
        self._lost: Mapping[int, str] = {}
        self._rounds = 0  # whole rounds of publishing and reading
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="daisychain-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def begin_operation(self) -> int:
        """Count an operation; returns its number, from 1."""
        with self._lock:
            self._operations += 1
            return self._operations

    def verdict(self, at_last: bool = False) -> Verdict | None:
        now_s = self._awake.now_s()
        with self._lock:
            return self._liveness.verdict(now_s, at_last)

    def working(self) -> list[int]:
        now_s = self._awake.now_s()
        with self._lock:
            return self._liveness.working(now_s)

    def behind(self, operations: int) -> dict[int, int]:
        with self._lock:
            return self._liveness.behind(operations)

    def refused(self, peers: Iterable[int]) -> None:
        with self._lock:
            self._liveness.refused(peers)

    def say_word(self, word: str, lost: Mapping[int, str] | None = None) -> None:
        """Tell the others at once why this node ends. The first word stands."""
        with self._lock:
            if not self._word:
                self._word, self._lost = word, lost or {}
        self._wake.set()

    def await_round(self, limit_s: float) -> bool:
        """Wait for a round that begins after this call; False where the store does not answer in time."""
        wanted = self._rounds + 2  # the one under way may have begun before
        for _ in range(math.ceil(limit_s / limits.WAIT_SLICE_S)):
            self._wake.set()
            with self._lock:
                if self._lock.wait_for(lambda: self._rounds >= wanted, limits.WAIT_SLICE_S):
                    return True
            if self._ended.is_set():
                break
        return False

    def stop(self) -> None:
        """End the thread; one that is stuck in a call to a frozen coordinator is left behind."""
        self._ended.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=STOP_LIMIT_S)

    def _run(self) -> None:
        keys = [_key(rank) for rank in self._roster]
        count = 0
        while not self._ended.is_set():
            count += 1
            with self._lock:
                beat = Beat(count, self._operations, self._word, self._lost)
            try:
                self._store.set(_key(self._rank), beat.encode())
                beats = [Beat.decode(text) for text in self._store.multi_get(keys)]
            except (RuntimeError, ValueError):
                with self._lock:
                    self._liveness.host_gone()
                self._ended.set()
                return
            now_s = self._awake.now_s()
            with self._lock:
                self._liveness.hear(dict(zip(self._roster, beats, strict=True)), now_s)
                self._rounds += 1
                self._lock.notify_all()
            self._wake.wait(self._bounds.heartbeat_s)
            self._wake.clear()


def _key(rank: int) -> str:
    return f"beat/{rank}"


def publish_first_beat(store: Store, rank: int) -> None:
    """Before any node reads: reading a beat that was never written would wait."""
    store.set(_key(rank), Beat(0).encode())
