"""The room server as browsers see it: a real one, on the loopback interface."""

import asyncio
import contextlib
import http.client
import json

import pytest
from websockets.exceptions import InvalidStatus

from daisychain.base import limits
from daisychain.room import server
from daisychain.room.groups import trusted_networks

from .room_help import PATIENCE_S, code, meet, running, until

PROXY = trusted_networks(["127.0.0.1"])


def get(port, path, method="GET", **headers):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as line:
        line.request(method, path, headers=headers)
        answer = line.getresponse()
        return answer.status, dict(answer.headers), answer.read()


def behind(address):
    return {"additional_headers": {"X-Forwarded-For": address}}


@pytest.fixture(scope="module")
def port():
    with running(links=["http://192.168.1.2:8787/"], ice=[{"urls": ["stun:x:1"]}]) as (port, _):
        yield port


@pytest.fixture
def own():
    """A server of one test, with its lobby."""
    with running(trusted=PROXY) as both:
        yield both


def test_files_come_with_types_that_browsers_take(port, tmp_path, monkeypatch):
    for path, kind in {
        "/": "text/html; charset=utf-8",
        "/static/limits.js": "text/javascript; charset=utf-8",
        "/static/ui/base.css": "text/css; charset=utf-8",
        "/tokenizer.json": "application/json",
    }.items():
        status, headers, body = get(port, path)
        assert (status, headers["content-type"]) == (200, kind)
        assert body
        assert headers["cache-control"] == "no-cache"
        assert headers["x-content-type-options"] == "nosniff"
        policy = headers["content-security-policy"]
        assert "script-src 'self' 'wasm-unsafe-eval';" in policy
        assert "unsafe-inline" not in policy
        assert get(port, path, **{"If-None-Match": headers["etag"]})[0] in (200, 304)
    (tmp_path / "a.wasm").write_bytes(b"\0asm")
    monkeypatch.setattr(server, "STATIC", tmp_path)
    with running() as (other, _):
        assert get(other, "/static/a.wasm")[1]["content-type"] == "application/wasm"
        assert get(other, "/static/a.wasm", "POST")[0] == 405


@pytest.mark.parametrize(
    "path",
    [
        "/static/../room/server.py",
        "/static/..%2froom%2fserver.py",
        "/static/%2e%2e/room/server.py",
        "/static/..%5croom%5cserver.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/ui/../../room/server.py",
        "/static/limits.js%00.html",
        "/static/",
        "/static/ui",
        "/static/" + "a" * 5_000,
        "/nothing",
        "/authority.crt",
    ],
)
def test_nothing_else_is_served(port, path):
    status, _, body = get(port, path)
    assert status == 404
    assert b"import" not in body


def test_a_link_out_of_the_folder_is_not_followed(tmp_path, monkeypatch):
    (tmp_path / "secret.js").write_text("secret")
    (tmp_path / "static").mkdir()
    (tmp_path / "static/link.js").symlink_to(tmp_path / "secret.js")
    monkeypatch.setattr(server, "STATIC", tmp_path / "static")
    with running() as (port, _):
        assert get(port, "/static/link.js")[0] == 404


def test_the_page_learns_the_servers_settings(port):
    assert json.loads(get(port, "/config.json")[2]) == {
        "ice": [{"urls": ["stun:x:1"]}],
        "limits": {"members": 8, "ping_s": limits.ROOM_PING_EVERY_S},
        "secure": False,
        "links": ["http://192.168.1.2:8787/"],
    }


def test_a_missing_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "TOKENIZER", tmp_path / "tokenizer.json")
    with running() as (port, _):
        status, _, body = get(port, "/tokenizer.json")
    assert status == 503
    assert b"tokenizer.json is missing" in body


def test_text_says_where_it_is_from(port):
    status, headers, body = get(port, "/data?bytes=100&seed=4294967295")
    assert status == 200
    assert body.decode().startswith("4294967295 auto éé")
    _, _, body = get(port, "/data?bytes=100&seed=0&source=fineweb-edu")
    assert body.decode().startswith("0 fineweb-edu éé")
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert headers["x-daisy-source"] == "embedded"
    assert headers["x-daisy-reason"] == "no network ?"
    status, _, body = get(port, "/data?bytes=100&seed=13")
    assert (status, body) == (503, b"no text today: try tomorrow\n")


