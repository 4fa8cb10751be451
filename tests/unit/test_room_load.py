"""Many sockets at once: nothing grows while they talk, and nothing is left when they go."""

import asyncio
import gc
import time

import psutil
import pytest

from daisychain.room.groups import trusted_networks

from .room_help import code, meet, running, until

IDLE, ROOMS, MEMBERS = 200, 20, 3
GROWTH_BYTES = 4 << 20
SOAK_S = 60.0


def home(number):
    """The headers of a device behind a proxy that is trusted."""
    return {"additional_headers": {"X-Forwarded-For": f"203.0.113.{number}"}}


async def make_room(arrive, number):
    """A room and its members, the host first."""
    first = 1_000 + MEMBERS * number
    host, *guests = [await arrive(first + i, code(number), **home(100 + number)) for i in range(MEMBERS)]
    for guest in guests:
        await host.say(type="accept", id=(await host.hear_until("knock"))["id"])
        await guest.hear_until("welcome")
    return host, *guests


async def talk_once(host, *guests):
    """Every guest signals the host and is answered."""
    for guest in guests:
        await guest.say(type="signal", to=host.id, data="x" * 2_000)
    for _ in guests:
        signal = await host.hear_until("signal")
        await host.say(type="signal", to=signal["from"], data=signal["data"])
    for guest in guests:
        assert (await guest.hear_until("signal"))["from"] == host.id
    for device in (host, *guests):
        device.heard.clear()


def load(goes_on):
    """200 idle sockets and 20 rooms that talk while `goes_on(round)`; what was held after each round."""
    held = []

    async def talk(arrive):
        idle = [await arrive(number, **home(number // 8)) for number in range(IDLE)]
        staying = asyncio.gather(*(device.closing() for device in idle))
        rooms = [await make_room(arrive, number) for number in range(ROOMS)]
        while goes_on(len(held)):
            await asyncio.gather(*(talk_once(*room) for room in rooms))
            gc.collect()
            held.append(lobby.sizes() | {"memory": psutil.Process().memory_info().rss})
            await asyncio.sleep(0.05)
            assert not staying.done()
        for device in idle:
            await device.socket.close()
        await staying

    with running(trusted=trusted_networks(["127.0.0.1"])) as (port, lobby):
        meet(port, talk)
        asyncio.run(until(lambda: lobby.sizes()["sockets"] == 0))
        assert lobby.sizes()["addresses"] == lobby.sizes()["members"] == 0
    return held


def check(held):
    sizes = [{name: size for name, size in each.items() if name != "memory"} for each in held]
    assert sizes[0]["sockets"] == IDLE + ROOMS * MEMBERS
    assert sizes[0]["rooms"] == IDLE // 8 + ROOMS
    for each in sizes:
        assert {**each, "throttled": 0} == {**sizes[0], "throttled": 0}
        assert each["throttled"] <= sizes[0]["throttled"]
    settled = held[len(held) // 4]["memory"]
    assert held[-1]["memory"] - settled < GROWTH_BYTES, [each["memory"] >> 10 for each in held]


def test_two_hundred_idle_sockets_and_twenty_rooms():
    check(load(lambda done: done < 12))


@pytest.mark.soak
@pytest.mark.timeout(180)
def test_for_a_minute():
    end_s = time.monotonic() + SOAK_S
    check(load(lambda done: time.monotonic() < end_s))
