"""How the nodes of a fixed cluster meet: through the coordinator's store, in four moves.

1. Rank 0 opens its port; the others dial it until it answers.
2. Each node claims its rank and says where it can be reached; each waits for all.
3. Each dials every other, so that a blocked direction is named here and not met as a hang later.
4. All read all reports and go on, or end with the same message.

A node that fails on the way leaves its reason in the store, and the others end with it.
"""

import json
import socket
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from daisychain.base import limits
from daisychain.base.clock import Clock
from daisychain.base.errors import DaisyError, FleetError, StoppedError
from daisychain.base.log import say
from daisychain.cluster.fleet import network, store
from daisychain.cluster.fleet.members import Member, describe_blocked, dial_all, dial_reason
from daisychain.cluster.fleet.settings import NodeSettings
from daisychain.cluster.fleet.store import TCPStore
from daisychain.cluster.fleet.watch import FleetLimits, publish_first_beat

FAILED_KEY = "join/failed"


@dataclass
class Meeting:
    """What the join leaves."""

    members: dict[int, Member]
    store: TCPStore
    beats: TCPStore  # a second connection, since a call that waits holds up its connection
    listener: socket.socket  # an open port that shows that this process lives


class Join:
    """The join of one node. `meet` blocks where the coordinator freezes: run it with `waiting.bounded`.

    When `stop` is set it ends with StoppedError.
    """

    def __init__(
        self, settings: NodeSettings, bounds: FleetLimits, clock: Clock, stop: threading.Event
    ) -> None:
        self._settings = settings
        self._stop = stop
        self._stuck_s: float | None = None
        self._bounds = bounds
        self._clock = clock
        self._deadline_s = clock.now_s() + bounds.join_s
        self._said_s = clock.now_s()
        self._arrived: dict[int, Member] = {}
        self._uninvited = False

    def meet(self) -> Meeting:
        """All four moves. Raises ConfigError or FleetError, naming the node."""
        rank = self._settings.rank
        try:
            if rank == 0:
                meeting_place, reached = store.serve(self._open_port()), ""
            else:
                reached = self._dial_coordinator()
                meeting_place = store.connect(reached, self._settings.master_port)
            try:
                return self._meet_at(meeting_place, reached)
            except DaisyError as error:
                self._tell(meeting_place, error)
                raise
        except RuntimeError as error:
            raise FleetError(
                f"node {rank} lost the coordinator at {self._where()} during the join: it ended or gave up "
                f"({str(error).splitlines()[0]})"
            ) from None

    def end_if_stuck(self) -> None:
        """From the waiting thread: raises StoppedError where `meet` has not heeded a stop request for some time."""
        if self._stop.is_set():
            now_s = self._clock.now_s()
            self._stuck_s = self._stuck_s or now_s + 2 * limits.WORD_GRACE_S
            if now_s >= self._stuck_s:
                self._end_if_stopped()

    def frozen_message(self) -> str:
        """For a `meet` that has not returned: a call to the store is stuck."""
        absent = f", with {_nodes(self._missing())} missing" if self._missing() else ""
        return f"the coordinator at {self._where()} stopped answering during the join{absent}"

    def _meet_at(self, meeting_place: TCPStore, reached: str) -> Meeting:
        settings = self._settings
        address = self._choose_address(meeting_place)
        listener = network.open_port(address, 0)
        try:
            port = listener.getsockname()[1]
            publish_first_beat(meeting_place, settings.rank)
            own = Member.here(settings.rank, settings.world_size, address, port, reached)
            self._claim(meeting_place, own)
            members = self._await_members(meeting_place, range(settings.world_size))
            self._check_both_ways(meeting_place, members)
            beats = store.connect(meeting_place.host, meeting_place.port)
        except BaseException:
            listener.close()
            raise
        return Meeting(members, meeting_place, beats, listener)

    def _open_port(self) -> socket.socket:
        settings = self._settings
        if settings.listen_fd is not None:
            return socket.socket(fileno=settings.listen_fd)
        # Its own address where it is written as one; every address of this machine otherwise.
        address = "127.0.0.1" if settings.master_address == "localhost" else settings.master_address
        own = [entry for addresses in network.list_interfaces().values() for entry in addresses]
        narrow = address in own or network.is_loopback(address)
        return network.open_port(address if narrow else "", settings.master_port)

    def _dial_coordinator(self) -> str:
        """The address at which the coordinator's port answers."""
        target = (self._settings.master_address, self._settings.master_port)
        while True:
            try:
                with socket.create_connection(target, timeout=self._bounds.dial_s) as connection:
                    return str(connection.getpeername()[0])
            except OSError as error:
                reason = dial_reason(error)
            if self._clock.now_s() >= self._deadline_s:
                raise FleetError(
                    f"node {self._settings.rank} could not reach the coordinator at {self._where()} within "
                    f"{self._bounds.join_s:g} s: {reason}. Is rank 0 running there?"
                )
            self._end_if_stopped()
            self._say_waiting(f"the coordinator at {self._where()}: {reason}")
            self._clock.sleep(limits.WAIT_SLICE_S)

    def _choose_address(self, meeting_place: TCPStore) -> str:
        settings = self._settings
        host, port = settings.master_address, settings.master_port
        choice = network.choose_address(host, port, interface=settings.interface, address=settings.address)
        if network.is_loopback(host):
            return choice.address
        explicit = settings.interface or settings.address
        if settings.rank == 0 and not explicit and network.is_loopback(choice.address):
            # To itself this machine's name means 127.0.1.1. The others know at which address they reached it.
            others = self._await_members(meeting_place, range(1, settings.world_size)).values()
            afar = [other.coordinator for other in others if not network.is_loopback(other.coordinator)]
            if afar:
                found = network.choose_address(host, port, address=afar[0])
                choice = replace(
                    found, reason=f"where others reach it, since {host} is {choice.address} here"
                )
        say(f"node {settings.rank} is reached at {choice}")
        return choice.address

    def _claim(self, meeting_place: TCPStore, own: Member) -> None:
        holder = Member.decode(meeting_place.compare_set(_member_key(own.rank), "", own.encode()))
        if holder != own:
            self._uninvited = True
            raise FleetError(
                f"RANK {own.rank} is claimed twice: by {holder.host}, pid {holder.pid}, and by {own.host}, "
                f"pid {own.pid}. Give every node a RANK of its own"
            )

    def _await_members(self, meeting_place: TCPStore, ranks: Iterable[int]) -> dict[int, Member]:
        ranks = list(ranks)
        for rank in ranks:
            member = Member.decode(self._await_value(meeting_place, _member_key(rank), rank))
            if member.world_size != self._settings.world_size:
                raise FleetError(
                    f"{member} was started with WORLD_SIZE={member.world_size}, node {self._settings.rank} "
                    f"with WORLD_SIZE={self._settings.world_size}: it must be the same everywhere"
                )
            self._arrived[rank] = member
        return {rank: self._arrived[rank] for rank in ranks}

    def _check_both_ways(self, meeting_place: TCPStore, members: Mapping[int, Member]) -> None:
        rank = self._settings.rank
        failures = dial_all([members[peer] for peer in members if peer != rank], self._bounds.dial_s)
        meeting_place.set(_dialled_key(rank), json.dumps(failures))
        self._deadline_s = max(self._deadline_s, self._clock.now_s() + self._bounds.dial_s)
        reports = {
            peer: json.loads(self._await_value(meeting_place, _dialled_key(peer), peer)) for peer in members
        }
        by_number = {
            peer: {int(target): str(reason) for target, reason in report.items()}
            for peer, report in reports.items()
        }
        if blocked := describe_blocked(members, by_number):
            raise FleetError(blocked)

    def _await_value(self, meeting_place: TCPStore, key: str, rank: int) -> bytes:
        """What node `rank` leaves under `key`."""
        while not meeting_place.check([key]):
            if meeting_place.check([FAILED_KEY]):
                raise FleetError(meeting_place.get(FAILED_KEY).decode())
            self._end_if_stopped()
            self._look_around(meeting_place)
            if self._clock.now_s() >= self._deadline_s:
                raise FleetError(self._late_message(rank))
            if missing := self._missing():
                self._say_waiting(_nodes(missing))
            self._clock.sleep(limits.WAIT_SLICE_S)
        return meeting_place.get(key)

    def _look_around(self, meeting_place: TCPStore) -> None:
        for rank in self._missing():
            if meeting_place.check([_member_key(rank)]):
                self._arrived[rank] = Member.decode(meeting_place.get(_member_key(rank)))

    def _late_message(self, awaited: int) -> str:
        settings = self._settings
        there = ", ".join(str(self._arrived[rank]) for rank in sorted(self._arrived)) or "nobody"
        if awaited in self._arrived:
            return f"{self._arrived[awaited]} joined and then stopped answering"
        return (
            f"the cluster did not meet within {self._bounds.join_s:g} s: {_nodes(self._missing())} missing; "
            f"arrived: {there}. Start the missing with MASTER_ADDR={settings.master_address} "
            f"MASTER_PORT={settings.master_port} WORLD_SIZE={settings.world_size} and their RANK"
        )

    def _missing(self) -> list[int]:
        return [rank for rank in range(self._settings.world_size) if rank not in self._arrived]

    def _tell(self, meeting_place: TCPStore, error: DaisyError) -> None:
        """Let the others end with the same words. An uninvited node has nothing to tell."""
        if self._uninvited:
            return
        meeting_place.set(FAILED_KEY, str(error))
        if self._settings.rank == 0:
            self._clock.sleep(limits.WORD_GRACE_S)  # the store ends with this process

    def _end_if_stopped(self) -> None:
        if self._stop.is_set():
            awaited = _nodes(self._missing()) or "the others"
            raise StoppedError(f"node {self._settings.rank} was stopped while it waited for {awaited}")

    def _say_waiting(self, whom: str) -> None:
        now_s = self._clock.now_s()
        if now_s - self._said_s >= limits.SAY_WAITING_EVERY_S:
            self._said_s = now_s
            say(f"node {self._settings.rank} waits for {whom}")

    def _where(self) -> str:
        return f"{self._settings.master_address}:{self._settings.master_port}"


def _member_key(rank: int) -> str:
    return f"member/{rank}"


def _dialled_key(rank: int) -> str:
    return f"dialled/{rank}"


def _nodes(ranks: Iterable[int]) -> str:
    return ", ".join(f"node {rank}" for rank in ranks)
