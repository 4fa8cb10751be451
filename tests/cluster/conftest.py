"""Nodes as real processes."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

#: Short, so that a test takes a second or two.
BOUNDS = {
    "join_s": 20.0,
    "operation_s": 20.0,
    "heartbeat_s": 0.1,
    "lost_after_s": 2.0,
    "dial_s": 2.0,
    "leave_s": 3.0,
}
PATIENCE_S = 30.0  # how long a test waits for an outcome that must come by itself


class Nodes:
    """Processes of one test, and their outcomes."""

    def __init__(self, nursery: "subprocess.Popen[str]", folder: Path) -> None:
        self._nursery = nursery
        self._folder = folder
        self._pids: list[int] = []

    def start(self, specs: list[dict[str, Any]]) -> None:
        """Start a node a spec; `result` and what is absent of `bounds` are filled in."""
        first = len(self._pids)
        nodes = [
            {**spec, "bounds": BOUNDS | spec.get("bounds", {}), "result": str(self._path(first + index))}
            for index, spec in enumerate(specs)
        ]
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.write(json.dumps({"nodes": nodes}) + "\n")
        self._nursery.stdin.flush()
        self._pids += json.loads(self._nursery.stdout.readline())["pids"]

    def start_cluster(self, programs: list[list[list[Any]]], **common: Any) -> None:
        """A cluster on the loopback interface, one program a rank."""
        env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.free_port())}
        env["WORLD_SIZE"] = str(len(programs))
        self.start(
            [
                {"env": env | {"RANK": str(rank)}, "program": program, **common}
                for rank, program in enumerate(programs)
            ]
        )

    def free_port(self) -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    def signal(self, index: int, number: int) -> None:
        os.kill(self._pids[index], number)

    def outcome(self, index: int) -> dict[str, Any]:
        """What the node's program came to; fails the test if it does not end by itself."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            if self._path(index).exists():
                return dict(json.loads(self._path(index).read_text()))
            time.sleep(0.02)
        return pytest.fail(f"node {index} did not end within {PATIENCE_S:g} s; its log:\n{self.log(index)}")

    def outcomes(self) -> list[dict[str, Any]]:
        return [self.outcome(index) for index in range(len(self._pids))]

    def ended(self, index: int) -> bool:
        """Whether the process is gone within the patience of a test."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            try:
                os.kill(self._pids[index], 0)
            except ProcessLookupError:
                return True
            time.sleep(0.02)
        return False

    def await_log(self, index: int, text: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while text not in self.log(index):
            assert time.monotonic() < deadline_s, self.log(index)
            time.sleep(0.02)

    def await_joined(self) -> None:
        for index in range(len(self._pids)):
            self.await_log(index, "joined\n")

    def log(self, index: int) -> str:
        path = self._path(index).with_suffix(".log")
        return path.read_text() if path.exists() else "(none)"

    def close(self) -> None:
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _path(self, index: int) -> Path:
        return self._folder / f"node-{index}.json"


@pytest.fixture(scope="session")
def nursery() -> Iterator["subprocess.Popen[str]"]:
    unset = ("USE_LIBUV", "GLOO_SOCKET_IFNAME")  # the engine must start without them
    process = subprocess.Popen(
        [sys.executable, "-W", "error", str(Path(__file__).with_name("nursery.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name not in unset},
    )
    with process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def nodes(nursery: "subprocess.Popen[str]", tmp_path: Path) -> Iterator[Nodes]:
    started = Nodes(nursery, tmp_path)
    yield started
    started.close()
