"""The lobby: who is told what, and who is not. Time is a number here."""

import json
import random
from collections import defaultdict

import pytest

from daisychain.base import limits
from daisychain.room.groups import Client
from daisychain.room.lobby import HOST_AWAY, ROOM_OVER, Lobby
from daisychain.room.messages import CROCKFORD, clean_name, device_id, pass_digest, room_code
from daisychain.room.rooms import Close

CODE, OTHER = "ABCDEFGH01234", "ABCDEFGH01235"
UNAPPROVED = {"waiting", "denied", "error", "ping"}


class World:
    """A lobby, and everything that its sockets were sent."""

    def __init__(self, **settings):
        self.lobby = Lobby(**settings)
        self.now_s = 1_000.0
        self.sent = defaultdict(list)
        self.closed = {}
        self.sockets = 0
        self.trace = []  # (socket, message) of the last event

    def do(self, actions):
        self.trace = []
        for action in actions:
            assert action.socket not in self.closed, f"sent after the close: {action}"
            if isinstance(action, Close):
                self.closed[action.socket] = action.code
            else:
                self.sent[action.socket].append(action.message)
                self.trace.append((action.socket, action.message))

    def open(self, address="192.168.1.2", group="local"):
        self.sockets += 1
        self.do(self.lobby.connect(self.sockets, Client(address, group), self.now_s))
        return self.sockets

    def say(self, socket, **message):
        self.do(self.lobby.receive(socket, json.dumps(message), self.now_s))
        return self.trace

    def enter(self, room=None, session=None, name="phone", pass_=None, **where):
        socket = self.open(**where)
        session = session or f"{socket:032x}"
        optional = {key: value for key, value in {"room": room, "pass": pass_}.items() if value}
        self.say(socket, type="hello", name=name, session=session, **optional)
        return socket

    def leave(self, socket):
        self.do(self.lobby.disconnect(socket, self.now_s))

    def wait(self, duration_s, answering=()):
        """Let time pass in seconds; the sockets named answer their pings."""
        for _ in range(int(duration_s)):
            self.now_s += 1
            self.do(self.lobby.tick(self.now_s))
            for socket, message in self.trace:
                if message == {"type": "ping"} and socket in answering:
                    self.lobby.receive(socket, '{"type":"pong"}', self.now_s)

    def kinds(self, socket):
        return [message["type"] for message in self.sent[socket]]

    def last(self, socket):
        return self.sent[socket][-1]

    def id(self, socket):
        return next(m["id"] for m in self.sent[socket] if m["type"] == "welcome")


def test_one_network_is_one_group_and_another_is_not():
    world = World()
    one, two, far = world.enter(name="one"), world.enter(name="two"), world.enter(group="203.0.113.9/32")
    assert world.last(two)["members"] == [{"id": world.id(one), "name": "one"}]
    assert world.last(one) == {"type": "joined", "id": world.id(two), "name": "two"}
    assert world.last(far)["members"] == []
    assert world.last(far)["room"] is None
    world.leave(two)
    assert world.last(one) == {"type": "left", "id": world.id(two)}
    assert world.kinds(far) == ["welcome"]


def test_the_welcome_says_what_a_page_needs():
    ice = [{"urls": ["stun:example.org"]}]
    world = World(members=3, ice=ice)
    welcome = world.last(world.enter())
    assert welcome["limits"] == {"members": 3, "ping_s": limits.ROOM_PING_EVERY_S}
    assert welcome["ice"] == ice
    assert welcome["host"] is False


def test_hidden_devices_are_alone_and_told_so():
    world = World()
    one, two = world.enter(group=None), world.enter(group=None)
    assert world.last(one)["members"] == world.last(two)["members"] == []
    assert "--trusted-proxy" in world.last(two)["notice"]
    assert "notice" not in world.last(world.enter())


def test_the_first_is_host_and_lets_others_in():
    world = World()
    host = world.enter(CODE, name="host")
    assert world.last(host)["host"] is True
    assert world.last(host)["room"] == CODE
    guest = world.enter(CODE.lower(), name="guest")
    assert world.sent[guest] == [{"type": "waiting"}]
    assert world.last(host) == {"type": "knock", "id": device_id(f"{guest:032x}"), "name": "guest"}
    world.say(host, type="accept", id=world.last(host)["id"])
    welcome = next(m for m in world.sent[guest] if m["type"] == "welcome")
    assert welcome["members"] == [{"id": world.id(host), "name": "host"}]
    assert welcome["host"] is False
    assert world.last(guest) == {"type": "host", "id": world.id(host)}
    assert world.last(host)["type"] == "joined"


