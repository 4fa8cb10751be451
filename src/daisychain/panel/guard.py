"""The door: every request and every websocket passes the rules of access.py before anything else sees it."""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from daisychain.base import limits
from daisychain.panel.access import (
    READING,
    Access,
    Doorkeeper,
    Refusal,
    Request,
    host_refusal,
    origin_refusal,
)

#: NiceGUI compiles its templates in the browser and writes styles into the page; nothing comes from elsewhere.
CONTENT_POLICY = {
    "default-src": "'none'",
    "script-src": "'self' 'unsafe-inline' 'unsafe-eval'",
    "style-src": "'self' 'unsafe-inline'",
    "connect-src": "'self'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "worker-src": "'self' blob:",
    "manifest-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
}
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in CONTENT_POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
COOKIE = "daisychain-{port}"  # cookies do not tell ports apart
_TICK_S = 60.0


class TooLargeError(Exception):
    """A request's body went on beyond its limit."""


class Guard:
    """ASGI: lets in what the rules allow, within the limits, and adds what every answer carries.

    `body_limit` says how many bytes a request to a path may bring.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        body_limit: Callable[[str], int] = lambda _: limits.PANEL_BODY_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._doorkeeper = Doorkeeper(access)
        self._access = access
        self._body_limit = body_limit
        self._clock = clock
        self._tidied_s = clock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        else:
            await self._http(scope, receive, send)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(_request_of(scope))
        if refusal is None:
            await self._app(scope, receive, send)
            return
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": refusal.title})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = _request_of(scope)
        send = _with_headers(send)
        refusal = self._refusal(request)
        if refusal is not None:
            await _answer_of(refusal, request)(scope, receive, send)
        elif request.method == "GET" and request.token and self._doorkeeper.is_token(request.token):
            await self._welcome(scope)(scope, receive, send)
        else:
            await self._limited(scope, receive, send)

    def _refusal(self, request: Request) -> Refusal | None:
        now_s = self._clock()
        if now_s - self._tidied_s > _TICK_S:
            self._tidied_s = now_s
            self._doorkeeper.forget(now_s)
        return (
            host_refusal(self._access, request.headers)
            or origin_refusal(request)
            or self._doorkeeper.refusal(request, now_s)
        )

    def _welcome(self, scope: Scope) -> Response:
        """To the same page without the token, which the browser keeps in another form.

        By a page and not by a redirect: after a link on another site a browser would not send the cookie along.
        """
        query = [(name, value) for name, value in _query_of(scope) if name != "token"]
        path = quote("/" + scope["path"].lstrip("/\\"))  # never an address of another host
        target = html.escape(f"{path}?{urlencode(query)}" if query else path)
        answer = HTMLResponse(
            f'<!doctype html><meta charset="utf-8"><title>DaisyChain</title>'
            f'<meta http-equiv="refresh" content="0;url={target}"><a href="{target}">Go on</a>',
            headers={"Cache-Control": "no-store"},
        )
        answer.set_cookie(
            COOKIE.format(port=_port_of(scope)),
            self._access.cookie,
            max_age=limits.PANEL_COOKIE_S,
            httponly=True,
            samesite="strict",
            secure=scope.get("scheme") == "https",
        )
        return answer

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = _Body(receive, self._body_limit(scope["path"]))
        started = False

        async def send_and_note(message: Message) -> None:
            nonlocal started
            if body.too_large and not started:
                return  # what is inside answers with 500 to whatever it does not know
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            if _declared_bytes(scope) > body.most:
                raise TooLargeError
            await self._app(scope, body.receive, send_and_note)
        except RuntimeError as error:
            if str(error) != "No response returned.":  # so Starlette says that the other end has gone
                raise
        except TooLargeError:
            if not started:
                refusal = Refusal(413, "Too large", f"At most {body.most:,} bytes are taken here.")
                await _answer_of(refusal, _request_of(scope))(scope, receive, send)


class _Body:
    """What a request brings, up to `most` bytes."""

    def __init__(self, receive: Receive, most: int) -> None:
        self.most = most
        self.too_large = False
        self._receive = receive
        self._total = 0

    async def receive(self) -> Message:
        """The next part. Raises TooLargeError."""
        message = await self._receive()
        self._total += len(message.get("body", b""))
        self.too_large = self._total > self.most
        if self.too_large:
            raise TooLargeError
        return message


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS)
            # Or a new version is seen through the old one's style sheets.
            headers.setdefault("Cache-Control", "no-cache")
        await send(message)

    return send_with_headers


def _headers_of(scope: Scope) -> dict[str, str]:
    """By lower-case name. Where one comes twice the last counts, but for Host, which then means nothing."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        twice = key in headers and key in ("host", "origin")
        headers[key] = "" if twice else value.decode("latin-1")
    return headers


def _query_of(scope: Scope) -> list[tuple[str, str]]:
    try:
        return parse_qsl(scope.get("query_string", b"").decode("latin-1"), max_num_fields=100)
    except ValueError:
        return []


def _request_of(scope: Scope) -> Request:
    headers = _headers_of(scope)
    client = scope.get("client")
    tokens = [value for name, value in _query_of(scope) if name == "token"]
    return Request(
        method=scope.get("method", "GET"),
        path=scope["path"],
        headers=headers,
        is_socket=scope["type"] == "websocket",
        token=tokens[0] if tokens else None,
        cookie=_cookie(headers, COOKIE.format(port=_port_of(scope))),
        address=client[0] if client else "",
    )


def _cookie(headers: Mapping[str, str], name: str) -> str | None:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return None
    return morsel.value if morsel else None


def _port_of(scope: Scope) -> int:
    return int((scope.get("server") or ("", 0))[1] or 0)


def _declared_bytes(scope: Scope) -> int:
    declared = _headers_of(scope).get("content-length", "0")
    return int(declared) if declared.isascii() and declared.isdigit() else 0


def _answer_of(refusal: Refusal, request: Request) -> Response:
    """A page for people, a line for programs."""
    headers = {"Cache-Control": "no-store"}
    if refusal.retry_after_s:
        headers["Retry-After"] = str(round(refusal.retry_after_s) + 1)
    if request.method not in READING or "text/html" not in request.headers.get("accept", ""):
        return PlainTextResponse(f"{refusal.title}. {refusal.text}\n", refusal.status, headers)
    title, text = html.escape(refusal.title), html.escape(refusal.text)
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>DaisyChain</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<style>:root{color-scheme:light dark}body{max-width:34rem;margin:12vh auto;padding:0 1.25rem;"
        "font:1.05rem/1.55 system-ui,sans-serif;overflow-wrap:anywhere}h1{font-size:1.4rem}</style>"
        f"<h1>{title}</h1><p>{text}</p>"
    )
    return HTMLResponse(page, refusal.status, headers)
