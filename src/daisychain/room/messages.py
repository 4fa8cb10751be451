"""What a page may say: JSON text in, a typed message out, or a refusal that says what is wrong."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from daisychain.base import limits

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
#: What people read for another character of the alphabet, and what they put in between.
MISREAD = str.maketrans({"O": "0", "I": "1", "L": "1", "-": None, " ": None})
SECRET = re.compile(r"[0-9a-f]{32}")
IDENTITY = re.compile(r"[0-9a-f]{16}")
NAMELESS = "device"


class BadMessageError(ValueError):
    """A message that no page of ours sends."""


@dataclass(frozen=True)
class Hello:
    name: str
    session: str
    room: str | None  # as the page wrote it
    pass_: str | None = None  # by which a room knows the device under another session


@dataclass(frozen=True)
class Signal:
    to: str
    data: Any


@dataclass(frozen=True)
class Answer:
    """The host's word about a device that knocks."""

    id: str
    accepted: bool


@dataclass(frozen=True)
class Rename:
    name: str


@dataclass(frozen=True)
class Pong:
    pass


Message = Hello | Signal | Answer | Rename | Pong


def parse(text: str) -> Message:
    """A page's message. Raises BadMessageError."""
    try:
        fields = json.loads(text)
        json.dumps(fields, allow_nan=False)  # what could not be passed on as JSON
    except (ValueError, RecursionError):
        raise BadMessageError("a message is one JSON object") from None
    if not isinstance(fields, dict):
        raise BadMessageError("a message is one JSON object")
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in READERS:
        raise BadMessageError(f"a message has one of the types {', '.join(READERS)}")
    return READERS[kind](fields)


def _hello(fields: Mapping[str, Any]) -> Hello:
    room = fields.get("room")
    if room is not None and not isinstance(room, str):
        raise BadMessageError("room is text")
    pass_ = None if fields.get("pass") is None else _text(fields, "pass", SECRET)
    return Hello(clean_name(_text(fields, "name")), _text(fields, "session", SECRET), room or None, pass_)


def _signal(fields: Mapping[str, Any]) -> Signal:
    if "data" not in fields:
        raise BadMessageError("signal has data")
    return Signal(_text(fields, "to", IDENTITY), fields["data"])


READERS: Mapping[str, Callable[[Mapping[str, Any]], Message]] = {
    "hello": _hello,
    "signal": _signal,
    "accept": lambda fields: Answer(_text(fields, "id", IDENTITY), True),
    "deny": lambda fields: Answer(_text(fields, "id", IDENTITY), False),
    "rename": lambda fields: Rename(clean_name(_text(fields, "name"))),
    "pong": lambda fields: Pong(),
}


def _text(fields: Mapping[str, Any], name: str, pattern: "re.Pattern[str] | None" = None) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or (pattern and not pattern.fullmatch(value)):
        raise BadMessageError(f"{name} is {f'text of the form {pattern.pattern}' if pattern else 'text'}")
    return value


def clean_name(name: str) -> str:
    """A name that can be shown anywhere: one line, no control or direction characters, not too long."""
    spaced = "".join(" " if c.isspace() else c for c in name)
    shown = "".join(c for c in spaced if not unicodedata.category(c).startswith("C"))
    return " ".join(shown.split())[: limits.ROOM_NAME_CHARACTERS].strip() or NAMELESS


def room_code(text: str) -> str | None:
    """A room's code as it is compared; None for what cannot be one."""
    code = text.upper().translate(MISREAD)
    least, most = limits.ROOM_CODE_CHARACTERS
    return code if least <= len(code) <= most and set(code) <= set(CROCKFORD) else None


def device_id(session: str) -> str:
    """The id that a session always gets, here and after a restart; it does not give the session away."""
    return hashlib.sha256(f"daisychain session {session}".encode()).hexdigest()[:16]


def pass_digest(pass_: str) -> str:
    """What a room keeps of a pass. It is what is looked up, so the time that takes tells nothing of the pass."""
    return hashlib.sha256(f"daisychain pass {pass_}".encode()).hexdigest()
