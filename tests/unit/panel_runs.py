"""Run folders as a trainer would have written them, for tests of the pages."""

import json
import os
import socket
import time
from pathlib import Path

import psutil

UNITS = {
    "multiply": {"sgemm": 1_372_160},
    "relu": {"sgemm": 6_144},
    "requantise": {"int_mm": 3, "sgemm": 108_928},
}
HASH = "39beaab971d81191" * 4


def row(step: int, steps: int = 300, **changes) -> dict:
    """A row of metrics.jsonl."""
    return {
        "step": step,
        "steps": steps,
        "loss": 2.3 / (1 + 0.01 * step),
        "samples_per_s": 1_744.25 + step % 7,
        "node_samples_per_s": [1_311.4, 2_167.2, 10_266.9],
        "shares": [13, 7, 12],
        "step_s": 0.0183,
        "left_s": (steps - step) * 0.0183,
        "tokens_per_s": None,
        "split_step": step - 1,
        "node_compute_s": [0.0099, 0.0032, 0.0011],
        "node_wait_s": [0.0, 0.0067, 0.0088],
        "node_transfer_s": [0.0021, 0.0021, 0.0021],
        "unit_invocations": UNITS,
        "state_hash": HASH,
        "replicas_equal": True,
        **changes,
    }


def node(rank: int) -> dict:
    """An entry of nodes.json."""
    return {
        "rank": rank,
        "host": f"host-{rank}",
        "device": "cpu",
        "device_reason": "no CUDA device",
        "kernel": "sgemm",
        "kernel_reason": "the fastest",
        "cores": 4,
        "memory_bytes": 8 << 30,
        "threads": 2,
        "link_mb_s": 110.0,
        "link_latency_s": 0.0004,
    }


def event(kind: str, step: int, text: str, **more) -> dict:
    """A line of events.jsonl."""
    return {"time_s": time.time(), "step": step, "kind": kind, "text": text, **more}


def write_run(folder: Path, steps_done: int = 40, phase: str = "training", events=(), **status) -> Path:
    """A run of three nodes after so many of 300 steps, written by this process."""
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"task": "digits", "run_id": "0" * 16}), encoding="utf-8")
    (folder / "nodes.json").write_text(json.dumps([node(rank) for rank in range(3)]), encoding="utf-8")
    append_rows(folder, range(1, steps_done + 1))
    lines = [event("started", 0, "digits: 300 steps of 32 samples, on 3 nodes"), *events]
    (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_status(folder, phase, steps_done, **status)
    return folder


def append_rows(folder: Path, steps) -> None:
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row(step)) + "\n" for step in steps)


def write_status(folder: Path, phase: str, step: int, **more) -> None:
    status = {
        "phase": phase,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "pid_created_s": psutil.Process().create_time(),
        "updated_s": time.time(),
        "step": step,
        "steps": 300,
        "nodes": 3,
        "text": f"step {step}",
        **more,
    }
    (folder / "status.json").write_text(json.dumps(status), encoding="utf-8")


def write_checkpoint(folder: Path, step: int, count: int = 1_234) -> Path:
    path = folder / "checkpoints" / f"step-{step:08d}.safetensors"
    path.write_bytes(b"x" * count)
    return path
