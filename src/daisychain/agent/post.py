"""One HTTP request to the dashboard, with a limit on all of it, and what each way of failing means for an agent."""

import contextlib
import http.client
import socket
import ssl
import threading
from dataclasses import dataclass
from urllib.parse import urlsplit

from daisychain.agent.answer import MARK, Answer, read_answer
from daisychain.agent.reading import one_line, read_object
from daisychain.base import limits
from daisychain.base.errors import ConfigError, ReportError

REPORT_PATH = "/agent/report"
WRONG_TOKEN = (401, 403)
LATER = (408, 409, 429, *range(500, 600))  # what may be otherwise at the next try


class UnansweredError(Exception):
    """The dashboard did not answer, or asks to come again: try later. One line, for a person."""


@dataclass(frozen=True)
class Dashboard:
    """Where the dashboard is, taken apart."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def parse_dashboard(url: str) -> Dashboard:
    """Raises ConfigError."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else limits.DASHBOARD_PORT)
    except ValueError:
        parts, port = urlsplit(""), 0
    usable = parts.scheme in ("http", "https") and parts.hostname and parts.username is None
    if (
        not usable
        or parts.query
        or parts.fragment
        or not url.isascii()
        or not url.isprintable()
        or " " in url
    ):
        raise ConfigError(
            f"--dashboard is {url!r}: an address such as http://192.168.1.20:{limits.DASHBOARD_PORT} is needed"
        )
    return Dashboard(parts.scheme, str(parts.hostname), port, parts.path.rstrip("/"))


def post_report(dashboard: Dashboard, token: str | None, body: bytes) -> Answer:
    """Post a message and read the answer; blocks for `AGENT_REPORT_LIMIT_S` at most.

    Raises UnansweredError where a later try may succeed, and ConfigError where none will.
    """
    kind = http.client.HTTPSConnection if dashboard.scheme == "https" else http.client.HTTPConnection
    connection = kind(dashboard.host, dashboard.port, timeout=limits.AGENT_REPORT_LIMIT_S)
    headers = {"Content-Type": "application/json", "Connection": "close"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    cut: threading.Timer | None = None
    try:
        connection.connect()
        # The socket's own limit begins anew with every byte; this one does not.
        cut = threading.Timer(limits.AGENT_REPORT_LIMIT_S, _hang_up, [connection.sock])
        cut.daemon = True
        cut.start()
        connection.request("POST", dashboard.path + REPORT_PATH, body, headers)
        answer = connection.getresponse()
        text = answer.read(limits.AGENT_REPORT_BYTES + 1)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{dashboard.url}: TLS fails ({error.reason}); is it https, with a trusted certificate?"
        ) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise UnansweredError(_why(error)) from None
    finally:
        if cut:
            cut.cancel()
        connection.close()
    return judge_answer(dashboard.url, answer.status, text)


def _hang_up(line: socket.socket) -> None:
    """Wake whoever reads from a socket, with its end."""
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


def judge_answer(url: str, status: int, text: bytes) -> Answer:
    """The answer of the dashboard, by its HTTP status. Raises UnansweredError or ConfigError as `post_report`."""
    if status == 200:
        try:
            return read_answer(text)
        except ReportError as error:
            raise ConfigError(f"{url} is not a DaisyChain dashboard ({error}): check --dashboard") from None
    said = _said(text)
    if status in WRONG_TOKEN:
        raise ConfigError(
            f"the dashboard at {url} does not accept the token{f' ({said})' if said else ''}: "
            "give the one that it showed when it was started, with --token or DAISY_TOKEN"
        )
    if status in LATER:
        raise UnansweredError(said or f"HTTP status {status}")
    if said is None:
        raise ConfigError(f"{url} is not a {MARK} (HTTP status {status}): check --dashboard")
    raise ConfigError(f"the dashboard at {url} refuses this agent: {said}")


def _said(text: bytes) -> str | None:
    """The dashboard's own words about an error, or None where they are not a dashboard's."""
    try:
        error = read_object(text, "the answer", limits.AGENT_REPORT_BYTES).get("error")
    except ReportError:
        return None
    return one_line(error) if isinstance(error, str) and error else None


def _why(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError):
        return one_line(error.strerror or str(error) or type(error).__name__)
    return "the connection was cut, or what is there does not speak HTTP"
