"""JSON from another machine, field by field, each as what it must be or a ReportError that names it."""

import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from daisychain.base import limits
from daisychain.base.errors import ReportError

INSTANCE = re.compile(r"[0-9a-f]{16}")
SECRET = re.compile(r"[0-9a-f]{64}")
MOST = 1e18  # of any number in a message


def read_object(text: bytes, what: str, limit_bytes: int) -> dict[str, Any]:
    """A JSON object without NaN, of at most `limit_bytes`. Raises ReportError."""
    if len(text) > limit_bytes:
        raise ReportError(f"{what} has {len(text)} bytes; at most {limit_bytes} are read")
    try:
        fields = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise ReportError(f"{what} is not one JSON object") from None
    if not isinstance(fields, dict):
        raise ReportError(f"{what} is not one JSON object")
    return fields


def one_line(text: str, most: int = limits.AGENT_WORDS_CHARACTERS) -> str:
    """Text as a report may hold it: one line, printable, not too long."""
    spaced = " ".join(text.split())
    return "".join(c for c in spaced if c.isprintable())[:most].strip()


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


class Reader:
    """The fields of one object, each as what it must be."""

    def __init__(self, fields: object, what: str) -> None:
        if not isinstance(fields, Mapping):
            raise ReportError(f"{what} is not a JSON object")
        self._fields = fields
        self._what = what

    def text(self, name: str, most: int = limits.AGENT_WORDS_CHARACTERS, *, empty: bool = False) -> str:
        value = self._fields.get(name)
        if not isinstance(value, str) or value != one_line(value, most) or not (value or empty):
            self._refuse(name, f"printable text of one line and at most {most} characters")
        return str(value)

    def number(self, name: str, least: float, most: float = MOST, *, whole: bool = False) -> float:
        value = self._fields.get(name)
        known = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        # Compared before anything converts it: a whole number may have thousands of digits. NaN is not between them.
        if not known or not least <= value <= most:  # type: ignore[operator]
            self._refuse(name, f"a {'whole ' if whole else ''}number from {least:g} to {most:g}")
        return value if whole else float(value)  # type: ignore[arg-type,return-value]

    def choice(self, name: str, choices: Sequence[str]) -> str:
        value = self._fields.get(name)
        if value not in choices:
            self._refuse(name, f"one of {', '.join(choices)}")
        return str(value)

    def hexadecimal(self, name: str, pattern: "re.Pattern[str]" = INSTANCE) -> str:
        value = self._fields.get(name)
        if not isinstance(value, str) or not pattern.fullmatch(value):
            self._refuse(name, f"of the form {pattern.pattern}")
        return str(value)

    def address(self, name: str) -> str:
        """An address of one machine. A name is not taken: it could mean another machine to every node."""
        text = self.text(name, limits.AGENT_NAME_CHARACTERS)
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            address = ipaddress.ip_address(0)
        if address.is_unspecified or address.is_multicast:
            self._refuse(name, "the IP address of one machine")
        return text

    def optional(self, name: str, read: Any) -> Any:
        return None if self._fields.get(name) is None else read(name)

    def _refuse(self, name: str, wanted: str) -> None:
        shown = repr(self._fields.get(name, "absent"))[:60]
        raise ReportError(f"{self._what}: {name} is {shown}; it has to be {wanted}")
