"""Who is in which room: a pure state machine, `(event, now) → what to send`.

Sockets are numbers, time is passed in, and nothing is sent from here: every event returns the messages and
closures that follow from it, in order. A socket that is closed is forgotten at once, whatever it still says.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from daisychain.base import limits
from daisychain.base.throttle import Bucket, Throttle
from daisychain.room.groups import Client
from daisychain.room.messages import (
    Answer,
    BadMessageError,
    Hello,
    Message,
    Pong,
    Rename,
    Signal,
    device_id,
    parse,
    pass_digest,
    room_code,
)
from daisychain.room.rooms import (
    CLOSED_REFUSED,
    CLOSED_REPLACED,
    CLOSED_SILENT,
    Actions,
    Close,
    Guest,
    Room,
    Send,
)

ALONE = (
    "Your address is hidden by a proxy that the server was not told to trust, "
    "so it cannot find your neighbours: use a room link, or start the server with --trusted-proxy."
)
HOST_AWAY = (
    "The host has left, and nobody is there who could let you in. Keep this page open: whoever comes back "
    f"is asked, and after {limits.ROOM_EMPTY_KEPT_S:.0f} s without anybody the room ends."
)
ROOM_OVER = "The host has left and nobody can let you in: ask for a new link, or make a room of your own."


class Lobby:
    """All rooms of a server. `ice` is what every page is told about STUN and TURN."""

    def __init__(self, members: int = limits.ROOM_MEMBERS, ice: Sequence[Mapping[str, Any]] = ()) -> None:
        self._members = members
        self._ice = list(ice)
        self._guests: dict[int, Guest] = {}
        self._sockets_of: dict[str, int] = {}  # open sockets by client key
        self._rooms: dict[str, Room] = {}
        self._groups: dict[str, Room] = {}
        self._guesses = Throttle(limits.ROOM_GUESSES_BURST, limits.ROOM_GUESSES_PER_MINUTE / 60)
        self._handlers: Mapping[type[Message], Callable[[Guest, Any, float], Actions]] = {
            Hello: self._hello,
            Signal: self._signal,
            Answer: self._answer,
            Rename: self._rename,
            Pong: lambda guest, message, now_s: [],
        }

    def sizes(self) -> dict[str, int]:
        """How much is held, for whoever watches for growth."""
        rooms = [*self._rooms.values(), *self._groups.values()]
        return {
            "sockets": len(self._guests),
            "addresses": len(self._sockets_of),
            "rooms": len(rooms),
            "members": sum(len(room.members) for room in rooms),
            "knocking": sum(len(room.knocking) for room in rooms),
            "throttled": len(self._guesses),
        }

    # Events

    def connect(self, socket: int, client: Client, now_s: float) -> Actions:
        """A socket was opened."""
        pace = Bucket(limits.ROOM_MESSAGES_BURST, limits.ROOM_MESSAGES_PER_S, now_s)
        guest = Guest(socket, client, pace, opened_s=now_s, heard_s=now_s, pinged_s=now_s)
        self._guests[socket] = guest
        self._sockets_of[client.key] = self._sockets_of.get(client.key, 0) + 1
        if len(self._guests) > limits.ROOM_SOCKETS:
            return self._refuse(guest, "full", "The server is full: try again later.", now_s)
        if self._sockets_of[client.key] > limits.ROOM_SOCKETS_PER_ADDRESS:
            return self._refuse(guest, "full", "Too many pages of your address are open: close some.", now_s)
        return []

    def receive(self, socket: int, text: str | None, now_s: float) -> Actions:
        """A socket said something; `text` is None for a binary message."""
        guest = self._guests.get(socket)
        if guest is None:
            return []
        guest.heard_s = now_s
        if guest.pace.take(now_s):
            return self._refuse(guest, "too_fast", "Too many messages at once.", now_s)
        if text is not None and len(text.encode(errors="replace")) > limits.ROOM_MESSAGE_BYTES:
            return self._refuse(
                guest, "too_large", f"A message has at most {limits.ROOM_MESSAGE_BYTES} bytes.", now_s
            )
        try:
            if text is None:
                raise BadMessageError("a message is text")
            message = parse(text)
            if (guest.room is None) != isinstance(message, Hello):
                raise BadMessageError("hello comes first, and once")
        except BadMessageError as error:
            return self._refuse(guest, "bad_message", f"Not understood: {error}.", now_s)
        return self._handlers[type(message)](guest, message, now_s)

    def disconnect(self, socket: int, now_s: float) -> Actions:
        """A socket is gone."""
        guest = self._guests.get(socket)
        return self._drop(guest, now_s) if guest else []

    def tick(self, now_s: float) -> Actions:
        """Time has passed: ping, drop whoever is silent, end what is over. To be called every second or so."""
        actions: Actions = []
        for guest in list(self._guests.values()):
            if guest.socket not in self._guests:
                continue
            heard_s, limit_s = guest.heard_s, limits.ROOM_SILENT_LIMIT_S
            if guest.room is None:
                heard_s, limit_s = guest.opened_s, limits.ROOM_HELLO_LIMIT_S
            if now_s - heard_s > limit_s:
                actions += [*self._drop(guest, now_s), Close(guest.socket, CLOSED_SILENT)]
            elif now_s - guest.pinged_s >= limits.ROOM_PING_EVERY_S:
                guest.pinged_s = now_s
                actions.append(Send(guest.socket, {"type": "ping"}))
        for room in list(self._rooms.values()):
            if not room.members and now_s - room.empty_since_s > limits.ROOM_EMPTY_KEPT_S:
                actions += self._end(room, now_s)
        self._guesses.forget(now_s)
        return actions

    # Coming in

    def _hello(self, guest: Guest, hello: Hello, now_s: float) -> Actions:
        guest.id, guest.name = device_id(hello.session), hello.name
        guest.known_by = pass_digest(hello.pass_) if hello.pass_ else guest.id
        if hello.room is None:
            group = guest.client.group or f"alone {guest.socket}"
            return self._enter(guest, self._groups.setdefault(group, Room(None)), now_s)
        code = room_code(hello.room)
        room = self._rooms.get(code) if code else None
        if room and guest.known_by in room.approved:
            return self._enter(guest, room, now_s)
        # From here on everything counts as a guess until the host accepts, and a throttled address learns nothing.
        wait_s = self._guesses.take(guest.client.key, now_s)
        if wait_s:
            return self._refuse(guest, "throttled", f"Too many room codes tried: wait {wait_s:.0f} s.", now_s)
        if code is None:
            return self._refuse(
                guest, "bad_room", "This is no room code: open the whole link, or make a new room.", now_s
            )
        return self._knock(guest, room, now_s) if room else self._create(guest, code, now_s)

    def _create(self, guest: Guest, code: str, now_s: float) -> Actions:
        if len(self._rooms) >= limits.ROOM_ROOMS:
            return self._refuse(guest, "full", "The server has no more rooms: try again later.", now_s)
        room = self._rooms[code] = Room(code)
        self._approve(room, guest)
        return self._enter(guest, room, now_s)

    def _knock(self, guest: Guest, room: Room, now_s: float) -> Actions:
        replaced = room.knocking.get(guest.id)
        actions = self._replace(replaced, now_s) if replaced else []
        if len(room.members) >= self._members:
            return [*actions, *self._refuse_full(guest, now_s)]
        if len(room.knocking) >= limits.ROOM_KNOCKERS:
            return [*actions, *self._refuse(guest, "full", "Too many devices wait here already.", now_s)]
        guest.room = room
        room.knocking[guest.id] = guest
        return [*actions, Send(guest.socket, _waiting(room)), *self._to_host(room, _knocks(guest))]

    def _enter(self, guest: Guest, room: Room, now_s: float) -> Actions:
        actions: Actions = []
        old = room.members.get(guest.id)
        if old is not None:
            actions += self._replace(old, now_s)
        if len(room.members) >= self._members:
            return [*actions, *self._refuse_full(guest, now_s)]
        others = [{"id": other.id, "name": other.name} for other in room.members.values()]
        actions += self._to_members(room, {"type": "joined", "id": guest.id, "name": guest.name})
        guest.room = room
        room.members[guest.id] = guest
        if room.code and room.host is None:
            room.host = guest.id
            actions += self._to_knockers(room)
        actions.append(Send(guest.socket, self._welcome(guest, room, others)))
        if room.host == guest.id:
            actions += [Send(guest.socket, _knocks(knocker)) for knocker in room.knocking.values()]
        elif room.host:
            actions.append(Send(guest.socket, {"type": "host", "id": room.host}))
        return actions

    def _welcome(self, guest: Guest, room: Room, others: list[dict[str, str]]) -> dict[str, Any]:
        alone = {"notice": ALONE} if room.code is None and guest.client.group is None else {}
        return {
            "type": "welcome",
            "id": guest.id,
            "host": room.host == guest.id,
            "room": room.code,
            "members": others,
            "limits": {"members": self._members, "ping_s": limits.ROOM_PING_EVERY_S},
            "ice": self._ice,
            **alone,
        }

    # What members say

    def _signal(self, guest: Guest, signal: Signal, now_s: float) -> Actions:
        room = _room(guest)
        if guest.is_knocking:
            return self._refuse(guest, "bad_message", "Wait until the host lets you in.", now_s)
        other = room.members.get(signal.to)
        if other is None or other is guest:  # it has just left
            return []
        return [Send(other.socket, {"type": "signal", "from": guest.id, "data": signal.data})]

    def _answer(self, guest: Guest, answer: Answer, now_s: float) -> Actions:
        room = _room(guest)
        knocker = room.knocking.get(answer.id)
        if knocker is None or room.host != guest.id or guest.is_knocking:  # it, or the role, has gone
            return []
        if not answer.accepted:
            return self._deny(knocker, "The host did not let you in.", now_s)
        if len(room.members) >= self._members:
            return self._deny(knocker, f"The room is full: it holds {self._members} devices.", now_s)
        del room.knocking[knocker.id]
        self._guesses.give_back(knocker.client.key)
        self._approve(room, knocker)
        return self._enter(knocker, room, now_s)

    def _rename(self, guest: Guest, rename: Rename, now_s: float) -> Actions:
        room = _room(guest)
        guest.name = rename.name
        if guest.is_knocking:
            return self._to_host(room, _knocks(guest))
        return self._to_members(room, {"type": "renamed", "id": guest.id, "name": guest.name}, guest)

    def _approve(self, room: Room, guest: Guest) -> None:
        room.approved[guest.known_by] = None
        here = {guest.known_by, *(member.known_by for member in room.members.values())}
        absent = [known for known in room.approved if known not in here]
        for known in absent[: max(0, len(room.approved) - limits.ROOM_APPROVED)]:
            del room.approved[known]

    # Going away

    def _drop(self, guest: Guest, now_s: float, replaced: bool = False) -> Actions:
        """Forget a socket, and tell whoever must know. A device that is replaced keeps its role."""
        del self._guests[guest.socket]
        key = guest.client.key
        self._sockets_of[key] -= 1
        if not self._sockets_of[key]:
            del self._sockets_of[key]
        room, was_knocking = guest.room, guest.is_knocking
        guest.room = None
        if room is None:
            return []
        if was_knocking:
            del room.knocking[guest.id]
            return self._to_host(room, {"type": "gone", "id": guest.id})
        del room.members[guest.id]
        actions = self._to_members(room, {"type": "left", "id": guest.id})
        if replaced:
            return actions
        if not room.members:
            room.empty_since_s = now_s
            if room.code is None:
                self._groups = {key: group for key, group in self._groups.items() if group is not room}
        return [*actions, *self._pass_on(room)] if room.host == guest.id else actions

    def _pass_on(self, room: Room) -> Actions:
        """The device that has been there longest is host now."""
        room.host = next(iter(room.members), None)
        if room.host is None:
            return self._to_knockers(room)
        knocks = [Send(room.members[room.host].socket, _knocks(guest)) for guest in room.knocking.values()]
        return [*self._to_members(room, {"type": "host", "id": room.host}), *knocks]

    def _replace(self, old: Guest, now_s: float) -> Actions:
        """The same page is here on a new socket; the old one goes."""
        message = "This page was opened again elsewhere: it goes on there."
        return [
            *self._drop(old, now_s, replaced=True),
            Send(old.socket, {"type": "error", "code": "replaced", "message": message}),
            Close(old.socket, CLOSED_REPLACED),
        ]

    def _refuse(self, guest: Guest, code: str, message: str, now_s: float) -> Actions:
        error = {"type": "error", "code": code, "message": message}
        return [*self._drop(guest, now_s), Send(guest.socket, error), Close(guest.socket, CLOSED_REFUSED)]

    def _refuse_full(self, guest: Guest, now_s: float) -> Actions:
        message = f"This group is full: it holds {self._members} devices. Make a room of your own."
        return self._refuse(guest, "full", message, now_s)

    def _deny(self, guest: Guest, reason: str, now_s: float) -> Actions:
        denied = {"type": "denied", "reason": reason}
        return [*self._drop(guest, now_s), Send(guest.socket, denied), Close(guest.socket, CLOSED_REFUSED)]

    def _end(self, room: Room, now_s: float) -> Actions:
        """An empty room is over. Whoever still knocks would otherwise become the host of others' room."""
        actions: Actions = []
        for guest in list(room.knocking.values()):
            actions += self._deny(guest, ROOM_OVER, now_s)
        self._rooms = {code: kept for code, kept in self._rooms.items() if kept is not room}
        return actions

    # To whom

    def _to_members(self, room: Room, message: Mapping[str, Any], but: Guest | None = None) -> Actions:
        return [Send(guest.socket, message) for guest in room.members.values() if guest is not but]

    def _to_host(self, room: Room, message: Mapping[str, Any]) -> Actions:
        host = room.members.get(room.host or "")
        return [Send(host.socket, message)] if host else []

    def _to_knockers(self, room: Room) -> Actions:
        """Whether anybody is there who was asked has changed."""
        return [Send(guest.socket, _waiting(room)) for guest in room.knocking.values()]


def _knocks(guest: Guest) -> dict[str, str]:
    return {"type": "knock", "id": guest.id, "name": guest.name}


def _waiting(room: Room) -> dict[str, str]:
    return {"type": "waiting"} if room.host else {"type": "waiting", "reason": HOST_AWAY}


def _room(guest: Guest) -> Room:
    assert guest.room is not None, "only a hello is read before a device has a room"
    return guest.room
