"""How one agent dials another: who answers, how soon, and how fast a payload goes there.

First each side proves that it knows the fleet's secret, which the dashboard hands out; until then nobody is sent more
than 48 bytes. All that a stranger gets for 20 bytes is a random number and a digest. Then the dialler asks:

    P + 8 bytes            → the same 9 bytes
    B + length + payload   → b + bytes received so far, at most PROBE_BYTES a connection

Every connection has a limit in time and bytes, and so have all of them together.
"""

import asyncio
import contextlib
import errno
import hashlib
import hmac
import secrets
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import perf_counter

from daisychain.agent.answer import Peer
from daisychain.agent.report import CUT, NO_ANSWER, NO_ROUTE, REACHED, REFUSED, STRANGER
from daisychain.base import limits

MAGIC = b"DCP1"
NONCE_BYTES = 16
HELLO_BYTES = len(MAGIC) + NONCE_BYTES
DIGEST_BYTES = 32
PING, PAYLOAD, RECEIVED = b"P", b"B", b"b"
PING_BYTES = 8
COUNT = struct.Struct("!I")


@dataclass(frozen=True)
class Found:
    """How a dial ended; see `report.Probe`."""

    outcome: str
    latency_s: float | None = None
    bandwidth_mb_s: float | None = None


class StrangerError(ValueError):
    """The other side does not know the secret, or does not speak this protocol."""


def proof(secret: str, role: str, instance: str, nonces: bytes) -> bytes:
    """What shows that a side knows the secret. `instance` is that of the agent that was dialled."""
    return hmac.digest(bytes.fromhex(secret), f"{role} {instance} ".encode() + nonces, hashlib.sha256)


class ProbeServer:
    """Answers dials. `secret` is None until the dashboard has told it, and nobody is answered before that."""

    def __init__(self, instance: str) -> None:
        self.secret: str | None = None
        self._instance = instance
        self._open: Counter[str] = Counter()  # connections by address

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, for `asyncio.start_server`. Never raises."""
        address = (writer.get_extra_info("peername") or ("",))[0]
        try:
            if self._has_room(address):
                self._open[address] += 1
                try:
                    await asyncio.wait_for(self._introduce(reader, writer), limits.PROBE_LIMIT_S)
                    # Time for a payload on a slow link, and for the pings.
                    await asyncio.wait_for(
                        _answer(reader, writer), limits.PROBE_LIMIT_S + limits.PROBE_BYTES_LIMIT_S
                    )
                finally:
                    self._open[address] -= 1
                    self._open += Counter()  # drops what is zero
        except (OSError, EOFError, ValueError, asyncio.TimeoutError):  # asyncio's own until Python 3.11
            pass
        finally:
            await _hang_up(writer)

    def _has_room(self, address: str) -> bool:
        return (
            self.secret is not None
            and self._open.total() < limits.PROBE_CONNECTIONS
            and self._open[address] < limits.PROBE_CONNECTIONS_PER_ADDRESS
        )

    async def _introduce(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = await reader.readexactly(HELLO_BYTES)
        if not hello.startswith(MAGIC) or self.secret is None:
            raise StrangerError
        own = secrets.token_bytes(NONCE_BYTES)
        nonces = hello[len(MAGIC) :] + own
        writer.write(own + proof(self.secret, "answer", self._instance, nonces))
        shown = await reader.readexactly(DIGEST_BYTES)
        if not hmac.compare_digest(shown, proof(self.secret, "dial", self._instance, nonces)):
            raise StrangerError


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer pings and payloads until the other side has had its share of both, or hangs up."""
    pings, received = 0, 0
    while (kind := await reader.readexactly(1)) in (PING, PAYLOAD):
        if kind == PING:
            pings += 1
            if pings > limits.PROBE_PINGS:
                return
            writer.write(PING + await reader.readexactly(PING_BYTES))
            continue
        (length,) = COUNT.unpack(await reader.readexactly(COUNT.size))
        received += length
        if not 0 < length <= limits.PROBE_FRAME_BYTES or received > limits.PROBE_BYTES:
            return
        await reader.readexactly(length)
        writer.write(RECEIVED + COUNT.pack(received))


async def dial(peer: Peer, secret: str, *, payload: bool = False) -> Found:
    """Dial an agent; with `payload` measure the bandwidth of the way there too. Never raises; takes seconds at most."""
    try:
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection(peer.address, peer.port), limits.PROBE_LIMIT_S
        )
    except asyncio.TimeoutError:
        return Found(NO_ANSWER)
    except OSError as error:
        return Found(_outcome(error))
    try:
        latency_s = await asyncio.wait_for(_pings(reader, writer, peer, secret), limits.PROBE_LIMIT_S)
        bandwidth_mb_s = await _bandwidth(reader, writer, latency_s) if payload else None
        return Found(REACHED, latency_s, bandwidth_mb_s)
    except StrangerError:
        return Found(STRANGER)
    except (OSError, EOFError, ValueError, asyncio.TimeoutError):
        return Found(CUT)
    finally:
        await _hang_up(writer)


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    """At once: what a slow link has not taken yet is dropped."""
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _pings(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: Peer, secret: str
) -> float:
    """Introduce both sides; seconds of the quickest answer. Raises StrangerError."""
    own = secrets.token_bytes(NONCE_BYTES)
    writer.write(MAGIC + own)
    answer = await reader.readexactly(NONCE_BYTES + DIGEST_BYTES)
    nonces = own + answer[:NONCE_BYTES]
    if not hmac.compare_digest(answer[NONCE_BYTES:], proof(secret, "answer", peer.instance, nonces)):
        raise StrangerError
    writer.write(proof(secret, "dial", peer.instance, nonces))
    times_s = []
    for _ in range(limits.PROBE_PINGS):
        ping = PING + secrets.token_bytes(PING_BYTES)
        started_s = perf_counter()
        writer.write(ping)
        if await reader.readexactly(len(ping)) != ping:
            raise StrangerError
        times_s.append(perf_counter() - started_s)
    return min(times_s)


async def _bandwidth(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, latency_s: float) -> float:
    """MB/s from here to there: what the other side says it has received, over the time until its word was here.

    A link that has not carried a single frame within the limit is said to carry one in that time.
    """
    frames = limits.PROBE_BYTES // limits.PROBE_FRAME_BYTES
    payload = secrets.token_bytes(
        limits.PROBE_FRAME_BYTES
    )  # random, so that nothing on the way can compress it
    started_s = perf_counter()
    received, taken_s = limits.PROBE_FRAME_BYTES, limits.PROBE_BYTES_LIMIT_S
    for _ in range(frames):
        writer.write(PAYLOAD + COUNT.pack(len(payload)) + payload)
    with contextlib.suppress(asyncio.TimeoutError):
        for frame in range(frames):
            left_s = started_s + limits.PROBE_BYTES_LIMIT_S - perf_counter()
            said = await asyncio.wait_for(reader.readexactly(1 + COUNT.size), max(left_s, 0.001))
            if said != RECEIVED + COUNT.pack((frame + 1) * len(payload)):
                raise StrangerError
            received, taken_s = (frame + 1) * len(payload), perf_counter() - started_s
    return received / max(taken_s - latency_s, taken_s / 2) / 1e6


def _outcome(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return REFUSED
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        return NO_ANSWER
    return NO_ROUTE


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def listen(address: str, port: int, serve: Serve) -> asyncio.Server:
    """A probe port on one address. Raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return await asyncio.start_server(
        serve,
        address,
        port,
        family=family,
        limit=2 * limits.PROBE_FRAME_BYTES,
        backlog=limits.PROBE_CONNECTIONS,
    )
