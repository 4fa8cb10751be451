"""`daisychain room`: what it says when it starts and ends, and what it refuses."""

import importlib.util
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from daisychain.cli import main
from daisychain.cli.main import run
from daisychain.room.links import link, local_addresses, reachable

from .room_help import PATIENCE_S


def goes_on(line):
    return line != "Ctrl-C closes the room.\n"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@pytest.mark.parametrize("arguments", [["--host", "127.0.0.1"], ["--https"]])
def test_it_says_where_it_is_and_ends_on_an_interrupt(tmp_path, arguments):
    port = free_port()
    if "--https" in arguments:
        arguments = [*arguments, "--cert-dir", str(tmp_path)]
    command = [sys.executable, "-m", "daisychain.cli.main", "room", "--port", str(port), *arguments]
    process = subprocess.Popen(
        [*command, "--data", "embedded"],
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONWARNINGS": "error::ResourceWarning"},
    )
    with process:
        try:
            said = list(itertools.takewhile(goes_on, process.stderr))
            process.send_signal(signal.SIGINT)
            rest = process.communicate(timeout=PATIENCE_S)[1]
        finally:
            process.kill()
    assert process.returncode == 0, said
    assert rest.strip().startswith("The room is closed.")
    text = "".join(said)
    if "--https" in arguments:
        assert f"this machine   https://localhost:{port}/" in text
        assert re.search(r"this network   https://[\d.]+:\d+/", text)
        assert "▀" in text
        assert "made: " in text
        network = re.search(r"this network   (\S+)", text)[1]
        assert f"authority      {network}authority.crt" in text
    else:
        assert f"this machine   http://localhost:{port}/" in text
        assert "--host 0.0.0.0" in text


def test_a_busy_port_is_named(capfd):
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        assert run(["room", "--host", "127.0.0.1", "--port", str(port)]) == 2
    error = capfd.readouterr().err
    assert f"port {port} is in use by " in error
    assert f"(pid {os.getpid()})" in error
    assert "--port" in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "192.0.2.77"], ["192.0.2.77", "0.0.0.0"]),
        (["--host", "no such host"], ["no such host"]),
        (["--trusted-proxy", "nginx"], ["--trusted-proxy 'nginx'"]),
        (["--data", "pile"], ["'pile'", "fineweb-edu"]),
        (["--stun", "example.org"], ["--stun is 'example.org'", "stun:"]),
        (["--turn", "turn:example.org"], ["--turn-user"]),
        (["--turn", "stun:x", "--turn-user", "u", "--turn-password", "p"], ["--turn is 'stun:x'"]),
        (["--turn-user", "u"], ["--turn "]),
        (["--members", "9"], ["--members", "8"]),
        (["--port", "70000"], ["--port"]),
    ],
)
def test_bad_options_are_named(arguments, words, capfd):
    assert run(["room", *arguments]) == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert [word for word in words if word not in error] == []


def test_a_missing_extra_says_what_to_install(monkeypatch, capfd):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else found(name))
    assert run(["room"]) == 2
    assert 'needs uvicorn: run pip install "daisychain[room]"' in capfd.readouterr().err


def test_every_option_is_in_the_document():
    text = (Path(__file__).parents[2] / "docs/ROOM_SERVER.md").read_text(encoding="utf-8")
    described = dict(re.findall(r"^\| `(--[\w-]+)` \| (.*?) \|", text, re.MULTILINE))
    options = typer.main.get_command(main.app).commands["room"].params
    assert set(described) == {option.opts[0] for option in options}
    for option in options:
        shown = described[option.opts[0]]
        assert shown in (str(option.default), "off", "none", "your data folder"), option.name


def test_links_are_those_that_others_can_open():
    interfaces = {
        "lo": ["127.0.0.1", "::1"],
        "eth0": ["fe80::1%eth0", "fd00::5", "192.168.1.20"],
        "eth1": ["10.0.0.3"],
    }
    addresses = local_addresses(interfaces)
    assert sorted(addresses) == ["10.0.0.3", "192.168.1.20", "fd00::5"]
    assert addresses[-1] == "fd00::5"
    assert reachable("0.0.0.0", addresses) == addresses[:2]
    assert reachable("::", addresses) == addresses
    assert reachable("10.0.0.3", addresses) == ["10.0.0.3"]
    assert reachable("127.0.0.1", addresses) == []
    assert link("http", "fd00::5", 8787) == "http://[fd00::5]:8787/"
