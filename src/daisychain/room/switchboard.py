"""WebSockets around the lobby: what comes in becomes an event, what the lobby answers is sent."""

import asyncio
import itertools
import json
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket, WebSocketDisconnect

from daisychain.base import limits
from daisychain.base.log import warn
from daisychain.room.groups import Client, Network, locate
from daisychain.room.lobby import Lobby
from daisychain.room.rooms import Actions, Close

FORWARDED = "x-forwarded-for"
PROXY_HEADERS = (FORWARDED, "forwarded", "x-real-ip", "via")
CLOSED_FOREIGN = 1_008  # before the handshake: the browser sees 403


class Line:
    """What waits to be sent on one socket: bounded, so that a device that does not read costs a known amount."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._waiting: asyncio.Queue[str | int] = asyncio.Queue()
        self._bytes = 0
        self.writer = asyncio.create_task(self._write())

    def say(self, text: str) -> None:
        """Send a message when its turn comes; a line that is too long is cut."""
        self._bytes += len(text)
        if self._bytes > limits.ROOM_OUTGOING_BYTES:
            self.writer.cancel()
        else:
            self._waiting.put_nowait(text)

    def hang_up(self, code: int) -> None:
        """Close the socket after what waits."""
        self._waiting.put_nowait(code)

    async def _write(self) -> None:
        while isinstance(item := await self._waiting.get(), str):
            await self._socket.send_text(item)
            self._bytes -= len(item)
        await self._socket.close(item)


class Switchboard:
    """All sockets of a server."""

    def __init__(
        self, lobby: Lobby, trusted: Sequence[Network], own: Sequence[Network], now_s: Callable[[], float]
    ) -> None:
        self.lobby = lobby
        self._trusted = trusted
        self._own = own
        self._now_s = now_s
        self._numbers = itertools.count(1)
        self._lines: dict[int, Line] = {}
        self._warned = False

    def client_of(self, connection: HTTPConnection) -> Client:
        """Where a request comes from, as far as that can be known."""
        peer = connection.client.host if connection.client else ""
        proxied = any(name in connection.headers for name in PROXY_HEADERS)
        forwarded = ",".join(connection.headers.getlist(FORWARDED))
        client = locate(peer, forwarded, proxied, self._trusted, self._own)
        if client.group is None and not self._warned:
            self._warned = True
            warn(
                f"requests come through a proxy at {peer} that hides their addresses, so their devices are not "
                f"grouped: if it is yours, start with --trusted-proxy {peer} and let it set X-Forwarded-For"
            )
        return client

    async def serve(self, socket: WebSocket) -> None:
        """One WebSocket, from its handshake to its end."""
        if not is_same_site(socket):
            await socket.close(CLOSED_FOREIGN)
            return
        await socket.accept()
        number = next(self._numbers)
        line = self._lines[number] = Line(socket)
        reader = asyncio.create_task(self._read(number, socket))
        try:
            self._do(self.lobby.connect(number, self.client_of(socket), self._now_s()))
            await asyncio.wait([reader, line.writer], return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._lines[number]
            self._do(self.lobby.disconnect(number, self._now_s()))
            reader.cancel()
            line.writer.cancel()
            ends = await asyncio.gather(reader, line.writer, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, WebSocketDisconnect):
                raise end

    async def _read(self, number: int, socket: WebSocket) -> None:
        while (event := await socket.receive())["type"] == "websocket.receive":
            self._do(self.lobby.receive(number, event.get("text"), self._now_s()))

    async def tick(self) -> None:
        """Let the lobby see time pass, for as long as the server runs."""
        while True:
            await asyncio.sleep(limits.ROOM_TICK_S)
            self._do(self.lobby.tick(self._now_s()))

    def _do(self, actions: Actions) -> None:
        for action in actions:
            line = self._lines.get(action.socket)
            if line is None:  # it has just gone by itself
                continue
            if isinstance(action, Close):
                line.hang_up(action.code)
            else:
                line.say(json.dumps(action.message))


def is_same_site(socket: WebSocket) -> bool:
    """Whether no page of another site opened this socket; programs that are no browser name no origin."""
    origin = socket.headers.get("origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == socket.headers.get("host", "").lower() != ""
    except ValueError:
        return False