@pytest.mark.parametrize(
    "query",
    [
        "",
        "bytes=0&seed=1",
        "bytes=-1&seed=1",
        "bytes=5",
        "bytes=5&seed=4294967296",
        "bytes=5&seed=1&source=/etc/passwd",
        "bytes=1e3&seed=1",
        "bytes=%C2%B2&seed=1",
        f"bytes={limits.ROOM_DATA_BYTES + 1}&seed=1",
        f"bytes={'9' * 6_000}&seed=1",
    ],
)
def test_a_wrong_wish_is_refused_by_name(port, query):
    status, _, body = get(port, f"/data?{query}")
    assert status == 400
    assert body.startswith((b"bytes is ", b"seed is ", b"source is "))


def test_text_is_shared_out(own):
    port, _ = own
    whole = f"/data?bytes={limits.ROOM_DATA_BYTES}&seed=1"
    burst = limits.ROOM_DATA_BYTES_BURST // limits.ROOM_DATA_BYTES
    one, two = {"X-Forwarded-For": "203.0.113.1"}, {"X-Forwarded-For": "203.0.113.2"}
    answers = [get(port, whole, **one) for _ in range(2 * burst)]
    refused = [headers for status, headers, _ in answers if status == 429]
    assert answers[burst - 1][0] == 200
    assert refused
    assert int(refused[0]["retry-after"]) > 0
    assert get(port, whole, **two)[0] == 200


def test_signals_go_to_members_of_one_group_only(own):
    port, _ = own

    async def talk(arrive):
        one = await arrive(1, **behind("203.0.113.1"))
        two = await arrive(2, **behind("198.51.100.7, 203.0.113.1"))
        far = await arrive(3, **behind("203.0.113.1, 198.51.100.7"))
        assert [m["name"] for m in two.heard[0]["members"]] == ["device 1"]
        assert far.heard[0]["members"] == []
        for sender in (far, two):
            await sender.say(type="signal", to=one.id, data={"from": sender.id})
        signal = await one.hear_until("signal")
        assert signal["from"] == signal["data"]["from"] == two.id
        await two.socket.close()
        assert await one.hear_until("left") == {"type": "left", "id": two.id}
        assert [m["type"] for m in one.heard] == ["welcome", "joined", "signal", "left"]

    meet(port, talk)


def test_strangers_with_a_spoofed_header_are_never_grouped(port):
    async def talk(arrive):
        await arrive(1)
        spoofers = [await arrive(2 + i, **behind(a)) for i, a in enumerate(["192.168.1.5"] * 2 + ["::1"])]
        neighbour = await arrive(9)
        assert all(spoofer.heard[0]["members"] == [] for spoofer in spoofers)
        assert "--trusted-proxy" in spoofers[0].heard[0]["notice"]
        assert [m["name"] for m in neighbour.heard[0]["members"]] == ["device 1"]

    meet(port, talk)


def test_pages_of_other_sites_are_refused(port):
    async def talk(arrive):
        for origin in ("http://evil.example", "https://127.0.0.1", "null", "http://127.0.0.1:1"):
            with pytest.raises(InvalidStatus) as refusal:
                await arrive(1, origin=origin)
            assert refusal.value.response.status_code == 403
        device = await arrive(77, origin=f"http://127.0.0.1:{port}")
        assert device.heard[0]["type"] == "welcome"

    meet(port, talk)


def test_fifty_wrong_codes_are_throttled(own):
    port, _ = own

    async def talk(arrive):
        answers = []
        for number in range(50):
            device = await arrive(number, code(number), **behind("203.0.113.1"))
            answers.append(device.heard[0].get("code", "in"))
            await device.socket.close()
        return answers

    answers = meet(port, talk)
    assert answers[-1] == "throttled"
    assert answers.count("in") < 40


