"""Bad input at the command line: one line that names it, exit code 2, no traceback, nothing left behind."""

import csv
import os
import pickle
import socket
from functools import partialmethod

import numpy as np
import pytest
import torch

from daisychain.cli.main import run
from daisychain.cluster.fleet import gloo
from daisychain.cluster.fleet.watch import FleetLimits
from daisychain.cluster.storage import checkpoint
from daisychain.cluster.storage.checkpoint import Meta

TASKS = """
import torch
from torch import nn
class Wrong:
    sample_count = 10
    def build_model(self): return nn.Linear(2, 1)
    def sample(self, ids): return torch.zeros(len(ids), 2)
    def loss(self, model, batch): return model(batch)
class NotANumber(Wrong):
    def loss(self, model, batch): return model(batch * float("nan")).sum()
class TooLong(Wrong):
    def build_model(self):
        from daisychain.nn import VerifiedLinear
        return VerifiedLinear(131_072, 1)
    def sample(self, ids): return torch.zeros(len(ids), 131_072)
    def loss(self, model, batch): return model(batch).mean()
class Empty(Wrong):
    sample_count = 0
class Fine(Wrong):
    def loss(self, model, batch): return model(batch).square().mean()
class Large(Fine):
    def sample(self, ids): return torch.zeros(len(ids), 2 if len(ids) < 3 else 5)
class Unready(Fine):
    def evaluate(self, model): raise KeyError("no held-out rows")
    def predict(self, model, table): return table.rows
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with small good and bad files."""
    monkeypatch.chdir(tmp_path)
    for name in ("WORLD_SIZE", "RANK", "MASTER_ADDR", "DAISY_TASK"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "short.txt").write_text("too short")
    (tmp_path / "bad_tasks.py").write_text(TASKS)
    rows = [{"x": i, "colour": "red" if i % 2 else "blue", "same": "one"} for i in range(60)]
    with open("good.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    (tmp_path / "infinite.csv").write_text(
        "x,y\n" + "\n".join(f"{'inf' if i == 7 else i},{i % 2}" for i in range(60))
    )
    return tmp_path


def left_in(here):
    """What is there, except what Python itself keeps of a module."""
    return sorted(path for path in here.parent.rglob("*") if "__pycache__" not in path.parts)


