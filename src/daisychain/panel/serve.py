"""Listen, say where, and serve until somebody ends it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import warnings
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from daisychain.base import limits
from daisychain.panel import priority


class PanelServer(uvicorn.Server):
    """uvicorn that says nothing by itself and ends at once when it is told to."""

    def __init__(self, app: ASGIApp, on_start: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="websockets-sansio",
                ws_max_size=limits.PANEL_FRAME_BYTES,
                ws_per_message_deflate=False,
                proxy_headers=False,
                server_header=False,
                access_log=False,
                log_level="error",
                limit_concurrency=limits.PANEL_CONNECTIONS,
                timeout_graceful_shutdown=int(limits.PANEL_CLOSING_LIMIT_S),
            )
        )
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start()


def serve(app: ASGIApp, listener: socket.socket, on_start: Callable[[], None]) -> None:
    """Serve until an interrupt or a SIGTERM. Runs have the cores before the pages."""
    priority.lower()
    logging.getLogger("nicegui").setLevel(logging.ERROR)
    # NiceGUI looks at every object there is for its server, and wakes what torch has deprecated.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"nicegui\.ui_run_with")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(PanelServer(app, on_start).serve([listener]))