def test_who_is_denied_is_told_and_gone():
    world = World()
    host, guest = world.enter(CODE), world.enter(CODE)
    world.say(host, type="deny", id=world.last(host)["id"])
    assert world.last(guest)["type"] == "denied"
    assert guest in world.closed
    world.say(host, type="accept", id=device_id(f"{guest:032x}"))  # too late: nobody waits
    assert world.kinds(guest) == ["waiting", "denied"]


def test_only_the_host_lets_in():
    world = World()
    host, guest = accepted_pair(world)
    knocker = world.enter(CODE)
    world.say(guest, type="accept", id=device_id(f"{knocker:032x}"))
    world.say(knocker, type="accept", id=device_id(f"{knocker:032x}"))
    assert world.kinds(knocker) == ["waiting"]
    world.leave(knocker)
    assert world.last(host) == {"type": "gone", "id": device_id(f"{knocker:032x}")}
    assert "gone" not in world.kinds(guest)


def accepted_pair(world, code=CODE):
    host, guest = world.enter(code), world.enter(code)
    world.say(host, type="accept", id=device_id(f"{guest:032x}"))
    return host, guest


def test_the_hosts_role_passes_on_with_those_who_wait():
    world = World()
    host, guest = accepted_pair(world)
    knocker = world.enter(CODE, name="late")
    world.leave(host)
    assert world.sent[guest][-2:] == [
        {"type": "host", "id": world.id(guest)},
        {"type": "knock", "id": device_id(f"{knocker:032x}"), "name": "late"},
    ]
    world.say(guest, type="accept", id=device_id(f"{knocker:032x}"))
    assert "welcome" in world.kinds(knocker)
    back = world.enter(CODE, session=f"{host:032x}")  # the first host comes back as a plain member
    assert next(m for m in world.sent[back] if m["type"] == "welcome")["host"] is False


def test_a_page_that_reconnects_gets_its_id_back_without_a_knock():
    world = World()
    _, guest = accepted_pair(world)
    identity = world.id(guest)
    world.leave(guest)
    back = world.enter(CODE, session=f"{guest:032x}")
    assert world.id(back) == identity
    assert "waiting" not in world.kinds(back)


def test_a_page_that_reconnects_first_replaces_its_old_socket_and_keeps_its_role():
    world = World()
    host, guest = accepted_pair(world)
    again = world.enter(CODE, session=f"{host:032x}")
    assert world.last(host)["code"] == "replaced"
    assert host in world.closed
    assert world.last(again)["host"] is True
    assert world.kinds(guest)[-2:] == ["left", "joined"]
    alone = world.enter(group="g")
    world.enter(group="g", session=f"{alone:032x}")
    assert world.lobby.sizes()["rooms"] == 2
    late = world.enter(group="g")
    assert len(world.last(late)["members"]) == 1


def test_an_empty_room_waits_for_its_own_and_then_ends():
    world = World()
    host = world.enter(CODE)
    world.leave(host)
    knocker = world.enter(CODE)
    world.wait(limits.ROOM_EMPTY_KEPT_S - 1, answering=[knocker])
    assert "welcome" not in world.kinds(knocker)
    back = world.enter(CODE, session=f"{host:032x}")
    assert world.kinds(back) == ["welcome", "knock"]
    world.leave(back)
    world.wait(limits.ROOM_EMPTY_KEPT_S + 2, answering=[knocker])
    assert world.last(knocker) == {"type": "denied", "reason": ROOM_OVER}
    assert knocker in world.closed
    assert world.lobby.sizes()["rooms"] == 0


def test_who_waits_is_told_when_nobody_is_there_to_ask():
    world = World()
    host = world.enter(CODE)
    early = world.enter(CODE)
    world.leave(host)
    late = world.enter(CODE)
    away = {"type": "waiting", "reason": HOST_AWAY}
    assert world.sent[early] == [{"type": "waiting"}, away]
    assert world.sent[late] == [away]
    back = world.enter(CODE, session=f"{host:032x}")
    assert world.last(early) == world.last(late) == {"type": "waiting"}
    assert world.kinds(back) == ["welcome", "knock", "knock"]


PASS, WRONG = "a" * 32, "b" * 32


def let_in(world, host, **hello):
    guest = world.enter(CODE, **hello)
    world.say(host, type="accept", id=device_id(f"{guest:032x}"))
    return guest


