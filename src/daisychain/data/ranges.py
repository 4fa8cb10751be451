"""Parts of a file on a web server, by range requests, with a limit on every wait and on all that is read."""

import http.client
import io
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from daisychain.base import limits
from daisychain.base.errors import DataError

CHUNK_BYTES = 1 << 16


@dataclass
class Meter:
    """When a slice must be there, and what has been read for it."""

    ends_s: float = field(default_factory=lambda: time.monotonic() + limits.SLICE_LIMIT_S)
    bytes_read: int = 0

    def wait_s(self) -> float:
        """The longest that the next wait may last. Raises DataError when time is up."""
        left_s = self.ends_s - time.monotonic()
        if left_s <= 0:
            raise DataError(f"took longer than {limits.SLICE_LIMIT_S:g} s")
        return min(left_s, limits.SLICE_WAIT_S)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """What names the user stays with the server it was meant for."""

    max_redirections = limits.SLICE_MAX_REDIRECTS

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and origin(newurl) != origin(req.full_url):
            following.remove_header("Authorization")
        return following


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port of an address."""
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def open_url(url: str, headers: Mapping[str, str], meter: Meter) -> http.client.HTTPResponse:
    """The answer to a GET. Raises DataError, saying what the server did."""
    request = urllib.request.Request(url, headers={**headers, "Accept-Encoding": "identity"})
    try:
        return urllib.request.build_opener(_Redirects).open(request, timeout=meter.wait_s())
    except urllib.error.HTTPError as error:
        error.close()
        raise DataError(f"answered {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        meter.wait_s()  # says so where the whole time is up
        raise DataError(f"cannot be reached ({_in_words(getattr(error, 'reason', error))})") from None


def _in_words(cause: object) -> str:
    """Why a server is out of reach."""
    if isinstance(cause, socket.gaierror):
        return "no network or no name service"
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__


def read_body(response: http.client.HTTPResponse, length: int, meter: Meter) -> bytes:
    """The next `length` bytes of an answer, fewer at its end. Raises DataError if it is cut or slow."""
    if meter.bytes_read + length > limits.SLICE_MAX_READ_BYTES:
        raise DataError(f"would have to send more than {limits.SLICE_MAX_READ_BYTES} bytes for one slice")
    parts: list[bytes] = []
    got = 0
    started_s = time.monotonic()
    while got < length:
        meter.wait_s()
        try:
            part = response.read1(min(CHUNK_BYTES, length - got))
        except (OSError, http.client.HTTPException) as error:
            raise DataError(f"stopped in the middle of an answer: {error!r}") from None
        if not part:
            break
        parts.append(part)
        got += len(part)
        meter.bytes_read += len(part)
        spent_s = time.monotonic() - started_s
        if spent_s > limits.SLICE_GRACE_S and got < limits.SLICE_MIN_BYTES_PER_S * spent_s:
            raise DataError(f"is slow: {got / spent_s:.0f} bytes/s")
    return b"".join(parts)


class RangedFile(io.RawIOBase):
    """A file on a web server as pyarrow reads it: what is asked for comes in few requests and is kept.

    A server that answers a range with the whole file is read up to the end of the range, and all of it is kept.
    """

    def __init__(self, url: str, size_bytes: int, headers: Mapping[str, str], meter: Meter) -> None:
        super().__init__()
        self.size_bytes = size_bytes
        self._url = url
        self._headers = headers
        self._meter = meter
        self._at = 0
        self._kept: dict[int, bytes] = {}  # start → content

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size_bytes}[whence]
        return self._at

    def read(self, length: int = -1, /) -> bytes:
        end = self.size_bytes if length < 0 else min(self._at + length, self.size_bytes)
        parts = []
        while self._at < end:
            part = self._held(self._at, end)
            if not part:
                self.fetch(self._at, end)
                continue
            parts.append(part)
            self._at += len(part)
        return b"".join(parts)

    def fetch(self, start: int, end: int) -> None:
        """Have bytes start … end here, in one request, as far as the file and what is kept already allow."""
        end = min([end, self.size_bytes, *(at for at in self._kept if at > start)])
        if start < end and not self._held(start, start + 1):
            self._request(start, end)

    def _held(self, start: int, end: int) -> bytes:
        for at, content in self._kept.items():
            if at <= start < at + len(content):
                return content[start - at : end - at]
        return b""

    def _request(self, start: int, end: int) -> None:
        headers = {**self._headers, "Range": f"bytes={start}-{end - 1}"}
        with open_url(self._url, headers, self._meter) as response:
            given = response.headers.get("Content-Range", "")
            if response.status == 200:
                start = 0
            elif not given.startswith(f"bytes {start}-"):
                raise DataError(f"sent {given!r} for bytes {start}-{end - 1}")
            content = read_body(response, end - start, self._meter)
        if len(content) < end - start:
            raise DataError(f"sent {len(content)} of {end - start} bytes")
        self._kept[start] = content
