"""The room server on its socket, until somebody ends it."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from daisychain.base import limits


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
