"""SpikeWhale with real processes: two nodes train it, it resumes as it began, and the model writes."""

import json
import os
import subprocess
import sys

import pytest

from daisychain.cluster.storage import checkpoint
from daisychain.tasks import TaskOptions, load_task

ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("DAISY_", "MASTER_"))
} | {"OMP_NUM_THREADS": "1"}
SIZE = ["--preset", "tiny", "--layers", 1, "--sequence", 32, "--batch", 4, "--without", "engram,refinement"]


@pytest.fixture
def daisychain(tmp_path):
    def call(*arguments):
        command = [sys.executable, "-m", "daisychain.cli.main", *map(str, arguments)]
        environment = ENVIRONMENT | {"DAISY_CACHE": str(tmp_path / "cache")}
        run = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=180
        )
        assert run.returncode == 0, run.stderr.decode()
        return run.stdout.decode()

    return call


def rows(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.timeout(400)  # seconds on a free machine; four of its processes at once on a busy one
def test_two_nodes_train_resume_and_write(daisychain, tmp_path):
    def train(*arguments):
        return json.loads(daisychain("train", "--json", *arguments).splitlines()[-1])

    folder, text = tmp_path / "runs" / "whale", tmp_path / "daisies.txt"
    text.write_text("One daisy, two daisies, three daisies in a chain. " * 100)
    usual = ["--task", "spikewhale", "--data", text, *SIZE]
    first = train(*usual, "--nodes", 2, "--steps", 4, "--name", "whale")
    result = train("--resume", "--name", "whale", "--nodes", 2, "--steps", 8)
    train(*usual, "--steps", 8, "--name", "whole")

    for run in (first, result):
        assert len(run["state_hashes"]) == 2
        assert run["replica_diff"] == 0
        assert set(run["metrics"]) == {"held_out_loss", "perplexity", "bits_per_byte"}
        assert run["unit_invocations"]["multiply"] > 0
    assert [row["step"] for row in rows(folder)] == list(range(1, 9))
    losses, uninterrupted = ([row["loss"] for row in rows(f)] for f in (folder, folder.with_name("whole")))
    assert losses == pytest.approx(uninterrupted, abs=1e-2)  # it read on: other windows are far from these
    assert losses[-1] < losses[0]

    kept = json.loads((folder / "config.json").read_text())
    assert (kept["preset"], kept["layers"], kept["without"]) == ("tiny", 1, ["engram", "refinement"])
    options = TaskOptions(data=text, preset="tiny", layers=1, sequence=32, without=("engram", "refinement"))
    described = checkpoint.read_meta(folder / "model.safetensors").description
    assert described == json.loads(json.dumps(load_task("spikewhale", options, quiet=True).description()))

    written = daisychain("generate", result["model"], "--prompt", "The ", "--tokens", 12, "--seed", 1)
    assert written.startswith("The ")
    assert len(written.strip()) > len("The ")
    daisychain("export", result["model"], "whale.safetensors")
    assert (tmp_path / "whale.safetensors").stat().st_size > 1_000_000
