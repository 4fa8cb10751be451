"""The one request of the control panel that is no page: a file that is brought."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from daisychain.base import limits
from daisychain.base.errors import DaisyError
from daisychain.panel.uploads import TooLargeError, Uploads

UPLOAD_ROUTE = "/train/upload"
STYLE_ROUTE = "/train/look"
STYLES = Path(__file__).parent / "look"


def upload_route(uploads: Uploads) -> Route:
    """`POST /train/upload?kind=csv|text&name=…`, the file as the body → `{"file": name}` or `{"error": reason}`."""

    async def upload(request: Request) -> Response:
        query = request.query_params
        declared = request.headers.get("content-length", "")
        length = int(declared) if declared.isascii() and declared.isdigit() and len(declared) < 20 else None
        try:
            kept = await uploads.receive(
                request.stream(), query.get("kind", ""), query.get("name", "file"), length
            )
        except TooLargeError as error:
            return JSONResponse({"error": str(error)}, 413)
        except DaisyError as error:
            return JSONResponse({"error": str(error)}, 400)
        except ClientDisconnect:
            return JSONResponse({"error": "The upload was broken off."}, 400)
        return JSONResponse({"file": kept.path.name})

    return Route(UPLOAD_ROUTE, upload, methods=["POST"])


def body_limit(path: str) -> int:
    """How many bytes a request may bring. More than an upload may have, so that its own refusal is heard."""
    return limits.UPLOAD_MAX_BYTES + (1 << 23) if path == UPLOAD_ROUTE else limits.PANEL_BODY_BYTES
