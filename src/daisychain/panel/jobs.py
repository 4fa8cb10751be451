"""Trainers that a page starts: processes of their own that outlive it, found again by whoever looks next.

All that is known of a job is in its run's folder: `job.json` says what was asked and which process does it,
`train.log` what the trainer said. A panel that is restarted, or a second one, reads the same. Nothing here says that a
trainer runs on this machine but `_spawn` and the signals: a node elsewhere answers the same five calls.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import psutil

from daisychain.base import limits
from daisychain.base.errors import ConfigError, DaisyError, RunFolderError
from daisychain.base.files import write_atomic
from daisychain.cluster.storage.cleaning import WORKING, as_object
from daisychain.cluster.storage.history import phase_of, run_path
from daisychain.cluster.storage.node_lock import default_lock, owner_of, refusal
from daisychain.cluster.storage.run_folder import check_name, fresh_name
from daisychain.cluster.storage.tail import read_json
from daisychain.panel.endings import Ending, ending_of, last_words, read_status, what_is_kept
from daisychain.panel.priority import at_normal_priority
from daisychain.panel.request import JobRequest
from daisychain.panel.uploads import UPLOADS, Uploads

JOB_FILE = "job.json"
LOG_FILE = "train.log"
TRAINER = (sys.executable, "-m", "daisychain.cli.main", "train")
#: SIGTERM means the same to a trainer as Ctrl-C, and works even where a shell that started the panel in the
#: background has made its children deaf to Ctrl-C.
STOP_SIGNAL = getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM)


@dataclass(frozen=True)
class Job:
    """One trainer: what was asked of it, and the process."""

    name: str
    request: JobRequest
    pid: int
    pid_created_s: float
    started_s: float  # unix
    stop_asked_s: float | None = None  # unix
    command: tuple[str, ...] = ()

    @property
    def alive(self) -> bool:
        """Whether the process still runs; one that has ended and was not reaped does not."""
        try:
            process = psutil.Process(self.pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            # A clock that is set moves when a process seems created; its command names its run.
            drift_s = abs(process.create_time() - self.pid_created_s)
            return drift_s <= limits.CLOCK_DRIFT_S or (*process.cmdline(),) == self.command != ()
        except psutil.Error:
            return False


class Jobs:
    """The trainers of one folder of runs. `local`: who asks sits at this machine, and may name any file of it.

    Safe for several threads. Every method may touch the disk for a moment; none waits for a trainer but `stop`, which
    ends one by force within JOB_KILL_LIMIT_S.
    """

    def __init__(
        self,
        runs: Path,
        *,
        local: bool = False,
        node_lock: Path | None = None,
        trainer: Sequence[str] = TRAINER,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.runs = runs
        self.uploads = Uploads(runs / UPLOADS)
        self._local = local
        self._node_lock = node_lock or default_lock()
        self._trainer = tuple(trainer)
        self._now_s = now_s
        self._turn = threading.Lock()
        self._current = next((job for job in self.list() if job.alive), None)
        self._exit_codes: dict[int, int] = {}
        self._unwritten: dict[str, Job] = {}  # those that were asked to stop where a disk took no word of it

    def start(self, request: JobRequest) -> Job:
        """Start a trainer. Raises ConfigError or RunFolderError, with the reason, and then nothing was started."""
        with self._turn:
            if busy := self._busy():
                raise RunFolderError(busy)
            if request.source == "file" and request.data and not request.resume:
                request = replace(request, data=str(self.uploads.checked(request.data, self._local)))
            folder = self._folder_for(request)
            if not request.resume:
                request = replace(request, name=folder.name)
            try:
                self._current = self._spawn(request, folder)
            except OSError as error:
                if not request.resume:
                    _discard(folder)
                raise RunFolderError(f"{folder}: the trainer cannot be started: {error.strerror}.") from error
            return self._current

    def busy(self) -> str | None:
        """Why nothing can be started now, or None."""
        with self._turn:
            return self._busy()

    def running(self) -> Job | None:
        """The trainer of these runs that runs now, whoever started it."""
        with self._turn:
            return self._running()

    def stop(self, name: str) -> str:
        """Ask a run to stop after its step; asked again JOB_STOP_GRACE_S later, end it by force. Says which it was."""
        with self._turn:
            job = self.get(name)
            if job is None or not job.alive:
                return f"{name} does not run."
            if job.stop_asked_s is None:
                _tell(job.pid)
                self._note(replace(job, stop_asked_s=self._now_s()))
                return f"{name} is stopping after this step."
            left_s = limits.JOB_STOP_GRACE_S - (self.asked_ago_s(job) or 0.0)
            if left_s > 0:
                return f"{name} is stopping after this step; it can be ended by force in {left_s:.0f} s."
            _kill_tree(job.pid)
            return f"{name} was ended by force; {what_is_kept(self.runs / name)}."

    def asked_ago_s(self, job: Job) -> float | None:
        """How long ago a job was asked to stop; long enough for force, where the clock was set back since."""
        if job.stop_asked_s is None:
            return None
        ago_s = self._now_s() - job.stop_asked_s
        return ago_s if ago_s >= 0.0 else limits.JOB_STOP_GRACE_S

    def get(self, name: str) -> Job | None:
        """The last job of a run; None for a run that no panel started."""
        try:
            found = _read(self.runs / check_name(name) / JOB_FILE) or self._without_record(name)
        except RunFolderError:
            return None
        unwritten = self._unwritten.get(name)
        return unwritten if found and unwritten and unwritten.pid == found.pid else found

    def list(self) -> list[Job]:
        """The last job of every run, newest first."""
        found = [job for path in self.runs.glob(f"*/{JOB_FILE}") if (job := _read(path))]
        return sorted(found, key=lambda job: job.started_s, reverse=True)

    def ending(self, name: str) -> Ending | None:
        """How a run ended and why, in words; None while it goes on."""
        job = self.get(name)
        folder = self.runs / check_name(name)
        if job is not None:
            # Only where a run went on can there be an older status than its own.
            began_s = job.started_s if job.request.resume else 0.0
            code = self._exit_codes.get(job.pid)
            return None if job.alive else ending_of(folder, self.log_tail(name), began_s, code)
        if not folder.is_dir():
            return Ending("lost", "its folder was deleted, and all that was in it.")
        # Started by hand, or all that is left of a job is what its trainer wrote at its end.
        return None if phase_of(folder, read_status(folder)) in WORKING else ending_of(folder, (), 0.0, None)

    def ended_run(self, name: str) -> Ending | None:
        """As `ending`; None where there is no such run, too."""
        try:
            run_path(self.runs, name)
        except RunFolderError:
            return None
        return self.ending(name)

    def log_tail(self, name: str) -> Sequence[str]:
        """The last lines that a trainer said."""
        return last_words(self.runs / check_name(name) / LOG_FILE)

    def _busy(self) -> str | None:
        if job := self._running():
            return f"the run {job.name!r} is going on; stop it, or wait until it has ended."
        owner = owner_of(self._node_lock)
        return refusal(owner) if owner else None

    def _running(self) -> Job | None:
        """Own children first; then, by the machine's lock, the job of another panel with the same runs."""
        if self._current:
            self._current = self.get(self._current.name)
        if self._current and self._current.alive:
            return self._current
        owner = owner_of(self._node_lock)
        if owner and owner.folder and Path(owner.folder).parent == self.runs.resolve():
            found = self.get(owner.run)
            self._current = found if found and found.alive else None
            return self._current
        return None

    def _without_record(self, name: str) -> Job | None:
        """The trainer that has the machine and whose job.json is gone, as when somebody deleted its folder."""
        owner = owner_of(self._node_lock)
        if owner is None or owner.run != name or Path(owner.folder).parent != self.runs.resolve():
            return None
        return Job(name, JobRequest(resume=name), owner.pid, owner.pid_created_s, owner.pid_created_s)

    def _folder_for(self, request: JobRequest) -> Path:
        """A new folder of its own, or the one of the run to go on with."""
        if request.resume:
            folder = self.runs / check_name(request.resume)
            if not any((folder / "checkpoints").glob("step-*.safetensors")):
                raise RunFolderError(
                    f"run {request.resume!r} has no checkpoint to go on from; start it anew."
                )
            return folder
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            folder = self.runs / (request.name or fresh_name(self.runs, request.task))
            folder.mkdir()
        except FileExistsError:
            raise RunFolderError(f"there is a run {folder.name!r} already; choose another name.") from None
        except OSError as error:
            raise RunFolderError(
                f"no run can be kept in {self.runs}: {error.strerror}; make room."
            ) from error
        return folder

    def _spawn(self, request: JobRequest, folder: Path) -> Job:
        where = [f"--runs={self.runs.resolve()}", f"--node-lock={self._node_lock.resolve()}"]
        command = [*self._trainer, *request.arguments(), *where]
        with (folder / LOG_FILE).open("ab") as log:
            child = at_normal_priority(lambda: _detached(command, log))
        threading.Thread(target=self._reap, args=(child,), name="daisychain-job", daemon=True).start()
        try:
            created_s = psutil.Process(child.pid).create_time()
        except psutil.Error:  # it has ended already; its log says why
            created_s = self._now_s()
        job = Job(folder.name, request, child.pid, created_s, self._now_s(), command=(*command,))
        try:
            self._write(job)
        except OSError:  # nobody would find it again
            _kill_tree(child.pid)
            raise
        return job

    def _reap(self, child: "subprocess.Popen[bytes]") -> None:
        self._exit_codes[child.pid] = child.wait()

    def _note(self, job: Job) -> None:
        """Write down what became of a job; this panel remembers it where that cannot be."""
        try:
            self._write(job)
        except OSError:
            self._unwritten[job.name] = job

    def _write(self, job: Job) -> None:
        values: dict[str, Any] = {
            "request": job.request.as_json(),
            "pid": job.pid,
            "pid_created_s": job.pid_created_s,
            "started_s": job.started_s,
            "stop_asked_s": job.stop_asked_s,
            "command": job.command,
        }
        write_atomic(self.runs / job.name / JOB_FILE, json.dumps(values, indent=2).encode() + b"\n")


