"""The local launcher with real processes: small scripts in place of the trainer."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from daisychain.base.errors import ConfigError, RunFolderError
from daisychain.cluster.fleet.launch import launch_local

PATIENCE_S = 20.0

#: A child that says it is there, counts its interrupts, and ends at the first where it is told to heed them.
CHILD = """
import os, signal, sys, time
from pathlib import Path
from daisychain.cluster.fleet.launched import listen_to_launcher

folder, role = Path(sys.argv[1]), sys.argv[2]
rank = os.environ["RANK"]
interrupts = []
signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
listen_to_launcher(grace_s=1.0)
(folder / f"up-{rank}").write_text(str(os.getpid()))
while not interrupts or role == "stubborn":
    time.sleep(0.02)
time.sleep(0.5)
(folder / f"interrupts-{rank}").write_text(str(len(interrupts)))
"""

LAUNCHER = """
import sys
from pathlib import Path
from daisychain.cluster.fleet.launch import launch_local

folder = Path(sys.argv[1])
sys.exit(launch_local(3, [sys.executable, *sys.argv[2:]], folder))
"""


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    before = psutil.Process().children()
    yield
    assert [child for child in psutil.Process().children() if child not in before] == []


def script(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def await_files(paths: list[Path]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not all(path.exists() and path.read_text() for path in paths):
        assert time.monotonic() < deadline_s, f"{[path.name for path in paths]} did not appear"
        time.sleep(0.02)


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Callable[[str], "subprocess.Popen[str]"]]:
    """Starts a launcher of three children in a session of its own, and waits until they are up."""
    child = tmp_path / "child.py"
    child.write_text(CHILD)
    started: list[subprocess.Popen[str]] = []

    def start(role: str) -> "subprocess.Popen[str]":
        arguments = [str(tmp_path), str(child), str(tmp_path), role]
        process = subprocess.Popen(
            [*script(LAUNCHER), *arguments], start_new_session=True, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        await_files([tmp_path / f"up-{rank}" for rank in range(3)])
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def assert_children_gone(folder: Path) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    for rank in range(3):
        pid = int((folder / f"up-{rank}").read_text())
        with contextlib.suppress(psutil.NoSuchProcess):
            while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                assert time.monotonic() < deadline_s, f"child {rank} still runs"
                time.sleep(0.02)


def test_nodes_get_their_cluster_and_their_logs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = (
        "import os, socket\n"
        "names = 'MASTER_ADDR WORLD_SIZE RANK OMP_NUM_THREADS'.split()\n"
        "print(*(os.environ[name] for name in names))\n"
        "if os.environ['RANK'] == '0':\n"
        "    opened = socket.socket(fileno=int(os.environ['DAISY_LISTEN_FD']))\n"
        "    assert opened.getsockname() == ('127.0.0.1', int(os.environ['MASTER_PORT']))\n"
        "    assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)\n"
        "else:\n"
        "    assert 'DAISY_LISTEN_FD' not in os.environ\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    assert launch_local(3, script(text), tmp_path / "run", env=env) == 0
    lines = [
        capfd.readouterr().out,
        *((tmp_path / "run" / f"node-{rank}.log").read_text() for rank in (1, 2)),
    ]
    threads = max(1, len(os.sched_getaffinity(0)) // 3)
    assert lines == [f"127.0.0.1 3 {rank} {threads}\n" for rank in range(3)]


@pytest.mark.parametrize("count", [0, -1, 65])
def test_an_impossible_number_of_nodes_is_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(ConfigError, match=f"^{count} nodes .* from 1 to 64$"):
        launch_local(count, script("pass"), tmp_path)


def test_the_first_failure_gives_the_exit_code_and_its_log_is_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (
        "import os, sys, time\n"
        "if os.environ['RANK'] != '2': time.sleep(1.0); sys.exit(3)\n"
        "print('the reason of node 2'); sys.exit(7)\n"
    )
    assert launch_local(3, script(text), tmp_path) == 7
    said = capfd.readouterr().err
    assert "node 2 failed with exit code 7" in said
    assert "node 2: the reason of node 2" in said


def test_a_killed_node_and_one_that_does_not_follow(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (
        "import os, signal, time\n"
        "if os.environ['RANK'] == '1': os.kill(os.getpid(), signal.SIGKILL)\n"
        "if os.environ['RANK'] == '2': os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    assert launch_local(3, script(text), tmp_path, grace_s=0.3) == 128 + signal.SIGKILL
    said = capfd.readouterr().err
    assert "node 1 was ended by signal 9" in said
    assert "node 2 did not end within 0.3 s" in said


def test_an_interrupt_reaches_every_node_once(
    tmp_path: Path, launched: Callable[[str], "subprocess.Popen[str]"]
) -> None:
    """As from a terminal: to the whole foreground group at once."""
    launcher = launched("obedient")
    os.killpg(launcher.pid, signal.SIGINT)
    assert launcher.wait(timeout=PATIENCE_S) == 0
    assert [(tmp_path / f"interrupts-{rank}").read_text() for rank in range(3)] == ["1"] * 3


def test_a_second_interrupt_kills(tmp_path: Path, launched: Callable[[str], "subprocess.Popen[str]"]) -> None:
    launcher = launched("stubborn")
    assert launcher.stderr is not None
    launcher.send_signal(signal.SIGTERM)
    assert "once more" in launcher.stderr.readline()
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(timeout=PATIENCE_S) == 130
    assert_children_gone(tmp_path)


@pytest.mark.parametrize("role", ["obedient", "stubborn"])
def test_no_child_outlives_a_killed_launcher(
    tmp_path: Path, launched: Callable[[str], "subprocess.Popen[str]"], role: str
) -> None:
    launched(role).kill()
    assert_children_gone(tmp_path)


def test_a_busy_port_is_moved_from_and_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as squatter:
        port = squatter.getsockname()[1]
        text = f"import os, sys; sys.exit(os.environ['MASTER_PORT'] == '{port}')"
        assert launch_local(2, script(text), tmp_path, port=port) == 0
    said = capfd.readouterr().err
    assert f"port {port} is in use by" in said
    assert f"pid {os.getpid()}" in said


def test_what_cannot_start_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no-such-program"):
        launch_local(2, [str(tmp_path / "no-such-program")], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="node-1"):
        launch_local(2, script("import time; time.sleep(60)"), tmp_path / "file")


def test_launched_nodes_form_a_fleet(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """On the port that the launcher opened and rank 0 inherited."""
    text = (
        "import os, torch\n"
        "from daisychain.cluster.fleet.gloo import GlooFleet\n"
        "from daisychain.cluster.fleet.settings import cluster_from_environment\n"
        "torch.set_num_threads(1)\n"
        "fleet = GlooFleet.connect(cluster_from_environment(os.environ))\n"
        "buffer = torch.full((4,), fleet.rank + 1.0)\n"
        "fleet.start_sum(buffer).wait()\n"
        "fleet.close()\n"
        "print(buffer.tolist())\n"
    )
    assert launch_local(2, script(text), tmp_path) == 0
    captured = capfd.readouterr()
    assert captured.out == "[3.0, 3.0, 3.0, 3.0]\n"
    assert captured.err == ""
    assert (tmp_path / "node-1.log").read_text() == captured.out
