"""The command line with real processes: what a person gets, and what a program reads."""

import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from daisychain.cluster.storage import checkpoint

REPOSITORY = Path(__file__).parents[2]
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("DAISY_", "MASTER_"))
}


def daisychain(*arguments, cwd, **options):
    command = [sys.executable, "-m", "daisychain.cli.main", *map(str, arguments)]
    run = subprocess.run(
        command, cwd=cwd, env=ENVIRONMENT, capture_output=True, check=False, timeout=110, **options
    )
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout.decode(errors="replace")  # an untrained model writes any bytes


def train(*arguments, cwd):
    """The object that `--json` ends with."""
    return json.loads(daisychain("train", "--json", *arguments, cwd=cwd).splitlines()[-1])


def losses(cwd, name):
    return [
        json.loads(line)["loss"] for line in (cwd / "runs" / name / "metrics.jsonl").read_text().splitlines()
    ]


def test_three_nodes_train_digits_and_the_model_is_used(tmp_path):
    result = train("--nodes", 3, "--name", "digits", cwd=tmp_path)
    wanted = "task nodes steps loss_first loss_last metric state_hashes replica_diff unit_invocations kernel"
    assert set(wanted.split()) | {"samples_per_s", "checkpoint"} <= set(result)
    assert result["metric"] >= 0.96
    assert result["loss_last"] < result["loss_first"]
    assert len(result["state_hashes"]) == 3
    assert len(set(result["state_hashes"])) == 1
    assert result["replica_diff"] == 0
    # Forward, gradient of the inputs (but of the first layer) and of the weights: 64-128-64-10, 300 steps of 32.
    layers = 64 * 128 + 128 * 64 + 64 * 10
    assert result["unit_invocations"]["multiply"] == 300 * 32 * (3 * layers - 64 * 128)
    assert result["unit_invocations"]["relu"] == 300 * 32 * (128 + 64)
    assert (tmp_path / result["checkpoint"]).is_file()
    assert json.loads((tmp_path / "runs/digits/config.json").read_text())["task"] == "digits"
    out = daisychain("predict", result["model"], REPOSITORY / "examples/digits.csv", cwd=tmp_path)
    answers = list(csv.DictReader(out.splitlines()))
    with (REPOSITORY / "examples/digits.csv").open() as file:
        labels = [row["label"] for row in csv.DictReader(file)]
    assert sum(a["prediction"] == label for a, label in zip(answers, labels, strict=True)) >= len(labels) - 1


def megabyte_of_text(path):
    """A file of 1 MB: the sources of the standard library."""
    sources = sorted(Path(os.__file__).parent.glob("*.py"))
    path.write_bytes(b"".join(source.read_bytes() for source in sources)[:1_000_000])
    assert path.stat().st_size == 1_000_000
    return path


@pytest.mark.parametrize("corpus", ["embedded", "file"])
def test_text_learns_alike_on_one_two_and_three_nodes(tmp_path, corpus):
    data = [] if corpus == "embedded" else ["--data", megabyte_of_text(tmp_path / "sources.txt")]
    for nodes in (1, 2, 3):
        train("--task", "text", "--steps", 50, "--nodes", nodes, "--name", f"n{nodes}", *data, cwd=tmp_path)
    one = losses(tmp_path, "n1")
    assert len(one) == 50
    assert one[-1] < one[0] - 1.5
    for nodes in (2, 3):
        assert max(abs(a - b) for a, b in zip(one, losses(tmp_path, f"n{nodes}"), strict=True)) < 1e-3


