"""Files of a run to download: only those that are listed here, found by listing, never by joining a path."""

from __future__ import annotations

import os
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from daisychain.base.errors import RunFolderError
from daisychain.cluster.storage.history import run_path

#: Besides checkpoints.
FILES = (
    "model.safetensors",
    "model.pt",
    "config.json",
    "metrics.jsonl",
    "events.jsonl",
    "nodes.json",
    "train.log",
)


def download_route(runs: Path) -> Route:
    """`GET /runs/{run}/files/{file}`"""

    async def download(request: Request) -> Response:
        run, name = request.path_params["run"], request.path_params["file"]
        try:
            path = await run_in_threadpool(find_file, runs, run, name)
        except RunFolderError as error:
            return PlainTextResponse(f"{error}\n", 404)
        return FileResponse(path, filename=f"{run}-{name}", media_type="application/octet-stream")

    return Route("/runs/{run}/files/{file}", download)


def find_file(runs: Path, run: str, name: str) -> Path:
    """The file of a run that is called so. Raises RunFolderError for any other name, a link, or a file that is gone."""
    folder = run_path(runs, run)
    for place, wanted in ((folder, FILES), (folder / "checkpoints", None)):
        if place.is_symlink() or not place.is_dir():
            continue
        with os.scandir(place) as entries:
            for entry in entries:
                known = entry.name in wanted if wanted else _is_checkpoint(entry.name)
                if known and entry.name == name and entry.is_file(follow_symlinks=False):
                    return Path(entry.path)
    raise RunFolderError(
        f"run {run} has no file {name!r} to download; it may have been replaced by a newer one."
    )


def _is_checkpoint(name: str) -> bool:
    return name.startswith("step-") and name.endswith(".safetensors")
