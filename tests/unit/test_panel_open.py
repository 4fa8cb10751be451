"""How the pages are opened: addresses, refusals in one line, and the priority that they leave to runs."""

import os
import socket
import subprocess
import sys

import pytest

from daisychain.base import limits
from daisychain.cli.main import run
from daisychain.cluster.fleet.network import own_urls

INTERFACES = {"lo": ["127.0.0.1", "::1"], "eth0": ["192.168.1.20", "fe80::1%eth0", "2001:db8::5"]}


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", []),
        ("localhost", []),
        ("0.0.0.0", ["http://192.168.1.20:80"]),
        ("::", ["http://192.168.1.20:80", "http://[2001:db8::5]:80"]),
        ("192.168.1.20", ["http://192.168.1.20:80"]),
    ],
)
def test_other_machines_are_told_an_address_that_they_can_reach(host, expected) -> None:
    assert own_urls(host, 80, INTERFACES) == expected


@pytest.mark.parametrize("command", ["dashboard", "panel"])
def test_a_port_that_is_taken_is_named_with_its_owner(command, capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run([command, "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"port {port} is in use by" in said
    assert str(os.getpid()) in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--token", "short"], "5 characters"),
        (["--host", "203.0.113.9"], "address of this machine"),
        (["--port", "0"], "--port"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_line(arguments, words, capsys) -> None:
    assert run(["dashboard", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


@pytest.mark.skipif(sys.platform != "linux", reason="priorities are lowered on Linux only")
def test_pages_give_way_and_what_they_start_does_not() -> None:
    """In a process of its own, since a priority does not come back."""
    code = (
        "import os, subprocess, sys\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from daisychain.panel.priority import at_normal_priority, lower\n"
        "ask = lambda: int(subprocess.check_output([sys.executable, '-c', 'import os; print(os.nice(0))']))\n"
        "before = os.nice(0)\n"
        "lower(); lower()\n"
        "print(os.nice(0) - before, ask() - before, at_normal_priority(ask) - before)\n"
        "print(ThreadPoolExecutor(1).submit(lambda: at_normal_priority(ask)).result() - before)\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == [str(limits.PANEL_NICENESS)] * 2 + ["0", "0"], answer
