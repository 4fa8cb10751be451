"""What agents and dashboards say to each other: what is sound comes back the same, all else is refused by name."""

import json
import random

import pytest

from daisychain.agent.answer import Answer, Peer, read_answer
from daisychain.agent.report import REACHED, Probe, message_text, one_line, read_message
from daisychain.base import limits
from daisychain.base.errors import ReportError

from ..agent_help import as_json, report

PROBE = Probe("b", "b" * 16, 0.5, REACHED, 0.001, 12.5)
ANSWER = Answer("5" * 64, (Peer("b", "b" * 16, "10.0.0.2", 29_570), Peer("c", "c" * 16, "fe80::1", 1)), "b")
HOSTILE = (
    None, True, -1, 1e999, float("nan"), 10**400, "", "x" * 10_000, "two\nlines", "\x1b[31m", "\u202ertl", [], {}, [[]],
    "0.0.0.0", "224.0.0.1", "localhost", "../../etc", "<script>",
)  # fmt: skip


def message(**changes):
    fields = json.loads(message_text(report("a"), [PROBE]))
    fields["report"].update(changes)
    return fields


def test_a_message_comes_back_the_same() -> None:
    assert read_message(message_text(report("a", temperature_c=51.5, link_mbit_s=1e3), [PROBE])) == (
        report("a", temperature_c=51.5, link_mbit_s=1e3),
        [PROBE],
    )
    assert read_answer(as_json(ANSWER.to_json())) == ANSWER


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"name": "two\nlines"}, "name"),
        ({"name": "n" * 41}, "name"),
        ({"name": " a"}, "name"),
        ({"cores": 0}, "cores"),
        ({"cores": True}, "cores"),
        ({"cores": 2.5}, "cores"),
        ({"memory_bytes": 10**400}, "memory_bytes"),
        ({"load": -1}, "load"),
        ({"load": 1e300}, "load"),
        ({"address": "localhost"}, "address"),
        ({"address": "0.0.0.0"}, "address"),
        ({"address": "224.0.0.1"}, "address"),
        ({"probe_port": 65_536}, "probe_port"),
        ({"instance": "A" * 16}, "instance"),
        ({"proof": "certainly"}, "proof"),
        ({"proof": []}, "proof"),
        ({"temperature_c": "hot"}, "temperature_c"),
        ({"device_reason": "\u202ereversed"}, "device_reason"),
    ],
)
def test_a_field_that_cannot_be_is_named(changes, word) -> None:
    with pytest.raises(ReportError, match=f"report: {word} is .*; it has to be") as caught:
        read_message(as_json(message(**changes)))
    assert len(str(caught.value)) < 200
    assert caught.value.reason == "malformed"


def test_what_is_not_a_message_is_refused() -> None:
    large = b" " * limits.AGENT_REPORT_BYTES + b"{}"
    for text in (b"", b"[]", b"{", b"\xff", b"[" * 60_000, b"1" * 5_000, b'{"a": NaN}', b"null", large):
        with pytest.raises(ReportError, match="a message"):
            read_message(text)
    many = message()
    many["probes"] = many["probes"] * (limits.FLEET_NODES + 1)
    with pytest.raises(ReportError, match="probes is a list of at most"):
        read_message(as_json(many))


def test_another_protocol_says_what_to_install() -> None:
    with pytest.raises(ReportError, match="install the same version") as caught:
        read_message(as_json({**message(), "protocol": 99}))
    assert caught.value.reason == "protocol"


def test_hostile_values_in_any_place_are_read_or_refused() -> None:
    """Nothing else may come of them: no other exception, and nothing that could not be sent on."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    refusals = []
    for _ in range(1_000):
        fields, answer = message(), ANSWER.to_json()
        for place in (fields, fields["report"], fields["probes"][0], answer, answer["peers"][0]):
            if chance.random() < 0.4:
                place[chance.choice(list(place))] = chance.choice(HOSTILE)
        for text, read in ((json.dumps(fields), read_message), (json.dumps(answer), read_answer)):
            try:
                found = read(text.encode())
            except ReportError as error:
                refusals.append(str(error))
            else:
                if read is read_message:
                    message_text(*found)
    assert refusals
    assert all(refusal.isprintable() for refusal in refusals)


def test_a_line_is_made_of_anything() -> None:
    assert one_line(" a\n\tb\x00\u202ec ") == "a bc"
    assert one_line("x" * 1_000, 10) == "x" * 10
    assert one_line("abcd efgh", 5) == "abcd"