def refused(capfd, *arguments, code=2):
    """The one line on standard error."""
    assert run([str(a) for a in arguments]) == code
    out, err = capfd.readouterr()
    errors = [line for line in err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1, err
    assert err.splitlines()[-1] == errors[0]
    assert "Traceback" not in out + err
    return errors[0]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--task", "table", "--data", "absent.csv", "--target", "x"], ["absent.csv"]),
        (["--task", "table", "--data", "empty.csv", "--target", "x"], ["empty.csv", "empty"]),
        (["--task", "table", "--data", "good.csv", "--target", "color"], ["'color'", "colour"]),
        (["--task", "table", "--data", "good.csv", "--target", "same"], ["'same'", "one value only"]),
        (["--task", "table", "--data", "infinite.csv", "--target", "y"], ["inf"]),
        (["--task", "table", "--data", "good.csv"], ["--target"]),
        (["--task", "text", "--data", "short.txt"], ["short.txt", "128"]),
        (["--task", "text", "--data", "nowhere"], ["nowhere"]),
        (["--task", "digit"], ["'digit'", "digits"]),
        (["--task", "no_such_module:Task"], ["no_such_module"]),
        (["--task", "bad_tasks.py:Missing"], ["Missing"]),
        (["--task", "bad_tasks.py:Wrong"], ["(10, 1)", "scalar"]),
        (["--task", "bad_tasks.py:NotANumber"], ["nan"]),
        (["--task", "bad_tasks.py:TooLong"], ["131072", "131071"]),
        (["--task", "bad_tasks.py:Empty"], ["sample_count", "0"]),
        (["--task", "bad_tasks.py:Large"], ["bad_tasks.py", "mat1"]),
        (["--task", "bad_tasks.py:Large", "--nodes", "2"], ["mat1"]),
        (["--nodes", "0"], ["0 nodes"]),
        (["--nodes", "-1"], ["-1 nodes"]),
        (["--nodes", "many"], ["many"]),
        (["--steps", "0"], ["steps", "0"]),
        (["--batch", "-3"], ["batch", "-3"]),
        (["--lr", "nan"], ["learning_rate", "nan"]),
        (["--optimizer", "rmsprop"], ["rmsprop", "adam"]),
        (["--arithmetic", "int4"], ["int4", "int8"]),
        (["--backward", "int2"], ["int2"]),
        (["--device", "tpu"], ["tpu", "cpu"]),
        (["--plan", "fair"], ["fair", "measured"]),
        (["--name", "../up"], ["../up"]),
        (["--resume"], ["resume"]),
        (["--resume", "--name", "nothing"], ["nothing"]),
        (["--no-such-flag"], ["--no-such-flag"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_train(here, capfd, arguments, named):
    before = left_in(here)
    line = refused(capfd, "train", *arguments)
    for words in named:
        assert words in line
    assert left_in(here) == before


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"WORLD_SIZE": "2", "RANK": "2", "MASTER_ADDR": "127.0.0.1"}, ["RANK", "2"]),
        ({"WORLD_SIZE": "none", "RANK": "0", "MASTER_ADDR": "127.0.0.1"}, ["WORLD_SIZE", "none"]),
        ({"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}, ["RANK not set"]),
        ({"DAISY_STEPS": "ten"}, ["ten"]),
        ({"DAISY_LR": "-1"}, ["learning_rate", "-1"]),
        ({"DAISY_TASK": "digit"}, ["'digit'"]),
    ],
    ids=str,
)
def test_environment(here, capfd, monkeypatch, environment, named):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    before = left_in(here)
    line = refused(capfd, "train")
    for words in named:
        assert words in line
    assert left_in(here) == before


def test_two_runs_in_one_folder(here, capfd):
    assert run(["train", "--steps", "2", "--name", "mine"]) == 0
    capfd.readouterr()
    assert "holds a run already" in refused(capfd, "train", "--steps", "2", "--name", "mine")


class Bomb:
    def __reduce__(self):
        return (os.system, ("touch executed",))


@pytest.fixture
def model(here, capfd):
    assert run(["train", "--steps", "3", "--name", "good"]) == 0
    capfd.readouterr()
    return here / "runs" / "good" / "model.safetensors"


def test_checkpoints(here, model, capfd):
    whole = model.read_bytes()
    (here / "cut.safetensors").write_bytes(whole[:-100])
    (here / "altered.safetensors").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    (here / "bomb.safetensors").write_bytes(pickle.dumps(Bomb()))
    torch.save({"w": Bomb()}, here / "bomb.pt")
    foreign = Meta("evil_module:Task", {}, {}, 1, 1)
    checkpoint.save(here / "foreign.safetensors", foreign, {"w": np.zeros(2, np.float32)}, {})
    described = checkpoint.read_meta(model)
    other = Meta("digits", described.description, described.setup, 1, 1)
    checkpoint.save(here / "shapes.safetensors", other, {"w": np.zeros((1 << 10, 9), np.float32)}, {})
    (here / "rows.csv").write_text("pixel_0\n1\n")
    for name, words in {
        "absent.safetensors": "absent.safetensors",
        "cut.safetensors": "cut",
        "altered.safetensors": "altered",
        "bomb.safetensors": "bomb.safetensors",
        "bomb.pt": "pickle",
        "foreign.safetensors": "evil_module:Task",
        "shapes.safetensors": "shapes.safetensors",
    }.items():
        assert words in refused(capfd, "predict", name, "rows.csv")
    assert not (here / "executed").exists()


def test_a_description_of_a_huge_model_takes_no_memory(here, model, capfd):
    described = checkpoint.read_meta(model)
    huge = {
        **described.description,
        "model": {**described.description["model"], "sizes": [64, *[4096] * 60, 10]},
    }
    meta = Meta("digits", huge, described.setup, 1, 1)
    checkpoint.save(here / "huge.safetensors", meta, {"w": np.zeros(2, np.float32)}, {})
    assert "990," in refused(capfd, "predict", "huge.safetensors", "rows.csv")


def test_mistyped_commands_point_to_help_that_exists(here, capfd):
    assert "(daisychain --help" in refused(capfd, "trian")
    assert "(daisychain train --help" in refused(capfd, "train", "--step", "5", "--nonsense")
    assert run(["--version"]) == 0
    assert "contract 1" in capfd.readouterr().out


def test_predictions(here, model, capfd):
    assert "pixel_1" in refused(capfd, "predict", model, write(here / "few.csv", "pixel_0\n1\n"))
    assert "absent.csv" in refused(capfd, "predict", model, "absent.csv")
    assert "digits" in refused(capfd, "generate", model, "--prompt", "x")
    assert "model.bin" in refused(capfd, "export", model, "model.bin")
    assert not (here / "model.bin").exists()


def test_a_run_whose_evaluation_fails_is_kept(here, capfd):
    command = ["train", "--task", "bad_tasks.py:Unready", "--steps", "3", "--name", "kept"]
    assert run(command) == 0
    _, err = capfd.readouterr()
    assert "Traceback" not in err
    assert "evaluate(model) failed: KeyError: 'no held-out rows' (bad_tasks.py:" in err
    kept = here / "runs" / "kept" / "model.safetensors"
    assert checkpoint.verify(kept).step == 3
    named = ["--task", "bad_tasks.py:Unready"]
    assert "predict(model, table) failed: AttributeError" in refused(
        capfd, "predict", kept, "good.csv", *named
    )


def test_a_run_that_never_met_leaves_its_name_free(here, capfd, monkeypatch):
    monkeypatch.setattr(FleetLimits, "__init__", partialmethod(FleetLimits.__init__, join_s=0.3))
    ended = []
    monkeypatch.setattr(gloo, "end_process", ended.append)
    before = left_in(here)
    for name, value in {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    assert "node 1 missing" in refused(capfd, "train", "--name", "mine", "--master-port", free_port(), code=3)
    assert ended == [3]
    assert left_in(here) == before
    for name in ("MASTER_ADDR", "WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name)
    assert run(["train", "--steps", "2", "--name", "mine"]) == 0
    assert (here / "runs" / "mine" / "config.json").exists()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_folder_that_cannot_be_written_is_named(here, capfd):
    write(here / "runs", "a file where the folder should be")
    assert "runs" in refused(capfd, "train", "--steps", "2")


def write(path, text):
    path.write_text(text)
    return path
