"""Starts nodes for the tests of this folder: imports torch once, then forks a process a node.

Reads one JSON object a line: {"nodes": [spec, …]}; answers with {"pids": […]}. A spec holds `env` and `options`
of `cluster_from_environment`, `bounds` of `FleetLimits`, a `program` (see `OPERATIONS`), the file `result` for
its outcome, and optionally `namespace`, `hosts` and `host_name` for a network namespace of its own.
"""

import ctypes
import gc
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

from daisychain.base.errors import DaisyError, DataError, PeerLostError
from daisychain.cluster.fleet.gloo import GlooFleet, end_process
from daisychain.cluster.fleet.links import measure_links
from daisychain.cluster.fleet.settings import cluster_from_environment
from daisychain.cluster.fleet.watch import FleetLimits

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x00020000, 0x04000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18


def do_sum(fleet: GlooFleet, length: int) -> list[float]:
    """Two sums under way at once; values that float32 adds exactly."""
    buffers = [torch.arange(length, dtype=torch.float32) + fleet.rank + offset for offset in (0, 100)]
    pending = [fleet.start_sum(buffer) for buffer in buffers]
    for work in reversed(pending):
        work.wait()
    return [float(buffer.sum()) for buffer in buffers]


def do_gather(fleet: GlooFleet, lengths: list[int]) -> list[str]:
    record = bytes([65 + fleet.rank]) * lengths[fleet.rank]
    return [f"{text[:1].decode()}{len(text)}{text[-1:].decode()}" for text in fleet.gather(record)]


def do_broadcast(fleet: GlooFleet, source: int) -> list[int]:
    buffer = torch.full((3,), fleet.rank, dtype=torch.int64)
    fleet.broadcast(buffer, source)
    return [int(value) for value in buffer]


def do_forever(fleet: GlooFleet, duration_s: float) -> str:
    """Sums, one after another, which only a lost peer ends."""
    end_s = time.monotonic() + duration_s
    while time.monotonic() < end_s:
        fleet.start_sum(torch.ones(1 << 16)).wait()
    return "nobody was lost"


def do_repeat(fleet: GlooFleet, count: int) -> None:
    for _ in range(count):
        fleet.start_sum(torch.ones(1 << 12)).wait()


def do_signal(fleet: GlooFleet, name: str) -> None:
    os.kill(os.getpid(), getattr(signal, name))


def do_fail(fleet: GlooFleet, message: str) -> None:
    raise DataError(message)


def do_sleep(fleet: GlooFleet, duration_s: float) -> None:
    time.sleep(duration_s)


def do_busy(fleet: GlooFleet, duration_s: float) -> None:
    """Python code that never rests, as a slow board's would."""
    end_s = time.monotonic() + duration_s
    while time.monotonic() < end_s:
        pass


def do_links(fleet: GlooFleet, payload_bytes: int) -> list[list[float]]:
    return [[link.rate_mb_s, link.latency_s] for link in measure_links(fleet, payload_bytes=payload_bytes)]


OPERATIONS = {
    "sum": do_sum,
    "gather": do_gather,
    "broadcast": do_broadcast,
    "forever": do_forever,
    "repeat": do_repeat,
    "signal": do_signal,
    "fail": do_fail,
    "sleep": do_sleep,
    "busy": do_busy,
    "links": do_links,
}


def enter(spec: dict[str, Any]) -> None:
    if "namespace" in spec:
        with open(f"/run/netns/{spec['namespace']}") as handle:
            check(LIBC.setns(handle.fileno(), CLONE_NEWNET))
    if "hosts" in spec:
        check(LIBC.unshare(CLONE_NEWNS | CLONE_NEWUTS))
        check(LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
        check(LIBC.mount(spec["hosts"].encode(), b"/etc/hosts", None, MS_BIND, None))
        name = spec["host_name"].encode()
        check(LIBC.sethostname(name, len(name)))


def check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def run_node(spec: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    outcome: dict[str, Any] = {"values": [], "error": None}
    fleet = None
    reason = "finished"
    started_s = time.monotonic()
    try:
        enter(spec)
        settings = cluster_from_environment(spec["env"], **spec.get("options", {}))
        assert settings is not None
        fleet = GlooFleet.connect(settings, FleetLimits(**spec["bounds"]))
        print("joined", flush=True)
        outcome["address"] = fleet.members[fleet.rank].address
        for name, argument in spec["program"]:
            started_s = time.monotonic()
            outcome["values"].append(OPERATIONS[name](fleet, argument))
    except DaisyError as error:
        reason = f"{type(error).__name__}: {error}"
        outcome.update(error=type(error).__name__, message=str(error), took_s=time.monotonic() - started_s)
        if isinstance(error, PeerLostError):
            outcome["nodes"] = list(error.nodes)
    if fleet is not None:
        closing_s = time.monotonic()
        fleet.close(reason)
        outcome["close_s"] = time.monotonic() - closing_s
    path = Path(spec["result"])
    path.with_suffix(".partial").write_text(json.dumps(outcome))
    path.with_suffix(".partial").rename(path)
    if spec.get("plain_exit"):
        del fleet
        gc.collect()  # the fleet is freed now if it ever is, and must not wait for its threads
        sys.exit(0)
    end_process(0 if outcome["error"] is None else 3)


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the nodes: no zombies
    for line in sys.stdin:
        pids = []
        for spec in json.loads(line)["nodes"]:
            pid = os.fork()
            if pid == 0:
                with open(Path(spec["result"]).with_suffix(".log"), "w") as log:
                    os.dup2(log.fileno(), 1)
                    os.dup2(log.fileno(), 2)
                run_node(spec)
            pids.append(pid)
        print(json.dumps({"pids": pids}), flush=True)


if __name__ == "__main__":
    main()
