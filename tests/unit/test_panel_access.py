"""Who may open the pages: the rules, and the door that heeds them."""

import asyncio
import random
import time

import pytest

from daisychain.base import limits
from daisychain.base.errors import ConfigError
from daisychain.panel.access import (
    Access,
    Doorkeeper,
    Request,
    choose_access,
    host_refusal,
    origin_refusal,
)
from daisychain.panel.guard import HEADERS, Guard

from .panel_runs import HASH

TOKEN = "a-token-of-more-than-sixteen"
LOCAL = Access(None, True)
OPEN = Access(TOKEN, False)


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "LOCALHOST:8080", "[::1]:8080", "127.9.9.9"])
def test_names_of_this_machine_are_answered(host) -> None:
    assert host_refusal(LOCAL, {"host": host}) is None


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "localhost.evil.example:8080", "127.0.0.1.evil.example", "192.168.1.20:8080", "[::2]",
     "localhost:8080@evil.example", "127.0.0.1 evil", "localhost\r\nX: y", "0.0.0.0:8080", "2130706433", "[127.0.0.1"],
)  # fmt: skip
def test_any_other_name_is_refused(host) -> None:
    assert host_refusal(LOCAL, {"host": host}) is not None


def test_random_host_headers_never_name_this_machine() -> None:
    seed = time.time_ns()
    print(f"seed {seed}")
    draw = random.Random(seed)
    alphabet = "abcdelot.127:[]@/\\ %\r\n\0é-_0"
    for _ in range(3_000):
        host = "".join(draw.choices(alphabet, k=draw.randrange(24)))
        name = host.rsplit(":", 1)[0] if ":" in host else host
        if host_refusal(LOCAL, {"host": host}) is None:
            assert name == "localhost" or name.startswith(("127.", "[")), repr(host)


def request(method="POST", path="/x", host="127.0.0.1:8080", origin=None, is_socket=False, **more) -> Request:
    headers = {"host": host, **({} if origin is None else {"origin": origin}), **more.pop("headers", {})}
    return Request(method, path, headers, is_socket, **more)


@pytest.mark.parametrize(
    "origin", ["http://127.0.0.1:8080", "https://127.0.0.1:8080", "HTTP://127.0.0.1:8080"]
)
def test_our_own_pages_may_ask(origin) -> None:
    assert origin_refusal(request(origin=origin)) is None
    assert origin_refusal(request("GET", origin=origin, is_socket=True)) is None


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "http://127.0.0.1", "http://127.0.0.1:8081", "null", "", "http://127.0.0.1:8080.evil.example",
     "http://u@127.0.0.1:8080", "ftp://127.0.0.1:8080", "http://127.0.0.1:8080/", "http://[", "file://"],
)  # fmt: skip
def test_pages_of_other_sites_may_not(origin) -> None:
    for method, socket in (("POST", False), ("GET", True), ("GET", False)):
        assert origin_refusal(request(method, origin=origin, is_socket=socket)) is not None


def test_without_an_origin_only_reading_and_agents_are_let_in() -> None:
    assert origin_refusal(request("GET")) is None
    assert origin_refusal(request("POST")) is not None
    assert origin_refusal(request("GET", is_socket=True)) is not None
    assert origin_refusal(request("POST", "/agent/report")) is None
    browser = {"sec-fetch-site": "cross-site"}
    assert origin_refusal(request("POST", "/agent/report", headers=browser)) is not None


def test_a_token_opens_by_address_header_and_cookie() -> None:
    door = Doorkeeper(OPEN)
    for shown in (
        {"token": TOKEN},
        {"headers": {"authorization": f"Bearer {TOKEN}"}},
        {"cookie": OPEN.cookie},
    ):
        assert door.refusal(request(**shown), 0.0) is None, shown
    wrong = (
        {"token": OPEN.cookie},
        {"cookie": TOKEN},
        {"headers": {"authorization": TOKEN}},
        {"token": TOKEN[:-1]},
    )
    for shown in wrong:
        refusal = door.refusal(request(**shown), 0.0)
        assert refusal is not None, shown
        assert refusal.status == 403, shown
    nothing = door.refusal(request(), 0.0)
    assert nothing is not None
    assert "?token=" in nothing.text


def test_a_stale_cookie_beside_the_right_token_does_no_harm() -> None:
    assert Doorkeeper(OPEN).refusal(request(token=TOKEN, cookie="of an earlier start"), 0.0) is None