def test_who_was_let_in_comes_back_by_its_pass_as_another_device():
    world = World()
    host = world.enter(CODE)
    guest = let_in(world, host, pass_=PASS)
    world.leave(guest)
    back = world.enter(CODE, pass_=PASS)
    assert world.kinds(back) == ["welcome", "host"]
    assert world.id(back) != world.id(guest)
    twin = world.enter(CODE, pass_=PASS)  # a tab that was duplicated
    assert "welcome" in world.kinds(twin)
    assert back not in world.closed
    assert world.kinds(world.enter(CODE, pass_=WRONG)) == ["waiting"]
    assert world.kinds(world.enter(CODE)) == ["waiting"]
    said = json.dumps([*world.sent.values()])
    assert PASS not in said
    assert pass_digest(PASS) not in said


def test_a_session_with_another_pass_knocks_and_leaves_the_member_in_peace():
    world = World()
    host = world.enter(CODE)
    guest = let_in(world, host, pass_=PASS)
    other = world.enter(CODE, session=f"{guest:032x}", pass_=WRONG)
    assert world.kinds(other) == ["waiting"]
    world.say(guest, type="signal", to=world.id(host), data=1)
    assert world.last(host)["type"] == "signal"
    world.leave(guest)
    assert world.last(host) == {"type": "left", "id": world.id(guest)}
    assert world.kinds(other) == ["waiting"]
    forged = world.enter(CODE, session=f"{host:032x}", pass_=WRONG)  # not even its own host
    world.say(forged, type="accept", id=world.id(host))
    assert world.kinds(forged) == ["waiting"]


def test_a_host_that_reloads_alone_is_host_again_and_with_others_a_member():
    world = World()
    host = world.enter(CODE, pass_=PASS)
    world.leave(host)
    knocker = world.enter(CODE, pass_=WRONG)
    world.wait(limits.ROOM_EMPTY_KEPT_S - 1, answering=[knocker])
    host = world.enter(CODE, pass_=PASS)
    assert world.last(host) == {"type": "knock", "id": device_id(f"{knocker:032x}"), "name": "phone"}
    assert next(m for m in world.sent[host] if m["type"] == "welcome")["host"] is True
    world.say(host, type="accept", id=device_id(f"{knocker:032x}"))
    world.leave(host)
    assert world.last(knocker) == {"type": "host", "id": world.id(knocker)}
    host = world.enter(CODE, pass_=PASS)
    assert world.kinds(host) == ["welcome", "host"]


def test_a_pass_that_was_denied_or_is_of_another_room_or_time_opens_nothing():
    world = World()
    host = world.enter(CODE)
    world.enter(OTHER, pass_=PASS)
    denied = world.enter(CODE, pass_=PASS)
    world.say(host, type="deny", id=device_id(f"{denied:032x}"))
    again = world.enter(CODE, pass_=PASS)
    assert world.kinds(again) == ["waiting"]
    world.say(host, type="accept", id=device_id(f"{again:032x}"))
    world.leave(again)
    world.leave(host)
    world.wait(limits.ROOM_EMPTY_KEPT_S + 2)
    world.enter(CODE)  # the code again, but another room
    assert world.kinds(world.enter(CODE, pass_=PASS)) == ["waiting"]


def test_guessing_passes_is_throttled():
    world = World()
    host = world.enter(CODE, address="host")
    let_in(world, host, address="guest", pass_=PASS)
    for number in range(limits.ROOM_GUESSES_BURST):
        guesser = world.enter(CODE, address="a", pass_=f"{number:032x}")
        assert world.kinds(guesser) == ["waiting"]
        world.leave(guesser)
    assert world.last(world.enter(CODE, address="a", pass_=WRONG))["code"] == "throttled"
    assert "welcome" in world.kinds(world.enter(CODE, address="a", pass_=PASS))


def test_a_full_group_and_a_full_room_say_so():
    world = World(members=2)
    world.enter()
    world.enter()
    third = world.enter()
    assert world.last(third)["code"] == "full"
    assert third in world.closed
    host = world.enter(CODE)
    early, late = world.enter(CODE), world.enter(CODE)
    world.say(host, type="accept", id=device_id(f"{early:032x}"))
    world.say(host, type="accept", id=device_id(f"{late:032x}"))
    assert world.last(late)["type"] == "denied"
    assert "2 devices" in world.last(late)["reason"]


