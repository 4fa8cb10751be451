"""Who may open the pages: pure rules.

On this machine alone there is no token. A page of another site, open in the same browser, is kept out by two headers
that it cannot forge: Host must name this machine (a foreign name may be made to lead here), and Origin must be our
own. Opened to other machines, everything needs the token.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from daisychain.base import limits
from daisychain.base.errors import ConfigError
from daisychain.base.throttle import Throttle

READING = ("GET", "HEAD")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d{1,5})?", re.IGNORECASE)
_TOKEN = re.compile(r"[A-Za-z0-9._~-]+")
#: Agents are programs: they send no Origin. Without a browser there is no other site to protect from.
AGENT_PATHS = ("/agent/",)
_WRONG_KEPT = 8  # of one address


@dataclass(frozen=True)
class Request:
    """What the rules look at. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    is_socket: bool = False
    token: str | None = None  # in the address
    cookie: str | None = None  # ours
    address: str = ""  # of the other end


@dataclass(frozen=True)
class Refusal:
    """What the other end is told."""

    status: int
    title: str
    text: str
    retry_after_s: float = 0.0


@dataclass(frozen=True)
class Access:
    """`token` None: none is asked for. `local`: only this machine can connect."""

    token: str | None = None
    local: bool = True

    @property
    def cookie(self) -> str:
        """What a browser keeps in place of the token."""
        return hmac.new((self.token or "").encode(), b"daisychain page", hashlib.sha256).hexdigest()


def choose_access(host_is_local: bool, token: str | None) -> Access:
    """The token given, or one drawn where other machines can connect. ConfigError for a token that can be guessed."""
    shortest, longest = limits.PANEL_TOKEN_CHARACTERS
    if token is not None and not (shortest <= len(token) <= longest and _TOKEN.fullmatch(token)):
        raise ConfigError(
            f"the token has {len(token)} characters: give {shortest} to {longest} letters, digits, '-', '_', '.' "
            "or '~' that nobody can guess, or no token, and one is drawn"
        )
    if token is None and not host_is_local:
        token = secrets.token_urlsafe(24)
    return Access(token, host_is_local)


def host_refusal(access: Access, headers: Mapping[str, str]) -> Refusal | None:
    """Whether Host may be answered."""
    host = headers.get("host", "")
    if not _HOST.fullmatch(host):
        return Refusal(400, "Unclear address", "The request does not say for which host it is.")
    if access.local and not _names_this_machine(host):
        return Refusal(
            403,
            "Not this address",
            f"These pages answer on this machine only, as localhost or 127.0.0.1, and not as {host}. "
            "To open them from other machines, start them with --host 0.0.0.0.",
        )
    return None


def _names_this_machine(host: str) -> bool:
    name = host.lower()
    name = name[1 : name.index("]")] if name.startswith("[") else name.partition(":")[0]
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def origin_refusal(request: Request) -> Refusal | None:
    """Whether the page that sends this is one of ours, as far as a browser says."""
    origin = request.headers.get("origin")
    if origin is None:
        asks = request.is_socket or request.method not in READING
        program = request.path.startswith(AGENT_PATHS) and "sec-fetch-site" not in request.headers
        if not asks or program:
            return None
        return Refusal(
            403, "No origin", "A request that changes something must say which page it comes from."
        )
    if _same_place(origin, request.headers.get("host", "")):
        return None
    return Refusal(
        403, "Another site", "A page of another site asked for this; only these pages themselves may."
    )


def _same_place(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    plain = parts.scheme in ("http", "https") and not (parts.path or parts.query or parts.fragment)
    return plain and parts.netloc.lower() == host.lower()


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogateescape")).digest()


def _equal(given: str, right: str) -> bool:
    """In a time that does not depend on where they differ."""
    return hmac.compare_digest(_digest(given), _digest(right))


@dataclass
class Doorkeeper:
    """The token rule, which remembers guesses. Only a new wrong value is a guess: a page that was left open, or an
    agent, says the same again and again and learns nothing by it."""

    access: Access
    _guesses: Throttle = field(
        default_factory=lambda: Throttle(limits.PANEL_GUESSES_BURST, limits.PANEL_GUESSES_PER_MINUTE / 60)
    )
    _wrong: OrderedDict[str, OrderedDict[bytes, None]] = field(default_factory=OrderedDict)

    def refusal(self, request: Request, now_s: float) -> Refusal | None:
        """Whether what this request knows lets it in."""
        if self.access.token is None:
            return None
        given = self._credentials(request)
        if not given:
            return Refusal(
                403,
                "A token is needed",
                "Open the link that was printed where these pages were started: it ends in ?token=… "
                "and is needed once for each browser. Agents get it by --token or DAISY_TOKEN.",
            )
        return self._judge(given, request.address, now_s)

    def _credentials(self, request: Request) -> list[tuple[str, str]]:
        """What the request shows, each with what it would have to be."""
        token = self.access.token or ""
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        shown = [
            (request.token, token),
            (bearer.strip() if scheme.lower() == "bearer" else None, token),
            (request.cookie, self.access.cookie),
        ]
        return [(value, right) for value, right in shown if value]

    def _judge(self, given: list[tuple[str, str]], address: str, now_s: float) -> Refusal | None:
        known = self._wrong.get(address) or ()
        fresh = [(value, right) for value, right in given if _digest(value) not in known]
        wait_s = self._guesses.take(address, now_s) if fresh else 0.0
        if wait_s:
            return Refusal(429, "Too many wrong tokens", f"Try again in {round(wait_s) + 1} seconds.", wait_s)
        if any(_equal(value, right) for value, right in fresh):
            self._guesses.give_back(address)
            return None
        for value, _ in fresh:
            self._remember(address, _digest(value))
        return Refusal(
            403,
            "Not the right token",
            "Open the link that was printed where these pages were started last: each start may draw a new token.",
        )

    def _remember(self, address: str, digest: bytes) -> None:
        wrong = self._wrong.setdefault(address, OrderedDict())
        wrong[digest] = None
        self._wrong.move_to_end(address)
        if len(wrong) > _WRONG_KEPT:
            wrong.popitem(last=False)
        if len(self._wrong) > limits.PANEL_GUESSERS:
            self._wrong.popitem(last=False)

    def is_token(self, value: str) -> bool:
        """Whether this is the token, for a browser that shall have the cookie."""
        return self.access.token is not None and _equal(value, self.access.token)

    def forget(self, now_s: float) -> None:
        """Drop what has expired."""
        self._guesses.forget(now_s)