def test_knocking_devices_hear_nothing_of_the_room(own):
    port, lobby = own

    async def talk(arrive):
        host = await arrive(1, code(7))
        member = await arrive(2, code(7))
        await host.say(type="accept", id=(await host.hear_until("knock"))["id"])
        await member.hear_until("welcome")
        assert await member.hear() == {"type": "host", "id": host.id}
        knocker = await arrive(3, code(7))
        knock = await host.hear_until("knock")
        await member.say(type="signal", to=knock["id"], data=1)
        await host.say(type="signal", to=knock["id"], data=1)
        await host.say(type="deny", id=knock["id"])
        assert await knocker.closing() == 4_000
        assert [m["type"] for m in knocker.heard] == ["waiting", "denied"]
        await host.socket.close()
        assert (await member.hear_until("host"))["id"] == member.id
        await member.socket.close()
        await until(lambda: lobby.sizes()["sockets"] == 0)

    meet(port, talk)


def test_a_page_that_is_reloaded_comes_back_by_its_pass(own):
    port, _ = own

    async def talk(arrive):
        host = await arrive(1, code(8), "a" * 32)
        member = await arrive(2, code(8), "b" * 32)
        await host.say(type="accept", id=(await host.hear_until("knock"))["id"])
        await member.hear_until("welcome")
        await member.socket.close()
        await host.hear_until("left")
        again = await arrive(3, code(8), "b" * 32)
        assert again.heard[0]["type"] == "welcome"
        assert (await host.hear_until("joined"))["id"] == again.id != member.id
        await again.socket.close()
        await host.hear_until("left")
        await host.socket.close()
        knocker = await arrive(4, code(8), "c" * 32)
        assert (await arrive(5, code(8), "a" * 32)).heard[0]["host"] is True
        assert [m["type"] for m in knocker.heard] == ["waiting"]

    meet(port, talk)


def test_large_fast_and_binary_messages_end_a_socket(own):
    port, lobby = own

    async def talk(arrive):
        large = await arrive(1)
        await large.socket.send("x" * (limits.ROOM_MESSAGE_BYTES + 1))
        assert await large.closing() == 4_000
        assert large.heard[-1]["code"] == "too_large"
        huge = await arrive(2)
        with contextlib.suppress(ConnectionError):
            await huge.socket.send("x" * (limits.ROOM_FRAME_BYTES + 1))
        assert await huge.closing() == 1_009
        binary = await arrive(3)
        await binary.socket.send(b"\0" * 10)
        assert await binary.closing() == 4_000
        assert binary.heard[-1]["code"] == "bad_message"
        fast = await arrive(4)
        with contextlib.suppress(Exception):
            for _ in range(20 * limits.ROOM_MESSAGES_BURST):
                await fast.say(type="pong")
        await fast.closing()
        assert fast.heard[-1].get("code", "too_fast") == "too_fast"
        await until(lambda: lobby.sizes()["sockets"] == 0)

    meet(port, talk)


def test_dead_sockets_go(monkeypatch):
    monkeypatch.setattr(limits, "ROOM_PING_EVERY_S", 0.2)
    monkeypatch.setattr(limits, "ROOM_SILENT_LIMIT_S", 0.6)
    monkeypatch.setattr(limits, "ROOM_TICK_S", 0.05)

    async def talk(arrive):
        alive, dead = await arrive(1), await arrive(2)
        assert (await alive.hear_until("left"))["id"] == dead.id
        assert await dead.closing() == 4_002

    with running() as (port, _):
        meet(port, talk)


def test_a_device_that_reads_nothing_is_cut(own, monkeypatch):
    monkeypatch.setattr(limits, "ROOM_MESSAGES_BURST", 10**6)
    port, lobby = own

    async def talk(arrive):
        speaker = await arrive(1)
        other = await arrive(2)
        other.socket.transport.pause_reading()
        while lobby.sizes()["sockets"] == 2:
            await speaker.say(type="signal", to=other.id, data="x" * 12_000)
            await asyncio.sleep(0)
        assert (await speaker.hear_until("left"))["id"] == other.id

    meet(port, talk)