def test_guesses_are_throttled_and_repeats_are_no_guesses() -> None:
    door = Doorkeeper(OPEN)
    for _ in range(1_000):  # a page that was left open asks and asks
        refusal = door.refusal(request(cookie="stale", address="10.0.0.7"), 0.0)
        assert refusal is not None
        assert refusal.status == 403
    statuses = [_status(door, f"guess-{i}", "10.0.0.7", 0.0) for i in range(40)]
    assert statuses.count(403) == limits.PANEL_GUESSES_BURST - 1
    assert _status(door, TOKEN, "10.0.0.7", 0.0) == 429  # even a lucky guess is not told from others now
    assert _status(door, TOKEN, "10.0.0.8", 0.0) == 0
    assert _status(door, TOKEN, "10.0.0.7", 60 / limits.PANEL_GUESSES_PER_MINUTE + 0.1) == 0


def _status(door: Doorkeeper, token: str, address: str, now_s: float) -> int:
    refusal = door.refusal(request(token=token, address=address), now_s)
    return refusal.status if refusal else 0


def test_guesses_from_everywhere_take_bounded_memory() -> None:
    door = Doorkeeper(OPEN)
    for i in range(3 * limits.PANEL_GUESSERS):
        door.refusal(request(token=f"guess-{i}", address=f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}"), float(i))
        door.forget(float(i))
    assert len(door._wrong) <= limits.PANEL_GUESSERS
    assert len(door._guesses) < limits.PANEL_GUESSERS


def test_a_token_is_drawn_where_others_can_connect() -> None:
    assert choose_access(True, None) == Access(None, True)
    drawn = {choose_access(False, None).token for _ in range(3)}
    assert len(drawn) == 3
    assert all(token and len(token) * 6 >= 128 for token in drawn)
    assert choose_access(True, TOKEN) == Access(TOKEN, True)
    for bad in ("short", "x" * 500, "with spaces in it, many", "a" * 20 + "\n", "ünïcödé-ünïcödé-ünïcödé"):
        with pytest.raises(ConfigError, match="token"):
            choose_access(False, bad)


# The door


def ask(
    access,
    method="GET",
    path="/",
    query="",
    headers=(),
    kind="http",
    body=(b"",),
    body_limit=None,
    sorry=False,
) -> dict:
    """What a door answers, and whether it let the request in. `sorry`: inside, errors get an answer as well."""
    seen = {"status": 0, "headers": {}, "body": b"", "inside": False, "received": 0}

    async def inside(scope, receive, send) -> None:
        seen["inside"] = True
        more = scope["type"] == "http"
        while more:
            message = await receive()
            seen["received"] += len(message.get("body", b""))
            more = message.get("more_body", False)
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"ok"})

    async def inside_with_errors(scope, receive, send) -> None:
        try:
            await inside(scope, receive, send)
        except Exception:
            await send({"type": "http.response.start", "status": 500, "headers": []})
            await send({"type": "http.response.body", "body": b"sorry"})
            raise

    parts = list(body)

    async def receive() -> dict:
        if kind == "websocket":
            return {"type": "websocket.connect"}
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message) -> None:
        if message["type"] == "http.response.start":
            seen["status"] = message["status"]
            seen["headers"] = {k.decode(): v.decode() for k, v in message["headers"]}
        seen["body"] += message.get("body", b"")
        seen["status"] = message.get("code", seen["status"])

    scope = {
        "type": kind,
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "scheme": "http",
        "server": ("127.0.0.1", 8080),
        "client": ("127.0.0.1", 5),
        "headers": [(b"host", b"127.0.0.1:8080"), *((k.encode(), v.encode("latin-1")) for k, v in headers)],
    }
    guard = Guard(inside_with_errors if sorry else inside, access, *([body_limit] if body_limit else []))
    asyncio.run(guard(scope, receive, send))
    return seen


def test_the_door_lets_in_and_adds_headers() -> None:
    seen = ask(LOCAL)
    assert (seen["status"], seen["inside"]) == (200, True)
    for name, value in HEADERS.items():
        assert seen["headers"][name.lower()] == value
    assert seen["headers"]["cache-control"] == "no-cache"


