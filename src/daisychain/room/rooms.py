"""What a lobby holds, and what it answers with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from daisychain.base.throttle import Bucket
from daisychain.room.groups import Client

CLOSED_REFUSED = 4_000  # an error or a denial was sent before
CLOSED_REPLACED = 4_001  # the same page came again on another socket
CLOSED_SILENT = 4_002  # it did not answer in time


@dataclass(frozen=True)
class Send:
    socket: int
    message: Mapping[str, Any]


@dataclass(frozen=True)
class Close:
    socket: int
    code: int


Actions = list[Send | Close]


@dataclass
class Guest:
    """One open socket, and the device behind it."""

    socket: int
    client: Client
    pace: Bucket
    opened_s: float
    heard_s: float
    pinged_s: float
    id: str = ""
    known_by: str = ""  # what a room remembers of it: the digest of its pass; its id without one
    name: str = ""
    room: "Room | None" = None

    @property
    def is_knocking(self) -> bool:
        """Whether it waits for the host's answer."""
        return self.room is not None and self.room.knocking.get(self.id) is self


@dataclass
class Room:
    """A private room, or, where `code` is None, the devices of one group."""

    code: str | None
    members: dict[str, Guest] = field(default_factory=dict)  # by id, the longest present first
    knocking: dict[str, Guest] = field(default_factory=dict)
    approved: dict[str, None] = field(default_factory=dict)  # as `Guest.known_by`, the longest known first
    host: str | None = None
    empty_since_s: float = 0.0
