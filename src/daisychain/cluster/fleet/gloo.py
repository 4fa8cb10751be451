"""A fixed set of nodes over torch.distributed's gloo.

gloo notices a dead neighbour at once, a dead stranger only at its own time limit and a frozen node not at all,
and a call that waits for one cannot be freed. So every wait here is a wait for a callback, in short slices, with
an eye on the heartbeats; and a group in which an operation may be stuck is never destroyed, because its
destructor would wait for it. After a FleetError end the process with `end_process`.
"""

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn, cast

import torch
from torch.distributed import ProcessGroupGloo
from torch.distributed.distributed_c10d import PrefixStore, ReduceOp, Work

from daisychain.base import limits
from daisychain.base.clock import Clock, SystemClock
from daisychain.base.errors import FleetError, PeerLostError
from daisychain.cluster.fleet import FINISHED
from daisychain.cluster.fleet.liveness import Verdict
from daisychain.cluster.fleet.meeting import Join, Meeting
from daisychain.cluster.fleet.members import refusing
from daisychain.cluster.fleet.settings import NodeSettings
from daisychain.cluster.fleet.waiting import await_event, bounded
from daisychain.cluster.fleet.watch import FleetLimits, Watch

LENGTH_BYTES = 8


class GlooSum:
    """An operation under way."""

    def __init__(self, fleet: "GlooFleet", work: Work, number: int) -> None:
        self._fleet = fleet
        self._work = work
        self._number = number
        self._done = done = threading.Event()
        work.get_future().add_done_callback(lambda _: done.set())

    def wait(self) -> None:
        """Return when the operation is complete. Raises FleetError or PeerLostError within the limit."""
        self._fleet.await_operation(self._done, self._number)
        try:
            self._work.wait()
        except RuntimeError as error:
            self._fleet.explain(error)


