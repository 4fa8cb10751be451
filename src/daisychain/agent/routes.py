"""What the dashboard mounts so that agents can report to it: one route."""

import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from daisychain.agent.fleet import FleetState
from daisychain.agent.report import read_message
from daisychain.base import limits
from daisychain.base.errors import ReportError

REPORT_PATH = "/agent/report"
#: The HTTP status by which an agent knows what to do.
STATUS = {"malformed": 400, "protocol": 426, "name_taken": 409, "full": 503}


def routes(
    fleet: FleetState,
    clock: Callable[[], float] = time.monotonic,
    wall_clock: Callable[[], float] = time.time,
) -> list[Route]:
    """`POST /agent/report`. Whoever mounts it checks the token; pages read the fleet by the same `clock`."""

    async def report(request: Request) -> Response:
        try:
            own, probes = read_message(await _body(request))
            now_s = clock()
            fleet.observe(own, now_s, wall_clock())
            fleet.observe_probes(own.name, probes, now_s)
        except ReportError as error:
            body = {"error": str(error), "reason": error.reason}
            return JSONResponse(body, STATUS[error.reason])
        return JSONResponse(fleet.answer(own.name, now_s).to_json())

    return [Route(REPORT_PATH, report, methods=["POST"])]


async def _body(request: Request) -> bytes:
    """The body, of which no more is kept than may be there. Raises ReportError."""
    # A page of another site can send no such type without asking first.
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise ReportError("a report is sent as application/json")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limits.AGENT_REPORT_BYTES:
            raise ReportError(f"a report has at most {limits.AGENT_REPORT_BYTES} bytes")
    return bytes(body)
