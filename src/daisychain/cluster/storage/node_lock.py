"""One run at a time on a machine: a lock that a trainer holds for as long as it lives.

The control panel names the lock when it starts a trainer, so that two panels, whatever folders of runs they keep,
never start two runs on one machine. A trainer started by hand takes no lock.
"""

import json
import os
import re
import socket
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

import psutil

from daisychain.base import limits
from daisychain.base.clock import Clock
from daisychain.base.errors import RunFolderError
from daisychain.base.files import try_lock, user_data_folder


@dataclass(frozen=True)
class Owner:
    """The trainer that holds the lock: its run, the run's folder, and the process."""

    run: str
    folder: str
    pid: int
    pid_created_s: float  # a number of a process is used again; number and time of birth are not


def default_lock() -> Path:
    """The lock of this machine. A home folder may be shared by several, so its name has the machine's."""
    host = re.sub(r"[^A-Za-z0-9.-]+", "-", socket.gethostname())[:64] or "host"
    return user_data_folder() / f"node-{host}.lock"


def take_node_lock(path: Path, run: str, folder: Path, clock: Clock, rank: int | None = None) -> TextIO:
    """The open file that is the lock: this process holds it until the file is closed or the process dies.

    Somebody who only looks whether the lock is free holds it for an instant, so it is tried again for a moment. A
    node (`rank`) that a launcher started holds a lock beside its launcher's, so that nodes that outlive a launcher
    keep the machine until they have ended. Raises RunFolderError that names the run which has it.
    """
    mine = path if rank is None else _of_node(path, rank)
    deadline_s = clock.now_s() + limits.NODE_LOCK_LIMIT_S
    while True:
        file = _open(mine)
        if try_lock(file) and (rank is not None or not _nodes_left(path)):
            break
        owner = _read_owner(file)
        file.close()
        if clock.now_s() >= deadline_s:
            raise RunFolderError(refusal(owner))
        clock.sleep(limits.WAIT_SLICE_S)
    made = Owner(run, str(folder.resolve()), os.getpid(), psutil.Process().create_time())
    file.seek(0)
    file.truncate(0)
    file.write(json.dumps(asdict(made)))
    file.flush()
    return file


def owner_of(path: Path) -> Owner | None:
    """Who holds the lock at `path`; None where nobody does. Raises RunFolderError for a lock that cannot be opened."""
    if not path.exists():
        return None
    with closing(_open(path)) as file:
        free = try_lock(file)
        owner = _read_owner(file)
    if free and not _nodes_left(path):
        return None
    return owner or Owner("another run", "", 0, 0.0)


def refusal(owner: Owner | None) -> str:
    """Why nothing can be started here, in a sentence."""
    if owner is None or not owner.pid:
        return "this machine trains another run; wait until it has ended, or stop it."
    return (
        f"this machine trains the run {owner.run!r} (process {owner.pid}, in {owner.folder}); stop it, or wait "
        "until it has ended."
    )


def _of_node(path: Path, rank: int) -> Path:
    return path.with_name(f"{path.name}.{rank}")


def _nodes_left(path: Path) -> bool:
    """Whether a node still runs whose launcher is gone."""
    for other in path.parent.glob(f"{path.name}.*"):
        with closing(_open(other)) as file:
            if not try_lock(file):
                return True
    return False


def _open(path: Path) -> TextIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a+", encoding="utf-8")
    except OSError as error:
        raise RunFolderError(
            f"the lock {path} cannot be opened: {error.strerror}; make that folder writable."
        ) from error


def _read_owner(file: TextIO) -> Owner | None:
    try:
        file.seek(0)
        values = json.loads(file.read(limits.NODE_LOCK_BYTES))
        return Owner(
            str(values["run"]), str(values["folder"]), int(values["pid"]), float(values["pid_created_s"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
