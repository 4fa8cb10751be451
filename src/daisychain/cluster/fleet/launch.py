"""N nodes on this machine: starts them, stops them, and leaves none behind."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from daisychain.base import limits
from daisychain.base.clock import Clock, SystemClock
from daisychain.base.errors import INTERRUPTED, ConfigError, RunFolderError
from daisychain.base.log import say, warn
from daisychain.cluster.fleet.launched import LAUNCHED, STOP
from daisychain.cluster.fleet.network import open_free_port
from daisychain.cluster.fleet.settings import LISTEN_FD

LOCAL_ADDRESS = "127.0.0.1"
POLL_S = 0.05
KILL_LIMIT_S = 5.0
TAIL_LINES = 12
TAIL_BYTES = 1 << 14


@dataclass
class Ending:
    """When the nodes that still run must have ended: a pure record of what was seen."""

    grace_s: float
    first_failure: tuple[int, int] | None = None  # rank, exit code
    deadline_s: float | None = None
    exits: dict[int, int] = field(default_factory=dict)

    def saw_exit(self, rank: int, code: int, now_s: float) -> None:
        """A node ended. The others must follow a failure, and the coordinator, within the grace."""
        self.exits[rank] = code
        if code != 0 and self.first_failure is None:
            self.first_failure = (rank, code)
        if (code != 0 or rank == 0) and self.deadline_s is None:
            self.deadline_s = now_s + self.grace_s

    def overdue(self, now_s: float) -> bool:
        return self.deadline_s is not None and now_s >= self.deadline_s

    @property
    def exit_code(self) -> int:
        """The first failing node's, as a shell would show it; 0 where none failed."""
        code = 0 if self.first_failure is None else self.first_failure[1]
        return 128 - code if code < 0 else code


def train_command(arguments: Sequence[str]) -> list[str]:
    """The command of one node."""
    return [sys.executable, "-m", "daisychain.cli.main", "train", *arguments]


def check_local_nodes(nodes: int) -> None:
    """Raises ConfigError for a number of nodes that cannot be started on one machine."""
    if not 1 <= nodes <= limits.MAX_LOCAL_NODES:
        raise ConfigError(
            f"{nodes} nodes cannot be started: --nodes takes a number from 1 to {limits.MAX_LOCAL_NODES}"
        )


def launch_local(
    nodes: int,
    command: Sequence[str],
    log_folder: Path,
    *,
    port: int = limits.DEFAULT_PORT,
    env: Mapping[str, str] = os.environ,
    grace_s: float = limits.PEER_LOST_AFTER_S + limits.END_GRACE_S,
    clock: Clock | None = None,
) -> int:
    """Run `command` as `nodes` nodes of one cluster on this machine; returns the exit code for the shell.

    Rank 0 has this process's output, the others write `node-<rank>.log` in `log_folder`. The first SIGINT or
    SIGTERM asks the nodes to stop, the second kills them. When one fails the others have `grace_s` to end by
    themselves. Call in the main thread. Raises ConfigError for a number of nodes that cannot be.
    """
    check_local_nodes(nodes)
    logs = {rank: log_folder / f"node-{rank}.log" for rank in range(1, nodes)}
    children: list[subprocess.Popen[bytes]] = []
    with closing(open_free_port(LOCAL_ADDRESS, port)) as opened, _interrupts() as interrupts:
        try:
            environments = [
                node_environment(rank, nodes, opened.getsockname()[1], env, _cores()) for rank in range(nodes)
            ]
            for rank, child_env in enumerate(environments):
                children.append(_start(command, child_env, logs.get(rank), opened if rank == 0 else None))
            opened.close()  # rank 0 has it now, so that it closes when rank 0 ends
            ending = _supervise(children, interrupts, Ending(grace_s), clock or SystemClock())
        finally:
            _kill(children)
    if len(interrupts) > 1 or (interrupts and ending.exit_code == INTERRUPTED):
        return INTERRUPTED  # before the first step there is nothing to keep
    _report(ending, logs)
    return ending.exit_code


def node_environment(rank: int, nodes: int, port: int, env: Mapping[str, str], cores: int) -> dict[str, str]:
    """The environment of one local node: the cluster, and its part of the cores unless the user chose."""
    return {
        "OMP_NUM_THREADS": str(max(1, cores // nodes)),
        **env,
        "MASTER_ADDR": LOCAL_ADDRESS,
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(nodes),
        "RANK": str(rank),
        LAUNCHED: "1",
    }


def _start(
    command: Sequence[str], env: dict[str, str], log: Path | None, opened: socket.socket | None
) -> "subprocess.Popen[bytes]":
    inherited: list[int] = []
    if opened is not None and os.name == "nt":
        opened.close()  # Windows cannot hand it over: rank 0 opens it again
    elif opened is not None:
        inherited = [opened.fileno()]
        env = env | {LISTEN_FD: str(opened.fileno())}
    with ExitStack() as stack:
        output = None if log is None else stack.enter_context(_open_log(log))
        try:
            return subprocess.Popen(
                list(command),
                env=env,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                pass_fds=inherited,
                # A group of its own keeps the terminal's Ctrl-C from reaching a child beside the launcher's word.
                start_new_session=os.name != "nt",
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        except OSError as error:
            raise ConfigError(f"{command[0]!r} cannot be started: {error.strerror}") from None


def _open_log(path: Path) -> BinaryIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "ab")
    except OSError as error:
        raise RunFolderError(f"the log {path} cannot be written: {error.strerror}") from None


def _supervise(
    children: "Sequence[subprocess.Popen[bytes]]", interrupts: Sequence[int], ending: Ending, clock: Clock
) -> Ending:
    """Wait until every child has ended, by itself or by force."""
    heeded = 0
    while len(ending.exits) < len(children):
        for rank, child in enumerate(children):
            code = child.poll()
            if code is not None and rank not in ending.exits:
                ending.saw_exit(rank, code, clock.now_s())
        late = [rank for rank in range(len(children)) if rank not in ending.exits]
        if len(interrupts) > heeded:
            heeded = len(interrupts)
            if heeded == 1:
                say("stopping after this step; once more to end at once")
                _tell_stop(children)
            else:
                _kill(children)
        elif late and ending.overdue(clock.now_s()):
            names = ", ".join(f"node {rank}" for rank in late)
            warn(f"{names} did not end within {ending.grace_s:g} s of the first that did: killed")
            _kill(children)
        clock.sleep(POLL_S)
    return ending


def _tell_stop(children: "Sequence[subprocess.Popen[bytes]]") -> None:
    for child in children:
        if child.stdin is not None:
            with suppress(OSError):  # it has just ended
                child.stdin.write(STOP)
                child.stdin.flush()


def _kill(children: "Sequence[subprocess.Popen[bytes]]") -> None:
    """End what still runs, and reap it."""
    for child in children:
        if child.poll() is None:
            child.kill()
    for child in children:
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=KILL_LIMIT_S)
        if child.stdin is not None:
            with suppress(OSError):
                child.stdin.close()


def _report(ending: Ending, logs: Mapping[int, Path]) -> None:
    """Show why the first failing node failed, unless rank 0 has shown the same on this terminal."""
    if ending.first_failure is None:
        return
    rank, code = ending.first_failure
    how = f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
    warn(f"node {rank} {how}")
    if rank in logs and ending.exits.get(0) != code:
        for line in last_lines(logs[rank]):
            say(f"  node {rank}: {line}")


def last_lines(path: Path) -> list[str]:
    """The end of a log, as far as there is one."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()[-TAIL_LINES:]
    except OSError:
        return []


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Inside, SIGINT and SIGTERM only add their number to the list."""
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
