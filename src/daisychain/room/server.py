"""The room server: the page and its files, text, and signalling. Weights and gradients never pass through it."""

import asyncio
import contextlib
import mimetypes
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from daisychain.base import limits
from daisychain.room.groups import Network
from daisychain.room.lobby import Lobby
from daisychain.room.switchboard import Switchboard
from daisychain.room.text import Source, TextDesk

PACKAGE = Path(__file__).parents[1]
STATIC = PACKAGE / "static"
TOKENIZER = PACKAGE / "data/tokenizer.json"
#: What some systems' own tables have wrong; browsers run no module of another type.
TYPES = {".js": "text/javascript", ".wasm": "application/wasm", ".css": "text/css", ".svg": "image/svg+xml"}
CONTENT_POLICY = {
    "default-src": "'none'",
    "script-src": "'self' 'wasm-unsafe-eval'",
    "worker-src": "'self' blob:",
    "connect-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data: blob:",
    "font-src": "'self'",
    "manifest-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
HEADERS = {
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # a room's code is in the address
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in CONTENT_POLICY.items()),
}


@dataclass(frozen=True)
class RoomSettings:
    """How a room server is to work. `authority_pem` is offered to devices that shall trust it (with HTTPS)."""

    text: Source
    members: int = limits.ROOM_MEMBERS
    ice: Sequence[Mapping[str, Any]] = ()
    trusted: Sequence[Network] = ()
    own: Sequence[Network] = ()  # this machine's addresses
    links: Sequence[str] = ()
    authority_pem: bytes | None = None


def create_app(settings: RoomSettings) -> ASGIApp:
    """The whole server as an ASGI application; `app.state.lobby` of the inner one is its lobby."""
    for suffix, kind in TYPES.items():
        mimetypes.add_type(kind, suffix)
    board = Switchboard(Lobby(settings.members, settings.ice), settings.trusted, settings.own, time.monotonic)
    desk = TextDesk(settings.text, board.client_of, time.monotonic)
    routes = [
        Route("/", _file(STATIC / "index.html", "text/html")),
        Route("/tokenizer.json", _file(TOKENIZER, "application/json")),
        Route("/config.json", _config(settings)),
        Route("/data", desk.serve),
        WebSocketRoute("/ws", board.serve),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    if settings.authority_pem:
        routes.append(Route("/authority.crt", _authority(settings.authority_pem)))
    return _WithHeaders(Starlette(routes=routes, lifespan=_ticking(board)), board.lobby)


class _WithHeaders:
    """Adds what every answer carries."""

    def __init__(self, app: ASGIApp, lobby: Lobby) -> None:
        self._app = app
        self.lobby = lobby

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _ticking(board: Switchboard) -> Any:
    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        ticker = asyncio.create_task(board.tick())
        yield
        ticker.cancel()

    return lifespan


def _file(path: Path, kind: str) -> Any:
    def endpoint(request: Request) -> Response:
        if not path.is_file():
            return PlainTextResponse(
                f"{path.name} is missing from this installation: install DaisyChain again.\n", 503
            )
        return FileResponse(path, media_type=kind)

    return endpoint


def _config(settings: RoomSettings) -> Any:
    def endpoint(request: Request) -> Response:
        return JSONResponse(
            {
                "ice": list(settings.ice),
                "limits": {"members": settings.members, "ping_s": limits.ROOM_PING_EVERY_S},
                "secure": settings.authority_pem is not None,
                "links": list(settings.links),
            }
        )

    return endpoint


def _authority(pem: bytes) -> Any:
    def endpoint(request: Request) -> Response:
        return Response(pem, media_type="application/x-x509-ca-cert")

    return endpoint