def _discard(folder: Path) -> None:
    """Take back a folder in which nothing began."""
    (folder / LOG_FILE).unlink(missing_ok=True)
    (folder / JOB_FILE).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _read(path: Path) -> Job | None:
    """The job of a file; None where there is none that can be believed."""
    values = as_object(read_json(path))
    try:
        asked, command = values["stop_asked_s"], values.get("command")
        if int(values["pid"]) < 1:  # to a signal that would be a whole group of processes
            return None
        return Job(
            check_name(path.parent.name),
            JobRequest.of(values["request"]),
            int(values["pid"]),
            float(values["pid_created_s"]),
            float(values["started_s"]),
            None if asked is None else float(asked),
            tuple(map(str, command)) if isinstance(command, list) else (),
        )
    except (DaisyError, KeyError, ValueError, TypeError, OverflowError):
        return None


def _detached(command: Sequence[str], log: BinaryIO) -> "subprocess.Popen[bytes]":
    """A process that has no part in the panel's end."""
    return subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=os.name != "nt",
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )


def _tell(pid: int) -> None:
    """Ask a trainer to stop; the launcher passes it on to its nodes."""
    try:
        os.kill(pid, STOP_SIGNAL)
    except ProcessLookupError:
        return
    except PermissionError:
        raise ConfigError(f"process {pid} belongs to another user, who has to stop it.") from None


def _kill_tree(pid: int) -> None:
    """End a trainer and the nodes it started, which have sessions of their own."""
    try:
        parent = psutil.Process(pid)
        family = [*parent.children(recursive=True), parent]
    except psutil.Error:
        return
    for process in family:
        try:
            process.kill()
        except psutil.Error:
            continue
    psutil.wait_procs(family, timeout=limits.JOB_KILL_LIMIT_S)
