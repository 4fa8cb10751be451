"""An agent and a dashboard that talk: over loopback, and what each kind of answer makes of the agent."""

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import psutil
import pytest
from typer.testing import CliRunner

from daisychain.agent import machine, service
from daisychain.agent.__main__ import from_environment, to_environment
from daisychain.agent.answer import Answer
from daisychain.agent.post import Dashboard, UnansweredError, judge_answer, parse_dashboard, post_report
from daisychain.agent.report import FAILED, READY, message_text
from daisychain.agent.routes import REPORT_PATH
from daisychain.agent.service import Agent, AgentSettings
from daisychain.agent.survey import survey_in_process
from daisychain.agent.view import REACHABLE
from daisychain.base import limits
from daisychain.base.errors import ConfigError, FleetError
from daisychain.cli import main

from ..agent_help import DashboardSide, agents, as_json, report, wait_until

URL = "http://127.0.0.1:1"


def a_listener():
    return socket.create_server(("127.0.0.1", 0))


def url_of(listener):
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def run_cli(*arguments):
    """Exit code and what is said, of a command that ends by itself."""
    process = subprocess.run(
        [sys.executable, "-m", "daisychain.cli.main", "agent", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return process.returncode, process.stderr


# The whole


def test_two_agents_are_seen_and_reach_each_other_and_end_at_once(tmp_path) -> None:
    """And a third that comes before the dashboard finds it later; it says so once."""
    listener = a_listener()
    url = url_of(listener)
    with agents(tmp_path) as start:
        third = start("three", url)
        log = tmp_path / "three.log"
        listener.close()  # nothing is there yet
        wait_until(lambda: "no report to" in log.read_text())
        listener = socket.create_server(("127.0.0.1", int(url.rsplit(":", 1)[1])))
        with DashboardSide(listener) as dashboard:
            processes = [third, start("one", url), start("two", url)]
            ways = ["onetwo", "twoone", "onethree", "threeone", "twothree", "threetwo"]

            def all_measured():
                cells = dashboard.cells()
                return all(
                    w in cells and cells[w].state == REACHABLE and cells[w].bandwidth_mb_s for w in ways
                )

            wait_until(all_measured, dashboard.cells)
            nodes = dashboard.read(lambda fleet, now_s: fleet.nodes(now_s))
            assert len({node.report.probe_port for node in nodes}) == 3
            assert {node.report.memory_bytes for node in nodes} == {psutil.virtual_memory().total}
            assert {node.report.address_reason for node in nodes} == {"the route to 127.0.0.1"}
            assert log.read_text().count("no report to") == 1
            assert log.read_text().count("reporting to") == 1
            for process, number in zip(
                processes, (signal.SIGINT, signal.SIGTERM, signal.SIGINT), strict=True
            ):
                process.send_signal(number)
                assert process.wait(10) == 130
            assert "Traceback" not in log.read_text()


def test_an_agent_does_not_load_torch_nor_a_web_framework() -> None:
    """It is there while others train."""
    code = "import sys, daisychain.agent.__main__; print(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "starlette", "nicegui"} & set(answer.stdout.split())


def test_a_report_that_cannot_be_used_is_answered_with_the_reason() -> None:
    listener = a_listener()

    def post(body, kind="application/json"):
        connection = http.client.HTTPConnection("127.0.0.1", listener.getsockname()[1], timeout=10)
        connection.request("POST", REPORT_PATH, body, {"Content-Type": kind})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text)

    sound = message_text(report("a"), [])
    with DashboardSide(listener) as dashboard:
        assert post(sound)[0] == 200
        assert post(sound, "text/plain")[0] == 400
        assert post(b"{")[1]["reason"] == "malformed"
        assert post(b" " * (limits.AGENT_REPORT_BYTES + 1))[0] == 400
        assert post(sound.replace(b'"protocol":1', b'"protocol":2'))[0] == 426
        twin = report("a", instance="b" * 16, host="other", address="10.0.0.9")
        status, body = post(message_text(twin, []))
        assert (status, body["reason"]) == (409, "name_taken")
        assert dashboard.read(lambda fleet, now_s: len(fleet.nodes(now_s))) == 1


# What an answer makes of the agent


@pytest.mark.parametrize(
    ("status", "text", "error", "words"),
    [
        (401, b"no", ConfigError, "does not accept the token"),
        (403, b'{"error": "wrong token"}', ConfigError, r"\(wrong token\).*--token or DAISY_TOKEN"),
        (404, b"<html>", ConfigError, "is not a daisychain dashboard .HTTP status 404.: check --dashboard"),
        (302, b"", ConfigError, "is not a daisychain dashboard"),
        (200, b"<html>", ConfigError, "is not a DaisyChain dashboard"),
        (200, b'{"status": "ok"}', ConfigError, "the answer is not a dashboard's"),
        (426, b'{"error": "install the same"}', ConfigError, "refuses this agent: install the same"),
        (409, b'{"error": "the name a belongs"}', UnansweredError, "the name a belongs"),
        (503, b"", UnansweredError, "HTTP status 503"),
        (429, b"slowly", UnansweredError, "HTTP status 429"),
    ],
)
def test_an_answer_by_its_status(status, text, error, words) -> None:
    with pytest.raises(error, match=words):
        judge_answer(URL, status, text)


def test_a_sound_answer_is_taken() -> None:
    answer = Answer("a" * 64)
    assert judge_answer(URL, 200, as_json(answer.to_json())) == answer


def test_an_answer_that_never_ends_is_cut_off(monkeypatch) -> None:
    monkeypatch.setattr(limits, "AGENT_REPORT_LIMIT_S", 0.5)
    listener = a_listener()
    ended = threading.Event()

    def drip():
        line, _ = listener.accept()
        with line:
            try:
                line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n")
                while not ended.wait(0.05):
                    line.sendall(b" ")
            except OSError:
                pass

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        with pytest.raises((UnansweredError, ConfigError)):
            post_report(parse_dashboard(url_of(listener)), None, b"{}")
    finally:
        ended.set()
        thread.join()
        listener.close()


@pytest.mark.parametrize("says", [b"SSH-2.0-OpenSSH\r\n", b"", b"HTTP/1.1 200\r\n\r\n"])
def test_another_program_there_is_no_dashboard(says) -> None:
    listener = a_listener()

    def answer():
        line, _ = listener.accept()
        with line:
            line.recv(1 << 16)
            line.sendall(says)

    thread = threading.Thread(target=answer)
    thread.start()
    with listener, pytest.raises((UnansweredError, ConfigError)):
        post_report(parse_dashboard(url_of(listener)), "token", b"{}")
    thread.join()


# Settings


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host",
        "ftp://a",
        "http://",
        "http://a:99999",
        "http://u:p@a",
        "http://a/?x",
        "http://a b",
        "http://é",
    ],
)
def test_an_address_that_cannot_be_a_dashboard_is_refused(url) -> None:
    with pytest.raises(ConfigError, match="--dashboard is"):
        parse_dashboard(url)


