"""The server's socket, and the server on it until somebody ends it."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from daisychain.base import limits
from daisychain.base.errors import ConfigError
from daisychain.cluster.fleet.network import port_owner


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ConfigError naming who has the port, or the address that is not this machine's."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(
            address, family=family, dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6()
        )
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            owner = port_owner(port) or "another program"
            raise ConfigError(
                f"port {port} is in use by {owner}: end that program, or choose another --port"
            ) from None
        raise ConfigError(
            f"{host} port {port} cannot be listened on ({error.strerror or error}): "
            "--host is an address of this machine, or 0.0.0.0 for all of them"
        ) from None
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        unsent_ms = int(limits.ROOM_UNSENT_LIMIT_S * 1_000)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unsent_ms)
    return listener


class RoomServer(uvicorn.Server):
    """uvicorn that ends quietly when it is told to, and says when it listens."""

    def __init__(self, app: ASGIApp, server_file: Path | None, on_start: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="websockets-sansio",
                ws_max_size=limits.ROOM_FRAME_BYTES,
                ws_ping_interval=None,  # the lobby's own pings reach the page, which these do not
                ws_per_message_deflate=False,
                proxy_headers=False,  # who is trusted is decided in groups
                server_header=False,
                access_log=False,
                log_level="error",
                ssl_certfile=server_file,
                limit_concurrency=2 * limits.ROOM_SOCKETS,
                timeout_graceful_shutdown=int(limits.ROOM_CLOSING_LIMIT_S),
            )
        )
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start()

    def serve_until_ended(self, listener: socket.socket) -> None:
        """Serve until an interrupt, a SIGTERM, or `should_exit` is set."""
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(self.serve([listener]))
