"""The hub's own packages, made to heed our limits: no wait without an end, and no retry but ours.

`huggingface_hub` and `datasets` each retry many times, for minutes, in silence. Here every request fails at once with
HubTrouble where another try may help, and data/patience.py decides how often that is.
"""

import contextlib
import functools
import importlib
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from daisychain.base import limits
from daisychain.base.errors import ConfigError, DataLostError

OFFLINE = "the hub is not to be asked: HF_HUB_OFFLINE is set. Unset it, or use text of this machine."
#: Answers after which another try may help.
TROUBLED = (408, 429, 500, 502, 503, 504)


class HubTrouble(Exception):  # noqa: N818 - a reason to try again, which no caller of this package ever sees
    """What a server did, going on from "the hub …", and how long it asks to be left alone."""

    def __init__(self, words: str, retry_after_s: float | None = None) -> None:
        super().__init__(words)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class Libraries:
    """The packages that read the hub, ready to be used."""

    hub: Any
    datasets: Any
    endpoint: str


def libraries() -> Libraries:
    """The packages. Raises ConfigError where they are not installed, DataLostError where the hub is not to be asked."""
    hub, datasets = _prepared()
    if hub.constants.HF_HUB_OFFLINE or datasets.config.HF_HUB_OFFLINE:
        raise DataLostError(OFFLINE)
    return Libraries(hub, datasets, hub.constants.ENDPOINT)


def hub_endpoint() -> str:
    """The hub's address: HF_ENDPOINT as it was when the package was imported, or the public one."""
    return str(_prepared()[0].constants.ENDPOINT)


def has_token() -> bool:
    """Whether there is a token: HF_TOKEN, or that of `hf auth login`."""
    return bool(_prepared()[0].get_token())


@functools.cache
def _prepared() -> tuple[Any, Any]:
    try:
        hub, datasets = importlib.import_module("huggingface_hub"), importlib.import_module("datasets")
    except ImportError as error:
        raise ConfigError(
            f"the package {error.name!r} is not installed; pip install 'daisychain[hf]'."
        ) from None
    for package in (hub, datasets):  # their warnings speak of retries that are not theirs any more
        package.utils.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    hub.utils.disable_progress_bars()
    datasets.config.STREAMING_READ_MAX_RETRIES = datasets.config.STREAMING_OPEN_MAX_RETRIES = 1
    datasets.config.STREAMING_READ_RETRY_INTERVAL = datasets.config.STREAMING_OPEN_RETRY_INTERVAL = 0
    usual = hub.get_session()
    package = importlib.import_module(type(usual).__module__.partition(".")[0])
    hub.set_client_factory(lambda: limited_client(package, usual.event_hooks))
    return hub, datasets


def limited_client(package: Any, event_hooks: Any) -> Any:
    """A client of `package` (httpx or its successor) whose every answer is watched."""
    client = package.Client(event_hooks=event_hooks, follow_redirects=True, timeout=limits.HUB_WAIT_S)
    client.send = functools.partial(_send, client.send, package)
    return client


def _send(
    send: Callable[..., Any], package: Any, request: Any, *, stream: bool = False, **options: Any
) -> Any:
    given = request.extensions.get("timeout", {})
    request.extensions["timeout"] = {
        kind: min(given.get(kind) or limits.HUB_WAIT_S, limits.HUB_WAIT_S)
        for kind in ("connect", "read", "write", "pool")
    }
    with _told(package):
        response = send(request, stream=True, **options)
    if response.status_code in TROUBLED:
        response.close()
        words = f"answered {response.status_code} {response.reason_phrase}"
        raise HubTrouble(words, retry_after_s(response.headers.get("Retry-After")))
    response.stream = _watched(package, response.stream)
    if not stream:
        response.read()
    return response


def retry_after_s(header: str | None) -> float | None:
    """Seconds that a server asks for, at most the limit; a date, as some send, counts as nothing said."""
    if header is None or not header.strip().isdecimal():
        return None
    return min(float(header), limits.HUB_RETRY_AFTER_MOST_S)


def _watched(package: Any, inner: Any) -> Any:
    """The bytes of an answer, which end with HubTrouble where they come too slowly or stop."""

    class Watched(package.SyncByteStream):  # type: ignore[misc]
        def __iter__(self) -> Iterator[bytes]:
            started_s, got = time.monotonic(), 0
            with _told(package):
                for part in inner:
                    got += len(part)
                    spent_s = time.monotonic() - started_s
                    if spent_s > limits.HUB_GRACE_S and got < limits.HUB_MIN_BYTES_PER_S * spent_s:
                        raise HubTrouble(f"is too slow: {got / spent_s:.0f} bytes/s")
                    yield part

        def close(self) -> None:
            inner.close()

    return Watched()


@contextlib.contextmanager
def _told(package: Any) -> Iterator[None]:
    """A failed connection as HubTrouble."""
    try:
        yield
    except package.TimeoutException:
        raise HubTrouble(f"sent nothing for {limits.HUB_WAIT_S:g} s") from None
    except package.ConnectError as error:
        unnamed = any(isinstance(cause, socket.gaierror) for cause in causes(error))
        why = "no network or no name service" if unnamed else str(error) or "no answer"
        raise HubTrouble(f"cannot be reached ({why})") from None
    except package.TransportError as error:
        raise HubTrouble(f"broke off ({str(error) or type(error).__name__})") from None


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what led to it."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__