class GlooFleet:
    """See `Fleet`. One to a process: its threads end with the process."""

    def __init__(self, rank: int, meeting: Meeting, bounds: FleetLimits, clock: Clock) -> None:
        self.rank = rank
        self.roster = tuple(sorted(meeting.members))
        self.members = meeting.members
        self._listener = meeting.listener
        self._store = meeting.store  # on rank 0 it is the coordinator itself
        self._bounds = bounds
        self._clock = clock
        self._failure: FleetError | None = None
        self._closed = False
        self._watch = Watch(meeting.beats, rank, self.roster, bounds, clock)
        self._watch.start()
        try:
            self._group = self._bounded_group()
        except BaseException as error:
            self.close(f"it could not connect: {error}")
            raise
        # See above: without this reference a destructor could wait for a frozen node.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._group))

    @classmethod
    def connect(
        cls,
        settings: NodeSettings,
        bounds: FleetLimits | None = None,
        clock: Clock | None = None,
        stop: threading.Event | None = None,
    ) -> "GlooFleet":
        """Join the cluster. Raises ConfigError, FleetError or PeerLostError, naming who is missing or blocked, and
        StoppedError soon after `stop` is set."""
        bounds, clock = bounds or FleetLimits(), clock or SystemClock()
        join = Join(settings, bounds, clock, stop or threading.Event())
        # The join keeps its own limits; this one, beyond them all, is for a store that freezes.
        limit_s = bounds.join_s + 3 * bounds.dial_s
        meeting = bounded(
            join.meet, clock, limit_s, join.end_if_stuck, lambda: FleetError(join.frozen_message())
        )
        return cls(settings.rank, meeting, bounds, clock)

    def start_sum(self, buffer: torch.Tensor) -> GlooSum:
        return self._start(lambda: self._group.allreduce(buffer, ReduceOp.SUM))

    def gather(self, record: bytes) -> list[bytes]:
        if len(record) > limits.MAX_RECORD_BYTES:
            raise FleetError(
                f"a record of {len(record):,} bytes is too long to gather: the limit is {limits.MAX_RECORD_BYTES:,}"
            )
        head = len(record).to_bytes(LENGTH_BYTES, "little") + record
        heads = self._gather_fixed(head, limits.RECORD_BYTES)
        lengths = [int.from_bytes(text[:LENGTH_BYTES], "little") for text in heads]
        longest = max(lengths)
        if longest > limits.MAX_RECORD_BYTES:
            raise FleetError(
                f"node {lengths.index(longest)} announces a record of {longest:,} bytes: not a peer"
            )
        texts = [text[LENGTH_BYTES:] for text in heads]
        if longest > limits.RECORD_BYTES - LENGTH_BYTES:
            texts = self._gather_fixed(record, longest)
        return [text[:length] for text, length in zip(texts, lengths, strict=True)]

    def broadcast(self, buffer: torch.Tensor, source: int) -> None:
        self._start(lambda: self._group.broadcast(buffer, source)).wait()

    def close(self, reason: str = FINISHED) -> None:
        if self._closed:
            return
        self._closed = True
        self._watch.say_word(reason)
        coordinator_lost = isinstance(self._failure, PeerLostError) and 0 in self._failure.nodes
        if not coordinator_lost:  # it passes the word on
            self._watch.await_round(self._bounds.leave_s)
        if self.rank == 0:
            self._await_goodbyes()
        self._watch.stop()
        self._listener.close()

    def await_operation(self, done: threading.Event, number: int) -> None:
        if self._failure is not None:
            raise self._failure
        await_event(
            done, self._clock, self._bounds.operation_s, self._raise_if_lost, lambda: self._late(number)
        )

    def explain(self, error: RuntimeError) -> NoReturn:
        """gloo reports a broken connection: find out whose end it was, for a short, bounded time."""
        if self._failure is not None:
            raise self._failure
        deadline_s = self._clock.now_s() + self._bounds.lost_after_s + self._bounds.dial_s
        while self._clock.now_s() < deadline_s:
            self._dial_suspects()
            self._raise_if_lost()
            self._clock.sleep(limits.WAIT_SLICE_S)
        verdict = self._watch.verdict(at_last=True)
        if verdict is not None:
            self._raise_lost(verdict)
        first_line = str(error).splitlines()[0]
        self._fail(
            FleetError(f"a connection of node {self.rank} broke while every node still answers: {first_line}")
        )

    def _start(self, operation: Callable[[], Work]) -> GlooSum:
        if self._failure is not None:
            raise self._failure
        number = self._watch.begin_operation()
        try:
            work = operation()
        except RuntimeError as error:
            self.explain(error)
        return GlooSum(self, work, number)

    def _gather_fixed(self, record: bytes, length: int) -> list[bytes]:
        """Everybody's record, padded or cut to `length` bytes."""
        own = torch.zeros(length, dtype=torch.uint8)
        body = bytearray(record[:length])
        if body:
            own[: len(body)] = torch.frombuffer(body, dtype=torch.uint8)
        everybody = [torch.empty_like(own) for _ in self.roster]
        self._start(lambda: self._group.allgather([everybody], [own])).wait()
        return [row.numpy().tobytes() for row in everybody]

    def _bounded_group(self) -> Any:
        own = self.members[self.rank]

        def build() -> Any:
            # `_Options` is the one way to give the group an address; torch is pinned.
            gloo = cast(Any, ProcessGroupGloo)
            options = gloo._Options()
            options._devices = [gloo.create_device(hostname=own.address)]
            options._timeout = timedelta(seconds=self._bounds.operation_s + 60)
            return gloo(PrefixStore("gloo", self._store), self.rank, len(self.roster), options)

        def late() -> FleetError:
            return FleetError(
                f"node {self.rank} could not connect to all others within {self._bounds.join_s:g} s"
            )

        try:
            return bounded(build, self._clock, self._bounds.join_s, self._raise_if_lost, late)
        except RuntimeError as error:
            self.explain(error)

    def _dial_suspects(self) -> None:
        """Find nodes whose process is gone. One that left for a reason has said it before it closed its port, so the
        refusals count only once a later round has brought the words.
        """
        suspects = [self.members[rank] for rank in self._watch.working()]
        refused = refusing(suspects, self._bounds.dial_s)
        if self._watch.await_round(limits.WORD_GRACE_S + self._bounds.heartbeat_s):
            self._watch.refused(refused)

    def _raise_if_lost(self) -> None:
        verdict = self._watch.verdict()
        if verdict is not None:
            self._raise_lost(verdict)

    def _raise_lost(self, verdict: Verdict) -> NoReturn:
        named = [
            f"{self.members[rank]} is lost: {reason}" for rank, reason in sorted(verdict.reasons.items())
        ]
        names = ", ".join(f"node {rank}" for rank in sorted(verdict.reasons))
        self._watch.say_word(f"it lost {names}", verdict.reasons)
        self._fail(PeerLostError("; ".join(named), tuple(sorted(verdict.reasons))))

    def _late(self, number: int) -> FleetError:
        behind = self._watch.behind(number)
        waited = (
            f"operation {number} did not end within {self._bounds.operation_s:g} s, though every node lives"
        )
        if not behind:
            return FleetError(waited)
        laggards = ", ".join(f"{self.members[rank]} is {count} behind" for rank, count in behind.items())
        return FleetError(f"{waited}: {laggards}")

    def _fail(self, error: FleetError) -> NoReturn:
        self._failure = error
        raise error

    def _await_goodbyes(self) -> None:
        """The coordinator leaves last, so that the others can read why the run ended."""
        deadline_s = self._clock.now_s() + self._bounds.leave_s
        while self._watch.working() and self._clock.now_s() < deadline_s:
            self._clock.sleep(limits.WAIT_SLICE_S)


def end_process(exit_code: int) -> NoReturn:
    """End at once, without the destructors of threads that wait for a lost node."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)
