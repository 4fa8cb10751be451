"""Listen, say where, and serve until somebody ends it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import warnings
from collections.abc import Callable

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from daisychain.base import limits
from daisychain.panel import priority


class PanelProtocol(H11Protocol):
    """Hangs up on whoever does not say in time what they want: a few hundred of those would keep everybody else out,
    and they need no token for it."""

    _deadline: asyncio.TimerHandle | None = None
    _upgraded = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head(True)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._wait_for_head(False)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        answering = self.cycle is not None and not self.cycle.response_complete
        self._wait_for_head(not (answering or self._upgraded or self.transport.is_closing()))

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._upgraded = True
        super().handle_websocket_upgrade(event)

    def _wait_for_head(self, waiting: bool) -> None:
        """The time that is left runs on, however often a few bytes come."""
        if waiting and self._deadline is None:
            self._deadline = self.loop.call_later(limits.PANEL_HEAD_LIMIT_S, self.transport.abort)
        elif not waiting and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class PanelServer(uvicorn.Server):
    """uvicorn that says nothing by itself and ends at once when it is told to."""

    def __init__(self, app: ASGIApp, on_start: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=PanelProtocol,
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