def test_fifty_wrong_codes_in_a_row_are_throttled():
    world = World()
    rng = random.Random(1)
    answers = []
    for _ in range(50):
        socket = world.enter("".join(rng.choices(CROCKFORD, k=13)), address="203.0.113.9")
        answers.append(world.last(socket).get("code", world.last(socket)["type"]))
        world.leave(socket)
    assert answers == ["welcome"] * limits.ROOM_GUESSES_BURST + ["throttled"] * (
        50 - limits.ROOM_GUESSES_BURST
    )
    assert "wait" in world.last(socket)["message"]
    # The right code looks no different to the throttled address, and others are not touched.
    host = world.enter(CODE, address="198.51.100.1")
    right = world.enter(CODE, address="203.0.113.9")
    assert world.last(right)["code"] == "throttled"
    assert world.kinds(host) == ["welcome"]
    world.wait(60 / limits.ROOM_GUESSES_PER_MINUTE + 1, answering=[host])
    assert world.kinds(world.enter(CODE, address="203.0.113.9")) == ["waiting"]


def test_codes_that_are_none_and_knocks_that_are_denied_count_too():
    world = World()
    for _ in range(limits.ROOM_GUESSES_BURST):
        assert world.last(world.enter("short", address="a"))["code"] == "bad_room"
    assert world.last(world.enter("short", address="a"))["code"] == "throttled"
    host = world.enter(CODE, address="host")
    for _ in range(limits.ROOM_GUESSES_BURST):
        knocker = world.enter(CODE, address="b")
        world.say(host, type="deny", id=device_id(f"{knocker:032x}"))
    assert world.last(world.enter(CODE, address="b"))["code"] == "throttled"
    for _ in range(2 * limits.ROOM_GUESSES_BURST):  # whoever is let in has not guessed
        knocker = world.enter(CODE, address="c")
        world.say(host, type="accept", id=device_id(f"{knocker:032x}"))
        assert "welcome" in world.kinds(knocker)
        world.leave(knocker)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "3",
        "null",
        "{}",
        '{"type":7}',
        '{"type":["hello"]}',
        '{"type":"bye"}',
        '{"type":"hello"}',
        '{"type":"hello","name":"x"}',
        '{"type":"hello","name":7,"session":"' + "0" * 32 + '"}',
        '{"type":"hello","name":"x","session":"' + "0" * 31 + '"}',
        '{"type":"hello","name":"x","session":"' + "0" * 32 + '","room":7}',
        '{"type":"hello","name":"x","session":"' + "0" * 32 + '","pass":7}',
        '{"type":"hello","name":"x","session":"' + "0" * 32 + '","pass":""}',
        '{"type":"hello","name":"x","session":"' + "0" * 32 + '","pass":"' + "A" * 32 + '"}',
        '{"type":"signal","to":"' + "0" * 16 + '","data":1}',
        '{"type":"pong"}',
        '{"type":"hello","name":"x","session":"' + "0" * 32 + '","more":NaN}',
        '{"type":"hello","name":"x","session":"' + "0" * 32 + '","more":1e999}',
        "[" * 8_000,
        None,
    ],
)
def test_what_no_page_says_ends_the_socket(text):
    world = World()
    socket = world.open()
    world.do(world.lobby.receive(socket, text, world.now_s))
    assert world.last(socket)["code"] == "bad_message"
    assert socket in world.closed
    assert world.lobby.sizes() == dict.fromkeys(world.lobby.sizes(), 0)


def test_a_second_hello_and_a_signal_of_one_who_waits_end_the_socket():
    world = World()
    member = world.enter(CODE)
    knocker = world.enter(CODE)
    world.say(knocker, type="signal", to=world.id(member), data="let me in")
    assert world.last(knocker)["code"] == "bad_message"
    assert "signal" not in world.kinds(member)
    world.say(member, type="hello", name="x", session="0" * 32)
    assert world.last(member)["code"] == "bad_message"


