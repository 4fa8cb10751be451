"""`/data`: text to train on, from wherever the server gets it."""

from collections.abc import Callable

import anyio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from daisychain.base import limits
from daisychain.base.errors import DaisyError
from daisychain.base.log import say
from daisychain.base.throttle import Throttle
from daisychain.data.slices import SOURCES, Slice
from daisychain.room.groups import Client

MAX_SEED = 2**32 - 1
Source = Callable[[int, int, str], Slice]  # bytes wanted, seed, kind of source; may block


class TextDesk:
    """Serves `/data?bytes=N&seed=S&source=KIND`, a bounded number at once and a bounded amount an address."""

    def __init__(
        self, source: Source, client_of: Callable[[Request], Client], now_s: Callable[[], float]
    ) -> None:
        self._source = source
        self._client_of = client_of
        self._now_s = now_s
        self._quota = Throttle(limits.ROOM_DATA_BYTES_BURST, limits.ROOM_DATA_BYTES_PER_S)
        self._limiter: anyio.CapacityLimiter | None = None

    async def serve(self, request: Request) -> Response:
        """The text, or a refusal in words."""
        try:
            wanted = _whole(request, "bytes", 1, limits.ROOM_DATA_BYTES)
            seed = _whole(request, "seed", 0, MAX_SEED)
            kind = request.query_params.get("source", "auto")
            if kind not in SOURCES:
                raise ValueError(f"source is {kind[:20]!r}: give one of {', '.join(SOURCES)}")
        except ValueError as error:
            return PlainTextResponse(f"{error}\n", 400)
        now_s = self._now_s()
        self._quota.forget(now_s)
        wait_s = self._quota.take(self._client_of(request).key, now_s, wanted)
        if wait_s:
            seconds = str(int(wait_s) + 1)
            message = f"Your address has had its share of text for now: wait {seconds} s.\n"
            return PlainTextResponse(message, 429, {"Retry-After": seconds})
        return await self._fetch(wanted, seed, kind)

    async def _fetch(self, wanted: int, seed: int, kind: str) -> Response:
        self._limiter = self._limiter or anyio.CapacityLimiter(limits.ROOM_DATA_REQUESTS)
        try:
            with anyio.fail_after(limits.ROOM_DATA_LIMIT_S):
                piece = await anyio.to_thread.run_sync(
                    self._source, wanted, seed, kind, limiter=self._limiter, abandon_on_cancel=True
                )
        except TimeoutError:
            message = f"No text could be had within {limits.ROOM_DATA_LIMIT_S:g} s: try again.\n"
            return PlainTextResponse(message, 503)
        except DaisyError as error:
            return PlainTextResponse(f"{error}\n", 503)
        say(
            f"text: {piece.source}, {piece.bytes_read:,} bytes read for {len(piece.text):,} characters: {piece.reason}"
        )
        headers = {
            "X-Daisy-Source": piece.source,
            "X-Daisy-Reason": " ".join(piece.reason.split()).encode("ascii", "replace").decode(),
            "X-Daisy-Bytes-Read": str(piece.bytes_read),
        }
        return PlainTextResponse(piece.text, headers=headers)


def _whole(request: Request, name: str, least: int, most: int) -> int:
    """A whole number of the query. Raises ValueError naming it."""
    text = request.query_params.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most):
        raise ValueError(f"{name} is {text[:20]!r}: give a whole number from {least} to {most}")
    return int(text)
