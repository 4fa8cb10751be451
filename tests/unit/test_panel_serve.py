"""The server below the pages: nobody keeps it from answering others."""

import contextlib
import socket
import threading

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute

from daisychain.base import limits
from daisychain.panel.serve import PanelServer

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
UPGRADE = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


async def _echo(socket_) -> None:
    await socket_.accept()
    await socket_.send_text(await socket_.receive_text())


@pytest.fixture
def port(monkeypatch):
    monkeypatch.setattr(limits, "PANEL_HEAD_LIMIT_S", 0.3)
    app = Starlette(routes=[Route("/", lambda _: PlainTextResponse("ok")), WebSocketRoute("/", _echo)])
    started = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = PanelServer(app, started.set)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        assert started.wait(10)
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join()


def _rest(asking: socket.socket) -> bytes:
    """All that comes until the other end hangs up."""
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := asking.recv(1_000):
            answer += piece
    return answer


@pytest.mark.parametrize("said", [b"", b"GET / HT", HEAD])
def test_who_does_not_say_what_they_want_is_cut_off(port, said) -> None:
    with socket.create_connection(("127.0.0.1", port), 4) as asking:
        asking.sendall(said)
        assert _rest(asking) == b""


def test_so_is_who_has_asked_for_something_before(port) -> None:
    with socket.create_connection(("127.0.0.1", port), 4) as asking:
        asking.sendall(HEAD + b"\r\n")
        assert b"200 OK" in asking.recv(1_000)
        asking.sendall(HEAD)
        assert b"200 OK" not in _rest(asking)


def test_a_page_that_is_open_is_not(port) -> None:
    with socket.create_connection(("127.0.0.1", port), 5) as asking:
        asking.sendall(HEAD + UPGRADE)
        assert b"101 Switching" in asking.recv(1_000)
        asking.settimeout(0.6)
        with pytest.raises(TimeoutError):
            asking.recv(1)