def test_text_generates_and_exports(tmp_path):
    result = train("--task", "text", "--steps", 20, "--width", 32, "--sequence", 64, cwd=tmp_path)
    texts = [
        daisychain("generate", result["model"], "--prompt", "The ", "--tokens", 30, "--seed", 1, cwd=tmp_path)
        for _ in range(2)
    ]
    assert texts[0] == texts[1]
    assert texts[0].startswith("The ")
    assert len(texts[0]) > len("The ")
    for name in ("m.pt", "m.safetensors"):
        daisychain("export", result["model"], name, cwd=tmp_path)
    by_torch = torch.load(tmp_path / "m.pt", weights_only=True)
    by_safetensors = load_file(tmp_path / "m.safetensors")
    assert set(by_torch) == set(by_safetensors)
    assert all(torch.equal(by_torch[name], by_safetensors[name]) for name in by_torch)


def start(*arguments, cwd, env=None):
    command = [sys.executable, "-m", "daisychain.cli.main", "train", *map(str, arguments)]
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=ENVIRONMENT | (env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def await_steps(cwd, name, steps, limit_s=60):
    deadline = time.monotonic() + limit_s
    path = cwd / "runs" / name / "metrics.jsonl"
    while not path.exists() or path.read_text().count("\n") < steps:
        assert time.monotonic() < deadline, "the run has not come so far"
        time.sleep(0.05)


def test_ctrl_c_ends_cleanly_with_a_checkpoint_that_resumes_on_other_nodes(tmp_path):
    run = start("--nodes", 2, "--steps", 100_000, "--name", "long", "--json", cwd=tmp_path)
    await_steps(tmp_path, "long", 30)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0, err.decode()
    for said in (err.decode(), (tmp_path / "runs/long/node-1.log").read_text()):
        assert said.count("kernel: ") == 1  # each node once, the launcher never
    stopped = json.loads(out.decode().splitlines()[-1])
    assert stopped["stopped"]
    assert stopped["replica_diff"] == 0
    more = stopped["steps"] + 20
    resumed = train("--nodes", 3, "--steps", more, "--name", "long", "--resume", cwd=tmp_path)
    assert resumed["steps"] == more
    steps = [
        json.loads(line)["step"] for line in (tmp_path / "runs/long/metrics.jsonl").read_text().splitlines()
    ]
    assert steps == list(range(1, more + 1))


def await_line(run, words, limit_s=60):
    """What a run says on standard error up to the line with `words`; kills the run if it does not come."""
    said = []
    killer = threading.Timer(limit_s, run.kill)
    killer.start()
    for line in run.stderr:
        said.append(line.decode())
        if words in said[-1]:
            killer.cancel()
            return "".join(said)
    return pytest.fail(f"{words!r} was not said:\n{''.join(said)}")


def test_a_second_ctrl_c_ends_at_once(tmp_path):
    """A step takes much longer than the test waits, so nothing but the second signal can end the run."""
    slow = {"DAISY_TEST_SLOWDOWN": "1000", "DAISY_KERNEL": "sgemm"}
    arguments = ["--task", "text", "--batch", 64, "--nodes", 2, "--steps", 100_000, "--name", "long"]
    run = start(*arguments, cwd=tmp_path, env=slow)
    await_line(run, "kernel: ")
    deadline = time.monotonic() + 60
    while not (tmp_path / "runs/long/config.json").exists():
        assert time.monotonic() < deadline, "the run did not begin"
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    await_line(run, "stopping after this step")
    time.sleep(0.5)
    assert run.poll() is None, "it ended at the first"
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=10)
    assert run.returncode == 130


def cluster_node(rank, of, port, *arguments, cwd):
    """One node of a real cluster on the loopback interface."""
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(of), "RANK": str(rank)}
    env |= {"DAISY_KERNEL": "sgemm"}  # its proof takes the least time
    return start(*arguments, cwd=cwd, env=env)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("rank", [0, 1])
def test_ctrl_c_ends_the_wait_for_the_others(tmp_path, rank):
    """Before, a node waited for up to two minutes."""
    run = cluster_node(rank, 2, free_port(), "--name", "mine", cwd=tmp_path)
    await_line(run, "kernel: ")
    time.sleep(1.0)  # it is in the join by now, or will see the request there
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=10)
    assert run.returncode == 130
    lines = [line for line in err.decode().splitlines() if "reached at" not in line]
    assert len(lines) == 1
    assert re.fullmatch(f"error: node {rank} was stopped while it waited for node .*", lines[0])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("rank", "number"), [(0, signal.SIGKILL), (2, signal.SIGSTOP)])
