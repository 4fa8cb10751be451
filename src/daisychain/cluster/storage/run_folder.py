"""`runs/<name>/`: config.json, metrics.jsonl, checkpoints/, model.safetensors, and a lock for one run at a time."""

import contextlib
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from daisychain.base.errors import RunFolderError
from daisychain.base.files import PARTIAL_SUFFIX, try_lock, write_atomic
from daisychain.cluster.storage.tail import read_json

RUNS = Path("runs")  # unless another folder of runs is named
CONFIG = "config.json"
METRICS = "metrics.jsonl"
NODES, EVENTS, STATUS = "nodes.json", "events.jsonl", "status.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DEVICE_NAMES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # not usable on Windows


def check_name(name: str) -> str:
    """`name` if it can be a folder's name on every system; RunFolderError if not."""
    if not _NAME.fullmatch(name) or _DEVICE_NAMES.fullmatch(name) or name.endswith("."):
        raise RunFolderError(
            f"{name!r} cannot be the name of a run; use up to 100 letters, digits, '-', '_' and '.'."
        )
    return name


def fresh_name(runs: Path, task: str) -> str:
    """`task-date-time`, with a number behind it if that is taken."""
    base = f"{re.sub('[^A-Za-z0-9]+', '-', task).strip('-')[:60] or 'run'}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = [base, *(f"{base}-{i}" for i in range(2, 1000))]
    return check_name(next(name for name in names if not (runs / name).exists()))


def run_id_of(path: Path) -> str | None:
    """The random name that tells the run in folder `path` from every other, if a run has begun there."""
    try:
        run_id = json.loads((path / CONFIG).read_bytes())["run_id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return run_id if isinstance(run_id, str) else None


class RunFolder:
    """A run's folder, locked for this process until `close` or until the process dies, however it dies.

    What was made for a run that never began is removed by `close`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.model = path / "model.safetensors"
        self.run_id = run_id_of(path) or secrets.token_hex(8)
        self._made = [folder for folder in (self.checkpoints, path, *path.parents) if not folder.exists()]
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            self._lock: TextIO | None = (path / "lock").open("a+", encoding="utf-8")
        except OSError as error:
            raise RunFolderError(
                f"run folder {path} cannot be used: {error.strerror}; use another."
            ) from error
        if not try_lock(self._lock):
            self._lock.seek(0)
            owner = self._lock.read(200).strip() or "another process"
            self._lock.close()
            raise RunFolderError(
                f"run folder {path} is in use by {owner}; wait for it or use another --name."
            )
        self._lock.truncate(0)
        self._lock.write(f"process {os.getpid()} on {socket.gethostname()}")
        self._lock.flush()
        for left_over in [*path.glob(f".*{PARTIAL_SUFFIX}"), *self.checkpoints.glob(f".*{PARTIAL_SUFFIX}")]:
            left_over.unlink(missing_ok=True)

    @classmethod
    def create(cls, runs: Path, name: str | None, task: str) -> "RunFolder":
        """A folder for a new run. Raises RunFolderError if `name` is unfit or holds a run already."""
        chosen = fresh_name(runs, task) if name is None else check_name(name)
        folder = cls(runs / chosen)
        if folder.has_begun():
            folder.close()
            raise RunFolderError(
                f"{folder.path} holds a run already; go on with it by --resume, or use another --name."
            )
        return folder

    def has_begun(self) -> bool:
        """Whether a run ever started here; one whose nodes never met leaves the folder's name free."""
        return (self.path / CONFIG).exists() or any(self.checkpoints.glob("*"))

    def begin(self, config: Mapping[str, Any], step: int) -> None:
        """The run starts, after `step` steps: write config.json, or keep the one of a run that goes on, and drop the
        metrics of later steps. Raises RunFolderError if the disk refuses."""
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            if not (self.path / CONFIG).exists():
                text = json.dumps({**config, "run_id": self.run_id}, indent=2, sort_keys=True)
                write_atomic(self.path / CONFIG, text.encode() + b"\n")
            self.forget_metrics_after(step)
        except OSError as error:
            raise RunFolderError(
                f"run folder {self.path} cannot be written: {error.strerror}; make room or use another."
            ) from error

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """One JSON line."""
        with open(self.path / METRICS, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def forget_metrics_after(self, step: int) -> None:
        """Drop the rows of steps that a resumed run does again, and a last row that was cut."""
        path = self.path / METRICS
        if path.exists():
            write_atomic(path, "".join(_rows_up_to(path, step)).encode())

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def unlock(self) -> None:
        """Let another process work here, such as the first of the nodes that this one starts."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def close(self) -> None:
        """Let the next run in, and leave nothing of a run that never began but logs that say why."""
        self.unlock()
        if not self._made or self.has_begun():
            return
        own = {log for log in self.path.glob("node-*.log") if not log.stat().st_size} | {self.path / "lock"}
        said = {self.path / STATUS, self.path / EVENTS}
        with contextlib.suppress(OSError):  # a folder with something in it stays, and those above it
            if {*self.path.iterdir()} <= own | said | {self.checkpoints}:
                own |= said  # else they tell why the run did not begin, beside what else does
            for file in own:
                file.unlink(missing_ok=True)
            for folder in self._made:
                folder.rmdir()


def complete_metrics(folder: Path, row: Mapping[str, Any]) -> None:
    """Add the last step's row where the first node died before it could. All others are there: a node writes step s
    before it takes part in s + 1."""
    path = folder / METRICS
    if path.exists():
        kept = _rows_up_to(path, row["step"] - 1)
        write_atomic(path, "".join([*kept, json.dumps(row) + "\n"]).encode())


def _rows_up_to(path: Path, step: int) -> list[str]:
    """The whole rows of steps up to `step`, each step once and in order, each with its line end."""
    kept: list[str] = []
    last = 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            if last < json.loads(line)["step"] <= step:
                last = json.loads(line)["step"]
                kept.append(line + "\n")
        except (ValueError, KeyError, TypeError):
            continue
    return kept


def read_config(path: Path) -> dict[str, Any]:
    """What `config.json` of a run's folder says; empty where there is none that can be read."""
    config = read_json(path / CONFIG)
    return config if isinstance(config, dict) else {}


def newest_run(runs: Path) -> Path:
    """The run that wrote a checkpoint last. Raises RunFolderError if there is none."""
    checkpoints = [*runs.glob("*/checkpoints/step-*.safetensors")]
    if not checkpoints:
        raise RunFolderError(f"{runs} holds no run with a checkpoint; start one without --resume.")
    return max(checkpoints, key=lambda path: path.stat().st_mtime_ns).parent.parent
