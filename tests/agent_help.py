"""A dashboard's agent side in this process, and agents as processes of their own."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette

from daisychain.agent.__main__ import MODULE, to_environment
from daisychain.agent.post import parse_dashboard
from daisychain.agent.report import Report
from daisychain.agent.routes import routes
from daisychain.agent.service import AgentSettings
from daisychain.agent.view import FleetState

PATIENCE_S = 40.0  # how long a test waits for what must come by itself
GIB = 1 << 30
REPORT = Report(
    name="a",
    host="a.lan",
    instance="a" * 16,
    sequence=1,
    version="0.1.0",
    time_s=1e9,
    address="10.0.0.1",
    address_reason="the route to 10.0.0.9",
    probe_port=29_570,
    cores=4,
    memory_bytes=8 * GIB,
    memory_free_bytes=4 * GIB,
    proof="ready",
    device="cpu",
    device_reason="no CUDA device",
    backend="sgemm",
    backend_reason="sgemm (the fastest of sgemm 1.00 × float32)",
)


def report(name: str, sequence: int = 1, **changes: Any) -> Report:
    """A report of node a, b, c … at 10.0.0.1, 2, 3 …"""
    own = {"name": name, "host": f"{name}.lan", "instance": name * 16, "sequence": sequence}
    return replace(REPORT, **{**own, "address": f"10.0.0.{ord(name) - ord('a') + 1}", **changes})


class DashboardSide:
    """The routes under uvicorn, in a thread; `read` looks at the fleet where nothing changes it meanwhile."""

    def __init__(self, listener: Any) -> None:
        self.fleet = FleetState()
        self._listener = listener
        config = uvicorn.Config(Starlette(routes=routes(self.fleet)), log_level="error", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run)
        self._loop: asyncio.AbstractEventLoop | None = None

    def _run(self) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            await self._server.serve([self._listener])

        asyncio.run(serve())

    def __enter__(self) -> "DashboardSide":
        self._thread.start()
        wait_until(lambda: self._server.started)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(PATIENCE_S)
        self._listener.close()
        assert not self._thread.is_alive()

    def read(self, look: Callable[[FleetState, float], Any]) -> Any:
        async def there() -> Any:
            return look(self.fleet, time.monotonic())

        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(there(), self._loop).result(PATIENCE_S)

    def cells(self) -> dict[str, Any]:
        """Every way between two nodes, as "ab"."""

        def look(fleet: FleetState, now_s: float) -> dict[str, Any]:
            matrix = fleet.matrix(now_s)
            return {
                a + b: cell
                for a, row in zip(matrix.names, matrix.rows, strict=True)
                for b, cell in zip(matrix.names, row, strict=True)
                if a != b
            }

        return dict(self.read(look))


def wait_until(condition: Callable[[], Any], say: Callable[[], object] = lambda: "") -> None:
    """Wait for what must come by itself; `say` tells what there is instead."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, say()
        time.sleep(0.05)


@contextlib.contextmanager
def agents(folder: Path) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Gives `start(name, url, namespace=None, **settings)`; all that it started are ended. A log is name.log."""
    started: list[subprocess.Popen[bytes]] = []

    def start(
        name: str, url: str, namespace: str | None = None, **settings: Any
    ) -> "subprocess.Popen[bytes]":
        wanted = AgentSettings(parse_dashboard(url), name=name, prove=False, **settings)
        inside = ["ip", "netns", "exec", namespace] if namespace else []
        with (folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*inside, sys.executable, "-W", "error", "-m", MODULE],
                env={**os.environ, **to_environment(wanted)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            process.kill()
            process.wait(PATIENCE_S)


def as_json(message: Any) -> bytes:
    return json.dumps(message).encode()
