"""The command line with real processes: what a person gets, and what a program reads."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

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


def start(*arguments, cwd):
    command = [sys.executable, "-m", "daisychain.cli.main", "train", *map(str, arguments)]
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=ENVIRONMENT,
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


def test_a_second_ctrl_c_ends_at_once(tmp_path):
    run = start("--nodes", 2, "--steps", 100_000, "--name", "long", cwd=tmp_path)
    await_steps(tmp_path, "long", 5)
    run.send_signal(signal.SIGINT)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=30)
    assert run.returncode in (0, 130)  # 0 if it had already ended cleanly


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