def test_an_address_is_taken_apart() -> None:
    assert parse_dashboard("http://10.0.0.9") == Dashboard("http", "10.0.0.9", limits.DASHBOARD_PORT)
    assert parse_dashboard("https://a.lan/x/") == Dashboard("https", "a.lan", 443, "/x")
    assert parse_dashboard("http://[fe80::1]:81").url == "http://[fe80::1]:81"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--dashboard", "nowhere"], "--dashboard is 'nowhere'"),
        (["--name", "two\nlines"], "--name is"),
        (["--address", "192.0.2.9"], "192.0.2.9 is not one of this machine"),
        (["--token", "a\nb"], "the token holds characters"),
        (["--probe-port", "0"], "probe-port"),
    ],
)
def test_flags_that_cannot_be_used_are_refused_before_anything_starts(arguments, words, capsys) -> None:
    assert main.run(["agent", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_wrong_token_ends_the_agent_with_what_to_do() -> None:
    """The whole way: the command, its process, a server that says no."""
    listener = a_listener()

    def refuse():
        line, _ = listener.accept()
        with line:
            line.recv(1 << 16)
            line.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")

    thread = threading.Thread(target=refuse)
    thread.start()
    with listener:
        code, said = run_cli("--dashboard", url_of(listener), "--token", "wrong")
    thread.join()
    assert code == 2
    assert said.splitlines()[-1].startswith("error: the dashboard at http://127.0.0.1:")
    assert "--token or DAISY_TOKEN" in said


def test_settings_survive_the_way_to_the_process() -> None:
    settings = AgentSettings(Dashboard("http", "::1", 1, "/x"), "secret", "name", "127.0.0.1", 5, False)
    assert from_environment(to_environment(settings)) == settings


def test_help_names_the_usual_port() -> None:
    answer = CliRunner().invoke(main.app, ["agent", "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert str(limits.AGENT_PROBE_PORT) in answer.output


# The address and the port


def settings_for(**changes):
    return AgentSettings(
        **{"dashboard": Dashboard("http", "127.0.0.1", 1), "name": "a", "prove": False, **changes}
    )


def opened(agent):
    async def there():
        try:
            await agent._open_port()
            return agent._choice, agent._port
        finally:
            agent._close_port()

    return asyncio.run(there())


def test_a_port_that_was_asked_for_and_is_taken_is_an_error() -> None:
    with a_listener() as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} is in use by .*: choose another --probe-port"):
            opened(Agent(settings_for(probe_port=port)))


def test_the_usual_port_gives_way(monkeypatch, capsys) -> None:
    with a_listener() as listener:
        monkeypatch.setattr(limits, "AGENT_PROBE_PORT", listener.getsockname()[1])
        choice, port = opened(Agent(settings_for()))
    assert choice.address == "127.0.0.1"
    assert port != limits.AGENT_PROBE_PORT
    assert f"the other nodes are told {port} instead" in capsys.readouterr().err


def test_without_a_route_it_is_tried_again(monkeypatch) -> None:
    def no_route(*_, **__):
        raise FleetError("no route: check MASTER_ADDR")

    monkeypatch.setattr(service, "choose_address", no_route)
    with pytest.raises(UnansweredError, match="this machine knows no way to 127"):
        opened(Agent(settings_for()))


# The proof


def python(code):
    return (sys.executable, "-c", code)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise SystemExit('no numpy')", "the proof ended with no numpy"),
        ("import os; os._exit(7)", "exit code 7"),
        ("print('hello')", "the proof said something else"),
        ("print('{}')", "the proof said something else"),
        ("import time; time.sleep(60)", "did not end within 1 s"),
    ],
)
def test_a_proof_that_fails_is_said(code, words) -> None:
    survey = asyncio.run(survey_in_process(python(code), limit_s=1.0 if "sleep" in code else 20.0))
    assert (survey.proof, survey.backend) == (FAILED, None)
    assert words in survey.backend_reason


def test_the_proof_names_device_and_kernel() -> None:
    survey = asyncio.run(survey_in_process())
    assert survey.proof == READY, survey
    assert survey.device == "cpu" or survey.device.startswith("cuda")
    assert survey.backend_reason.startswith(f"{survey.backend} (")


# The machine


def test_this_machine_is_described() -> None:
    assert 1 <= machine.cores() <= os.cpu_count()
    assert 0 <= machine.busy_fraction() <= 1
    assert machine.load() >= 0
    assert machine.link_mbit_s("no such interface") is None


def test_a_temperature_is_believed_only_if_it_can_be(monkeypatch) -> None:
    entries = [SimpleNamespace(current=value) for value in (51.0, 63.5, 255.0, -40.0, None)]
    sensors = {"coretemp": entries, "nvme": [SimpleNamespace(current=80.0)]}
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: sensors, raising=False)
    assert machine.temperature_c() == 63.5
    monkeypatch.setattr(psutil, "sensors_temperatures", dict, raising=False)
    assert machine.temperature_c() is None