def test_a_lost_node_is_named_and_the_run_goes_on_from_what_a_survivor_saved(tmp_path, rank, number):
    common = ["--task", "digits-float", "--steps", 100_000, "--checkpoint-every", 100_000, "--name", "mine"]
    port = free_port()
    nodes = [cluster_node(r, 3, port, *common, cwd=tmp_path) for r in range(3)]
    try:
        await_steps(tmp_path, "mine", 12)
        nodes[rank].send_signal(number)
        survivors = [node for r, node in enumerate(nodes) if r != rank]
        said = [node.communicate(timeout=40)[1].decode() for node in survivors]
    finally:
        for node in nodes:
            node.kill()
            node.communicate()
    for node, err in zip(survivors, said, strict=True):
        assert node.returncode == 3, err
        (line,) = [line for line in err.splitlines() if line.startswith("error: ")]
        assert f"node {rank} (" in line
        assert "Traceback" not in err
    assert "saved " in said[0]
    assert "saved " not in said[1]
    (saved,) = (tmp_path / "runs/mine/checkpoints").glob("step-*.safetensors")
    step = checkpoint.verify(saved).step
    assert step >= 12
    resumed = train(*common[:2], "--steps", step + 5, "--name", "mine", "--resume", cwd=tmp_path)
    assert resumed["steps"] == step + 5
    steps = [
        json.loads(line)["step"] for line in (tmp_path / "runs/mine/metrics.jsonl").read_text().splitlines()
    ]
    assert steps == list(range(1, step + 6))


def test_verify_ends_in_one_json_object(tmp_path):
    report = json.loads(daisychain("verify", "--json", cwd=tmp_path).splitlines()[-1])
    totals = {(u["unit"], u["path"]): (u["right"], u["total"]) for u in report["units"]}
    for unit, total in {"multiply": 65_536, "requantise": 65_536, "relu": 256}.items():
        for path in ("scalar", "batched", "table"):
            assert totals[unit, path] == (total, total)
    backends = {b["backend"]: b for b in report["backends"]}
    assert backends["sgemm"]["admitted"]
    assert backends["sgemm"]["ratio_to_float32"] > 0
    assert {"neural", "table", "int_mm"} <= set(backends)


def test_units_are_trained_from_scratch(tmp_path):
    out = daisychain("units", "train", "--out", "mine", "--seed", 2, cwd=tmp_path)
    assert "multiply: 65536/65536" in out
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {
        "multiply.safetensors",
        "relu.safetensors",
        "requantise.safetensors",
    }


def test_doctor_says_what_this_machine_has(tmp_path):
    command = [sys.executable, "-m", "daisychain.cli.main", "doctor", "--master-addr", "127.0.0.1"]
    run = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, check=False, timeout=60)
    assert run.returncode == 0
    report = run.stderr.decode()
    for word in ("python", "torch", "memory", "device", "kernel", "interfaces", "coordinator"):
        assert word in report


def test_a_resumed_run_goes_on_as_it_began(tmp_path):
    settings = ["--task", "text", "--width", 32, "--sequence", 64, "--lr", 0.002, "--checkpoint-every", 4]
    whole = train(*settings, "--steps", 8, "--name", "whole", cwd=tmp_path)
    train(*settings, "--steps", 8, "--name", "cut", cwd=tmp_path)
    (tmp_path / "runs/cut/checkpoints/step-00000008.safetensors").unlink()
    resumed = train("--name", "cut", "--resume", cwd=tmp_path)
    assert resumed["task"] == "text"
    assert resumed["steps"] == 8
    assert resumed["state_hashes"] == whole["state_hashes"]
