"""The probe port: agents find each other, and strangers get nothing of it."""

import asyncio
import contextlib
import random

import pytest

from daisychain.agent import probe
from daisychain.agent.answer import Peer
from daisychain.agent.probe import COUNT, MAGIC, PAYLOAD, PING, ProbeServer, dial, listen, proof
from daisychain.agent.prober import Prober, dial_every_s, next_peer
from daisychain.agent.report import CUT, NO_ANSWER, REACHED, REFUSED, STRANGER
from daisychain.base import limits

from ..agent_help import PATIENCE_S

SECRET = "7" * 64
INSTANCE = "b" * 16


def talk(conversation, secret=SECRET):
    """Run `conversation(peer, server)` with an agent's probe port; what it returns."""

    async def all_of_it():
        answering = ProbeServer(INSTANCE)
        answering.secret = secret
        server = await listen("127.0.0.1", 0, answering.serve)
        async with server:
            peer = Peer("b", INSTANCE, "127.0.0.1", server.sockets[0].getsockname()[1])
            try:
                return await asyncio.wait_for(conversation(peer, answering), PATIENCE_S)
            finally:
                while answering._open:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.01)  # what was just hung up is closed in the loop's next turns

    return asyncio.run(all_of_it())


@contextlib.asynccontextmanager
async def line_to(peer):
    reader, writer = await asyncio.open_connection(peer.address, peer.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def rest(reader):
    """All that still comes, until the other side hangs up."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def introduced(reader, writer):
    """The dialler's side of the introduction."""
    own = b"n" * probe.NONCE_BYTES
    writer.write(MAGIC + own)
    answer = await reader.readexactly(probe.NONCE_BYTES + probe.DIGEST_BYTES)
    writer.write(proof(SECRET, "dial", INSTANCE, own + answer[: probe.NONCE_BYTES]))


@pytest.fixture
def short(monkeypatch):
    """Limits in time that a test can wait for."""
    monkeypatch.setattr(limits, "PROBE_LIMIT_S", 0.3)
    monkeypatch.setattr(limits, "PROBE_BYTES_LIMIT_S", 0.3)


def test_an_agent_is_reached_and_its_link_measured() -> None:
    async def conversation(peer, _):
        return await dial(peer, SECRET), await dial(peer, SECRET, payload=True)

    plain, full = talk(conversation)
    assert (plain.outcome, full.outcome) == (REACHED, REACHED)
    assert plain.bandwidth_mb_s is None
    assert 0 < plain.latency_s < limits.PROBE_LIMIT_S
    assert full.bandwidth_mb_s > 0


@pytest.mark.parametrize("theirs", ["8" * 64, None])
def test_without_the_same_secret_nobody_is_reached(theirs) -> None:
    found = talk(lambda peer, _: dial(peer, SECRET), secret=theirs)
    assert found.outcome == (STRANGER if theirs else CUT)


def test_another_agent_at_the_same_address_is_a_stranger() -> None:
    """As where two machines both say 127.0.0.1: each would reach itself and take it for the other."""
    found = talk(lambda peer, _: dial(Peer("c", "c" * 16, peer.address, peer.port), SECRET))
    assert found.outcome == STRANGER


def test_a_port_on_which_nothing_listens_is_refused() -> None:
    async def conversation(peer, _):
        return peer

    assert asyncio.run(dial(talk(conversation), SECRET)).outcome == REFUSED


@pytest.mark.parametrize(("says", "outcome"), [(b"", CUT), (b"HTTP/1.1 400 Bad Request\r\n" * 4, STRANGER)])
def test_another_program_on_the_port_is_told_apart(says, outcome, short) -> None:
    async def all_of_it():
        async def other(reader, writer):
            writer.write(says)
            await rest(reader)
            writer.close()

        async with await listen("127.0.0.1", 0, other) as server:
            return await dial(Peer("b", INSTANCE, "127.0.0.1", server.sockets[0].getsockname()[1]), SECRET)

    assert asyncio.run(all_of_it()).outcome == outcome


def test_a_way_without_an_answer_is_given_up(short, monkeypatch) -> None:
    async def never(*_):
        await asyncio.sleep(PATIENCE_S)

    monkeypatch.setattr(asyncio, "open_connection", never)
    assert asyncio.run(dial(Peer("b", INSTANCE, "192.0.2.1", 9), SECRET)).outcome == NO_ANSWER


def test_a_link_that_carries_hardly_anything_is_judged_by_that(short) -> None:
    """The other side never says that it received the payload."""

    async def all_of_it():
        answering = ProbeServer(INSTANCE)
        answering.secret = SECRET

        async def half(reader, writer):
            await answering._introduce(reader, writer)
            for _ in range(limits.PROBE_PINGS):
                writer.write(await reader.readexactly(1 + probe.PING_BYTES))
            await asyncio.sleep(2 * limits.PROBE_BYTES_LIMIT_S)
            writer.transport.abort()
            ended.set()

        ended = asyncio.Event()
        async with await listen("127.0.0.1", 0, half) as server:
            peer = Peer("b", INSTANCE, "127.0.0.1", server.sockets[0].getsockname()[1])
            found = await dial(peer, SECRET, payload=True)
            await ended.wait()
            await asyncio.sleep(0.01)
            return found

    found = asyncio.run(all_of_it())
    assert found.outcome == REACHED
    most = limits.PROBE_FRAME_BYTES / limits.PROBE_BYTES_LIMIT_S / 1e6
    assert found.bandwidth_mb_s == pytest.approx(most, rel=0.1)


# Strangers


def test_a_stranger_gets_one_digest_at_most_and_is_cut_off(short) -> None:
    """Whatever it says, in however many pieces; and the agent answers others as before."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)

    async def conversation(peer, answering):
        for _ in range(60):
            hostile = chance.randbytes(chance.choice((0, 1, 19, 20, 21, 52, 300, 5_000)))
            if chance.random() < 0.5:
                hostile = MAGIC + hostile
            async with line_to(peer) as (reader, writer):
                writer.write(hostile)
                if chance.random() < 0.5:
                    writer.write_eof()
                assert len(await rest(reader)) <= probe.NONCE_BYTES + probe.DIGEST_BYTES
        assert (await dial(peer, SECRET)).outcome == REACHED
        return answering._open

    assert not talk(conversation)


def test_without_a_proof_no_ping_is_answered() -> None:
    async def conversation(peer, _):
        async with line_to(peer) as (reader, writer):
            writer.write(MAGIC + b"n" * probe.NONCE_BYTES + b"p" * probe.DIGEST_BYTES + PING + b"12345678")
            return await rest(reader)

    assert len(talk(conversation)) == probe.NONCE_BYTES + probe.DIGEST_BYTES


def test_even_one_who_knows_the_secret_gets_no_more_than_a_share(short) -> None:
    big = PAYLOAD + COUNT.pack(limits.PROBE_FRAME_BYTES) + b"x" * limits.PROBE_FRAME_BYTES
    frames = limits.PROBE_BYTES // limits.PROBE_FRAME_BYTES
    for asked, answered in (
        (PING + b"12345678", None),
        ((PING + b"12345678") * 100, limits.PROBE_PINGS * 9),
        (PAYLOAD + COUNT.pack(limits.PROBE_FRAME_BYTES + 1), 0),
        (PAYLOAD + COUNT.pack(0), 0),
        (PAYLOAD + b"\xff\xff\xff\xff", 0),
        (b"?", 0),
        (big * (2 * frames), frames * 5),
    ):

        async def conversation(peer, _, asked=asked):
            async with line_to(peer) as (reader, writer):
                await introduced(reader, writer)
                writer.write(asked)
                heard = b""
                with contextlib.suppress(ConnectionError):  # what it does not read is cut off
                    while part := await reader.read(1 << 16):
                        heard += part
                return heard

        heard = talk(conversation)
        assert len(heard) == 9 if answered is None else len(heard) <= answered, asked[:6]


def test_slow_strangers_do_not_keep_others_out(short) -> None:
    """One address holds a few connections, and none for long."""

    async def conversation(peer, answering):
        async with contextlib.AsyncExitStack() as stack:
            lines = [await stack.enter_async_context(line_to(peer)) for _ in range(50)]
            for _, writer in lines:
                writer.write(MAGIC[:1])
            await asyncio.sleep(0.05)
            held = answering._open.total()
            for reader, _ in lines:
                assert await rest(reader) == b""  # all are cut off by themselves
            return held, await dial(peer, SECRET)

    held, found = talk(conversation)
    assert 0 < held <= limits.PROBE_CONNECTIONS_PER_ADDRESS
    assert found.outcome == REACHED


# Who is dialled when


def peers(number):
    return tuple(Peer(f"n{i}", f"{i:016x}", "127.0.0.1", 1 + i) for i in range(number))


def test_the_one_dialled_longest_ago_is_next_and_nobody_too_often() -> None:
    three = peers(3)
    dialled_s = {three[0].instance: 10.0, three[1].instance: 8.0, three[2].instance: 9.0}
    assert next_peer(three, dialled_s, 8.0 + limits.PROBE_EVERY_S) is three[1]
    assert next_peer(three, dialled_s, 7.9 + limits.PROBE_EVERY_S) is None
    assert next_peer((), {}, 0.0) is None
    for number in (1, 5, 20, limits.FLEET_NODES):
        assert number / dial_every_s(number) <= limits.PROBES_PER_S


def test_results_are_kept_until_they_have_arrived() -> None:
    from daisychain.agent.answer import Answer

    now_s = [100.0]
    dialled = []

    async def pretend(peer, secret, payload):
        dialled.append((peer.name, payload))
        return probe.Found(REACHED, 0.001, 5.0 if payload else None)

    async def all_of_it():
        prober = Prober(lambda: now_s[0], pretend)
        assert await prober._dial_next() is False
        prober.update(Answer(SECRET, peers(2), "n1"))
        assert await prober._dial_next()
        assert dialled == [("n1", True)]  # the turn comes first
        now_s[0] += 0.5
        [result] = prober.unsent()
        assert (result.to, result.age_s, result.bandwidth_mb_s) == ("n1", 0.5, 5.0)
        assert await prober._dial_next()  # meanwhile, the other one
        assert await prober._dial_next() is False
        prober.sent()
        assert [result.to for result in prober.unsent()] == ["n0"]
        prober.update(Answer(SECRET, ()))  # it is gone
        assert prober.unsent() == []

    asyncio.run(all_of_it())