def test_large_and_fast_messages_end_the_socket():
    world = World()
    large, other = world.enter(), world.enter()
    world.say(large, type="signal", to=world.id(other), data="é" * (limits.ROOM_MESSAGE_BYTES // 6 - 10))
    assert world.kinds(other)[-1] == "signal"
    world.say(large, type="signal", to=world.id(other), data="x" * limits.ROOM_MESSAGE_BYTES)
    assert world.last(large)["code"] == "too_large"
    fast = world.enter()
    for _ in range(limits.ROOM_MESSAGES_BURST - 1):
        world.say(fast, type="signal", to=world.id(other), data=1)
    assert fast not in world.closed
    world.say(fast, type="pong")
    assert world.last(fast)["code"] == "too_fast"


def test_an_address_and_the_server_hold_a_bounded_number(monkeypatch):
    monkeypatch.setattr(limits, "ROOM_SOCKETS_PER_ADDRESS", 3)
    monkeypatch.setattr(limits, "ROOM_SOCKETS", 5)
    monkeypatch.setattr(limits, "ROOM_ROOMS", 2)
    monkeypatch.setattr(limits, "ROOM_KNOCKERS", 1)
    world = World()
    first = [world.open(address="a") for _ in range(4)]
    assert [socket in world.closed for socket in first] == [False, False, False, True]
    world.leave(first[0])
    assert world.open(address="a") not in world.closed
    other = [world.open(address="b") for _ in range(3)]
    assert world.last(other[2])["code"] == "full"
    for socket in [*first[1:], *other]:
        world.leave(socket)
    host = world.enter(CODE)
    spare = world.enter(OTHER, address="d")
    assert world.last(world.enter("Z" * 13, address="e"))["code"] == "full"
    world.leave(spare)
    world.enter(CODE, address="f")
    assert world.last(world.enter(CODE, address="e"))["code"] == "full"
    assert world.kinds(host).count("knock") == 1


def test_a_room_remembers_a_bounded_number_of_devices(monkeypatch):
    monkeypatch.setattr(limits, "ROOM_APPROVED", 3)
    world = World()
    host = world.enter(CODE)
    passes = [f"{number:032x}" for number in range(4)]
    for pass_ in passes:
        world.leave(let_in(world, host, pass_=pass_))
    assert world.kinds(world.enter(CODE, pass_=passes[0])) == ["waiting"]
    assert "welcome" in world.kinds(world.enter(CODE, pass_=passes[3]))
    world.leave(host)
    assert "welcome" in world.kinds(world.enter(CODE, session=f"{host:032x}"))


def test_silent_sockets_go_and_answering_ones_stay():
    world = World()
    mute = world.open()
    silent, alive = world.enter(), world.enter()
    world.wait(limits.ROOM_HELLO_LIMIT_S + 1, answering=[alive])
    assert mute in world.closed
    world.wait(3 * limits.ROOM_SILENT_LIMIT_S, answering=[alive])
    assert silent in world.closed
    assert alive not in world.closed
    assert world.last(alive) == {"type": "ping"}
    assert {"type": "left", "id": world.id(silent)} in world.sent[alive]
    assert world.lobby.sizes()["members"] == 1


def test_names_are_shown_cleaned_and_changed_for_all():
    world = World()
    one, two = world.enter(name=" \u202eevil\n\x07 "), world.enter(name="")
    assert world.last(two)["members"][0]["name"] == "evil"
    assert world.last(one)["name"] == "device"
    world.say(two, type="rename", name="x" * 500)
    assert world.last(one) == {
        "type": "renamed",
        "id": world.id(two),
        "name": "x" * limits.ROOM_NAME_CHARACTERS,
    }
    assert world.kinds(two) == ["welcome"]


@pytest.mark.parametrize(
    "name", ["", "\u200b", "\ud800", "\t\n", "a\u0000b", "👩🏽 phone", "نام", "x" * 10_000]
)
def test_a_clean_name_is_one_short_line(name):
    cleaned = clean_name(name)
    assert cleaned
    assert cleaned.isprintable()
    assert len(cleaned) <= limits.ROOM_NAME_CHARACTERS
    assert clean_name(cleaned) == cleaned


def test_room_codes():
    assert room_code("abcd-efgh-01234") == room_code("ABCDEFGHOI234") == CODE
    for bad in ("", "ABCDEFGH0123", "ABCDEFGHU1234", "ABCDEFGH0123é", "A" * 33, "ABCDEFGH 0123"):
        assert room_code(bad) is None


class Walk:
    """Random devices in random rooms, and what may never happen to them."""

    PLACES = ("g1", "g2", CODE, OTHER)

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.world = World(members=3)
        self.place = {}  # socket → where it asked to be
        self.session = {}
        self.pass_ = {}
        self.open = []
        self.allowed = {CODE: set(), OTHER: set()}  # passes that a host has let in, or that made the room

    def step(self):
        kind = self.rng.choice(
            (
                "enter",
                "enter",
                "leave",
                "signal",
                "signal",
                "signal",
                "accept",
                "deny",
                "time",
                "back",
                "reload",
                "forge",
            )
        )
        getattr(self, kind)()
        self.check()

    def enter(self, session=None, pass_=None):
        place = self.rng.choice(self.PLACES)
        socket = self.world.open(address=f"a{self.rng.randrange(9)}", group=place)
        session = session or f"{self.rng.getrandbits(128):032x}"
        pass_ = pass_ or f"{self.rng.getrandbits(128):032x}"
        self.place[socket], self.session[socket], self.pass_[socket] = place, session, pass_
        self.open.append(socket)
        room = {"room": place} if place in (CODE, OTHER) else {}
        creates = bool(room) and place not in self.world.lobby._rooms
        if creates:
            self.allowed[place] = {pass_}
        self.world.say(socket, type="hello", name=f"n{socket}", session=session, **room, **{"pass": pass_})

    def back(self):
        if self.session:
            socket = self.rng.choice(list(self.session))
            self.enter(self.session[socket], self.pass_[socket])

    def reload(self):
        if self.session:
            self.enter(pass_=self.rng.choice(list(self.pass_.values())))

    def forge(self):
        if self.session:
            self.enter(self.rng.choice(list(self.session.values())))

    def leave(self):
        if self.open:
            self.world.leave(self.open.pop(self.rng.randrange(len(self.open))))

    def signal(self):
        if self.open:
            sender = self.rng.choice(self.open)
            target = device_id(self.session[self.rng.choice(list(self.session))])
            self.world.say(sender, type="signal", to=target, data=sender)

    def accept(self):
        self.answer("accept")

    def deny(self):
        self.answer("deny")

    def answer(self, kind):
        if not self.open:
            return
        socket = self.rng.choice(self.open)
        other = self.rng.choice(self.open)
        place = self.place[socket]
        if kind == "accept" and self.is_host(socket):
            same = [s for s in self.open if self.session[s] == self.session[other] and self.place[s] == place]
            self.allowed[place].update(self.pass_[s] for s in same)
        self.world.say(socket, type=kind, id=device_id(self.session[other]))

    def time(self):
        alive = [socket for socket in self.open if self.rng.random() < 0.9]
        self.world.wait(self.rng.randrange(1, 60), answering=alive)

    def is_host(self, socket):
        told = [m for m in self.world.sent[socket] if m["type"] in ("welcome", "host")]
        hosts = [
            m["id"] if m["type"] == "host" else m["id"] if m["host"] else None for m in told
        ]  # the last word counts
        return bool(told) and hosts[-1] == self.world.id(socket) and socket in self.open

    def check(self):
        self.open = [socket for socket in self.open if socket not in self.world.closed]
        for socket, messages in self.world.sent.items():
            kinds = [m["type"] for m in messages]
            before = kinds[: kinds.index("welcome")] if "welcome" in kinds else kinds
            assert set(before) <= UNAPPROVED
            if "welcome" in kinds and self.place[socket] in self.allowed:
                assert self.pass_[socket] in self.allowed[self.place[socket]] or socket not in self.open
        for receiver, message in self.world.trace:
            if message["type"] == "signal":
                sender = message["data"]
                assert self.place[sender] == self.place[receiver]
                assert message["from"] == self.world.id(sender)
                assert "welcome" in self.world.kinds(sender)
        self.check_views()

    def check_views(self):
        """Everyone in a place knows exactly who else is there, and a room has one host."""
        inside = [s for s in self.open if "welcome" in self.world.kinds(s)]
        for place in self.PLACES:
            here = [s for s in inside if self.place[s] == place]
            ids = {self.world.id(s) for s in here}
            assert len(ids) == len(here) <= 3
            for socket in here:
                assert self.view(socket) | {self.world.id(socket)} == ids
            if place in self.allowed and here:
                assert sum(self.is_host(s) for s in here) == 1

    def view(self, socket):
        seen = set()
        for message in self.world.sent[socket]:
            if message["type"] == "welcome":
                seen = {member["id"] for member in message["members"]}
            elif message["type"] == "joined":
                seen.add(message["id"])
            elif message["type"] == "left":
                seen.discard(message["id"])
        return seen


@pytest.mark.parametrize("seed", range(20))
def test_rooms_never_cross_whatever_happens(seed):
    walk = Walk(seed)
    for _ in range(250):
        walk.step()
    for socket in walk.open:
        walk.world.leave(socket)
    walk.world.wait(limits.ROOM_EMPTY_KEPT_S + limits.ROOM_GUESSES_BURST * 60)
    assert walk.world.lobby.sizes() == dict.fromkeys(walk.world.lobby.sizes(), 0)
