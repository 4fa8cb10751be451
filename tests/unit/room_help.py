"""A room server of this process on the loopback interface, and devices that talk to it."""

import asyncio
import contextlib
import json
import threading

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from daisychain.base.errors import DataError
from daisychain.cluster.fleet.network import open_listener
from daisychain.data.slices import Slice
from daisychain.room.listen import RoomServer
from daisychain.room.server import RoomSettings, create_app

PATIENCE_S = 20.0  # how long a test waits for what must come by itself
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def text(bytes_wanted, seed, kind):
    """Text that says what was asked for; seed 13 has none."""
    if seed == 13:
        raise DataError("no text today: try tomorrow")
    return Slice(f"{seed} {kind} " + "é" * (bytes_wanted // 2), "embedded", "no\nnetwork é", 7)


@contextlib.contextmanager
def running(certificate=None, **settings):
    """A server; gives its port and its lobby."""
    pem = certificate and certificate.authority_pem
    app = create_app(RoomSettings(text, authority_pem=pem, **settings))
    listener = open_listener("127.0.0.1", 0)
    started = threading.Event()
    server = RoomServer(app, certificate and certificate.server_file, started.set)
    thread = threading.Thread(target=server.serve_until_ended, args=[listener])
    thread.start()
    try:
        assert started.wait(PATIENCE_S)
        yield listener.getsockname()[1], app.lobby
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        listener.close()
    assert not thread.is_alive()


class Device:
    """A page's side of the signalling."""

    def __init__(self, socket):
        self.socket = socket
        self.heard = []
        self.id = None

    async def say(self, **message):
        await self.socket.send(json.dumps(message))

    async def hear(self):
        """The next message, which is in `heard` too; pings are answered."""
        self.heard.append(json.loads(await asyncio.wait_for(self.socket.recv(), PATIENCE_S)))
        if self.heard[-1]["type"] == "welcome":
            self.id = self.heard[-1]["id"]
        elif self.heard[-1]["type"] == "ping":
            await self.say(type="pong")
        return self.heard[-1]

    async def hear_until(self, kind):
        while (message := await self.hear())["type"] != kind:
            pass
        return message

    async def closing(self):
        """The close code, once everything that came before it is in `heard`."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self.hear()
        return self.socket.close_code


def meet(port, talk):
    """Run `talk(arrive)`, and close what it has opened.

    `arrive(number, room, **options)` opens a socket and says hello; the first answer is in `heard`.
    """

    async def all_of_it():
        async with contextlib.AsyncExitStack() as stack:

            async def arrive(number, room=None, pass_=None, **options):
                line = connect(
                    f"ws://127.0.0.1:{port}/ws", open_timeout=PATIENCE_S, close_timeout=1, **options
                )
                device = Device(await stack.enter_async_context(line))
                hello = {"type": "hello", "name": f"device {number}", "session": f"{number:032x}"}
                optional = {key: value for key, value in {"room": room, "pass": pass_}.items() if value}
                await device.say(**hello, **optional)
                await device.hear()
                return device

            return await talk(arrive)

    return asyncio.run(all_of_it())


def code(number):
    """A room code."""
    return "".join(CROCKFORD[(number >> 5 * place) % 32] for place in range(13))


async def until(condition):
    """Wait for what must come by itself."""

    async def watch():
        while not condition():
            await asyncio.sleep(0.02)

    await asyncio.wait_for(watch(), PATIENCE_S)
