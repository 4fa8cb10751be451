"""Trainers that train nothing, for tests of the panel: they keep the run's record as a real one does."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import psutil

LIMIT_S = 15.0
DEAF, SICK = 666, 13  # seeds: one that hears no stop, and one that fails


def wait_for(what: str, check, limit_s: float = LIMIT_S):
    """The first truthy answer of `check`."""
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        if answer := check():
            return answer
        time.sleep(0.02)
    raise AssertionError(f"waited {limit_s:.0f} s for {what}")


def make_jobs(folder: Path, runs: str = "runs", **options):
    """Jobs with a trainer that trains nothing, and a lock of the test's own."""
    from daisychain.panel.jobs import Jobs

    script = folder / "fake_trainer.py"
    if not script.exists():
        script.write_bytes(Path(__file__).read_bytes())
    return Jobs(
        folder / runs, node_lock=folder / "node.lock", trainer=(sys.executable, str(script)), **options
    )


def train(arguments) -> int:
    """What a trainer does, less the training."""
    from daisychain.base.clock import SystemClock
    from daisychain.base.errors import RunFolderError
    from daisychain.cluster.storage.node_lock import take_node_lock

    flags = dict(each[2:].split("=", 1) for each in arguments if "=" in each)
    folder = Path(flags["runs"], flags["name"])
    seed, steps = int(flags.get("seed", 0)), int(flags["steps"])
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: None if seed == DEAF else stopped.append(True))
    if seed == SICK:
        print("error: the weather is bad; wait for better.", flush=True)
        return 2
    try:
        lock = take_node_lock(Path(flags["node-lock"]), flags["name"], folder, SystemClock())
    except RunFolderError as error:
        print(f"error: {error}", flush=True)
        return 2
    with lock:
        (folder / "checkpoints").mkdir(exist_ok=True)
        (folder / "config.json").write_text(
            json.dumps({"task": flags.get("task", "digits"), "run_id": "0" * 16})
        )
        (folder / "checkpoints/step-00000001.safetensors").write_bytes(b"x")
        _tell(folder, "training", "step 1")
        end_s = time.monotonic() + 60
        while steps > 1 and not stopped and time.monotonic() < end_s:
            time.sleep(0.02)
        _tell(
            folder,
            *(
                ("stopped", "stopped by a person after step 1")
                if stopped
                else ("finished", "finished after 1 step")
            ),
        )
    return 0


def _tell(folder: Path, phase: str, text: str) -> None:
    status = {"phase": phase, "text": text, "pid": os.getpid(), "pid_created_s": psutil.Process().create_time(),
              "updated_s": time.time(), "step": 1, "steps": 1}  # fmt: skip
    (folder / ".status").write_text(json.dumps(status))
    (folder / ".status").replace(folder / "status.json")


if __name__ == "__main__":
    sys.exit(train(sys.argv[1:]))