def test_the_token_in_a_link_becomes_a_cookie() -> None:
    seen = ask(OPEN, path="/runs/a b", query=f"x=1&token={TOKEN}&y=%3C")
    assert (seen["status"], seen["inside"]) == (200, False)
    cookie = seen["headers"]["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    assert b"url=/runs/a%20b?x=1&amp;y=%3C" in seen["body"]
    assert TOKEN.encode() not in seen["body"]
    name, value = cookie.split(";")[0].split("=", 1)
    assert ask(OPEN, headers=[("cookie", f"{name}={value}")])["inside"]
    assert not ask(Access(TOKEN + "-other", False), headers=[("cookie", f"{name}={value}")])["inside"]


def test_the_way_on_never_leads_to_another_host() -> None:
    for path in ("//evil.example/", "/\\evil.example", "\\\\evil.example", '/"><script>'):
        body = ask(OPEN, path=path, query=f"token={TOKEN}")["body"].decode()
        target = body.split("url=")[1].split('"')[0]
        assert target.startswith("/"), body
        assert not target.startswith("//"), body
        assert "<script>" not in body


@pytest.mark.parametrize(
    "query", ["", "token=", "token=wrong", "token=wrong&token=" + TOKEN, f"Token={TOKEN}"]
)
def test_without_the_token_nothing_is_let_in(query) -> None:
    for path in (
        "/",
        "/look/panel.css",
        "/agent/report",
        "/runs/x/files/model.safetensors",
        "/_nicegui_ws/socket.io",
    ):
        seen = ask(OPEN, path=path, query=query)
        assert (seen["status"], seen["inside"]) == (403, False)
        assert b"link that was printed" in seen["body"]
    origin = [("origin", "http://127.0.0.1:8080")]
    seen = ask(OPEN, path="/_nicegui_ws/socket.io", query=query, kind="websocket", headers=origin)
    assert (seen["status"], seen["inside"]) == (1008, False)


def test_a_websocket_of_another_site_is_refused() -> None:
    ours, theirs = [("origin", "http://127.0.0.1:8080")], [("origin", "http://evil.example")]
    assert ask(LOCAL, kind="websocket", headers=ours)["inside"]
    assert not ask(LOCAL, kind="websocket", headers=theirs)["inside"]
    assert not ask(LOCAL, kind="websocket")["inside"]


def test_two_hosts_are_no_host() -> None:
    assert ask(LOCAL, headers=[("host", "evil.example")])["status"] == 400


def test_bodies_are_bounded_declared_or_not() -> None:
    own = [("origin", "http://127.0.0.1:8080")]
    small = {"method": "POST", "body_limit": lambda path: 10}
    declared = ask(LOCAL, headers=[*own, ("content-length", "11")], **small)
    assert (declared["status"], declared["inside"]) == (413, False)
    streamed = ask(LOCAL, headers=own, body=[b"12345", b"67890", b"1", b"never read"], **small)
    assert streamed["status"] == 413
    assert streamed["received"] == 10
    assert ask(LOCAL, headers=own, body=[b"12345", b"67890"], **small)["status"] == 200


def test_a_body_that_is_too_large_is_called_so_whatever_the_application_makes_of_it() -> None:
    """Starlette answers 500 to an error that it does not know, and raises it again."""
    own = [("origin", "http://127.0.0.1:8080")]
    seen = ask(LOCAL, "POST", headers=own, body=[b"12345", b"678901"], body_limit=lambda _: 10, sorry=True)
    assert seen["status"] == 413
    assert b"At most 10 bytes" in seen["body"]
    assert b"sorry" not in seen["body"]


def test_hostile_requests_get_an_answer_and_not_an_error() -> None:
    seed = time.time_ns()
    print(f"seed {seed}")
    draw = random.Random(seed)
    names = ["host", "origin", "cookie", "authorization", "content-length", "sec-fetch-site", "accept"]
    values = [
        "\0",
        "é" * 40,
        "Bearer",
        "Bearer ",
        "=;=",
        "daisychain-8080=",
        "-1",
        "9" * 400,
        HASH,
        "text/html",
        "[",
        "http://[",
    ]
    for _ in range(400):
        headers = [(draw.choice(names), draw.choice(values)) for _ in range(draw.randrange(5))]
        query = draw.choice(["", "token", "token=%ff", "&" * 300, "token=" + "x" * 5_000, "a=%zz"])
        path = draw.choice(["/", "/\0", "/%2e%2e/", "//", "/" + "é" * 30, "/agent/report"])
        for access in (OPEN, Access(TOKEN, True)):
            seen = ask(access, draw.choice(["GET", "POST", "PUT", "TRACE"]), path, query, headers)
            assert seen["status"] in (400, 403, 429), (headers, query, path)
            assert not seen["inside"], (headers, query, path)
