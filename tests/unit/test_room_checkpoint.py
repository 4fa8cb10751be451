"""Checkpoints of the room and of Python: each reads what the other wrote, to the last bit."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "src/daisychain/static"
CONFIG = {"vocabulary": 64, "width": 16, "layers": 2, "heads": 4, "sequence": 16}
DIGEST = "5a" * 32
NODE_LIMIT_S = 30.0

WRITE = """
import { writeFileSync } from "node:fs";
import * as checkpoint from "STATIC/checkpoint/checkpoint.js";
import { initialWeights } from "STATIC/model/weights.js";
const config = CONFIG;
const weights = initialWeights(config, 3);
const optimizer = { mean: weights.map((w) => w / 3), square: weights.map((w) => w * w), power1: 0.9, power2: 0.999,
                    position: 2 ** 40 + 1 };
const whole = { config, step: 7, tokenizer: DIGEST, weights, optimizer };
writeFileSync("room.safetensors", checkpoint.writeSafetensors(whole));
writeFileSync("room.pt", checkpoint.writePt(whole));
writeFileSync("weights.bin", weights);
"""

READ = """
import { readFileSync, writeFileSync } from "node:fs";
import { readCheckpoint } from "STATIC/checkpoint/validate.js";
const known = { digest: DIGEST, vocabulary: CONFIG.vocabulary };
try {
  const { weights, optimizer, ...others } = readCheckpoint(readFileSync("given"), "given", known);
  writeFileSync("weights.bin", weights);
  console.log(JSON.stringify({ ...others, optimizer: optimizer && { ...optimizer, mean: [], square: [] } }));
} catch (error) {
  console.log(JSON.stringify({ refused: error.name, message: error.message }));
}
"""


def run_node(script: str, folder: Path) -> str:
    """What a module printed; it works in `folder`."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    for name, value in (
        ("STATIC", STATIC.as_uri()),
        ("CONFIG", json.dumps(CONFIG)),
        ("DIGEST", f'"{DIGEST}"'),
    ):
        script = script.replace(name, value)
    command = [node, "--input-type=module", "-e", script]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=NODE_LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with room.safetensors, room.pt and weights.bin, all written by JavaScript."""
    folder = tmp_path_factory.mktemp("room")
    run_node(WRITE, folder)
    return folder


def flat(tensors: dict[str, torch.Tensor]) -> bytes:
    return b"".join(tensor.numpy().tobytes() for tensor in tensors.values())


def read_by_node(folder: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(run_node(READ, folder))
    return answer


def as_saved_by_python(written: Path) -> dict[str, Any]:
    saved: dict[str, Any] = torch.load(written / "room.pt", weights_only=True)
    saved["weights"] = {name: tensor.clone() for name, tensor in saved["weights"].items()}
    return saved


def test_torch_opens_the_pt_of_the_room_without_pickle(written: Path) -> None:
    saved = torch.load(written / "room.pt", weights_only=True)
    weights = saved.pop("weights")
    assert saved == {"format": "daisychain room 1", "config": CONFIG, "tokenizer": DIGEST, "step": 7}
    assert list(weights)[:3] == ["tokens", "positions", "blocks.0.norm1"]
    assert weights["tokens"].shape == (64, 16)
    assert weights["blocks.1.mlp_down"].shape == (16, 64)
    assert all(tensor.dtype == torch.float32 for tensor in weights.values())
    assert flat(weights) == (written / "weights.bin").read_bytes()


def test_torch_opens_the_pt_by_memory_map_too(written: Path) -> None:
    saved = torch.load(written / "room.pt", weights_only=True, mmap=True)
    assert flat(saved["weights"]) == (written / "weights.bin").read_bytes()


def test_safetensors_opens_that_of_the_room(written: Path) -> None:
    with safe_open(written / "room.safetensors", framework="numpy") as file:
        described = json.loads(file.metadata()["daisychain"])
        tensors: dict[str, npt.NDArray[np.float32]] = {n: file.get_tensor(n) for n in file.keys()}  # noqa: SIM118
    state = {"power1": 0.9, "power2": 0.999, "position": 2**40 + 1}
    assert described == {
        "format": "room 1",
        "config": CONFIG,
        "step": 7,
        "tokenizer": DIGEST,
        "optimizer": state,
    }
    weights = np.frombuffer((written / "weights.bin").read_bytes(), np.float32)
    assert tensors["tokens"].tobytes() == weights[: 64 * 16].tobytes()
    assert tensors["norm"].tobytes() == weights[-16:].tobytes()
    assert tensors["optimizer/mean"].tobytes() == (weights / np.float32(3)).tobytes()
    assert tensors["optimizer/square"].tobytes() == (weights * weights).tobytes()


def test_the_room_reads_what_torch_saved(written: Path, tmp_path: Path) -> None:
    torch.save(as_saved_by_python(written), tmp_path / "given")
    assert read_by_node(tmp_path) == {"config": CONFIG, "step": 7, "tokenizer": DIGEST}
    assert (tmp_path / "weights.bin").read_bytes() == (written / "weights.bin").read_bytes()


def test_the_room_reads_what_safetensors_saved(written: Path, tmp_path: Path) -> None:
    state = {"power1": 0.5, "power2": 0.25, "position": 12}
    described = {"format": "room 1", "config": CONFIG, "step": 7, "tokenizer": DIGEST, "optimizer": state}
    tensors = as_saved_by_python(written)["weights"]
    size = sum(tensor.numel() for tensor in tensors.values())
    vectors = {"optimizer/mean": torch.zeros(size), "optimizer/square": torch.ones(size)}
    save_file({**tensors, **vectors}, tmp_path / "given", {"daisychain": json.dumps(described)})
    answer = read_by_node(tmp_path)
    assert answer == {
        "config": CONFIG,
        "step": 7,
        "tokenizer": DIGEST,
        "optimizer": {**state, "mean": [], "square": []},
    }
    assert (tmp_path / "weights.bin").read_bytes() == (written / "weights.bin").read_bytes()


class Runs:
    """Unpickled, it would run a program."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("this ran",))


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        (Runs(), '"__builtin__.print", which could run code'),
        ({"tokens": torch.zeros(64, 16).half()}, '"torch.HalfStorage", only float32'),
        ({"tokens": torch.zeros(16, 64).T}, "does not fill its storage"),
        ({"tokens": torch.zeros(64, 16)[1:]}, "does not fill its storage"),
        ({"tokens": torch.zeros(64, 15)}, "has shape [64,15], its config needs [64,16]"),
        ({"tokens": 3}, "not a tensor"),
        ({}, '"tokens" is missing'),
    ],
    ids=["code", "half", "transposed", "slice", "shape", "number", "empty"],
)
def test_the_room_refuses_what_it_cannot_use(weights: object, reason: str, tmp_path: Path) -> None:
    saved = {
        "format": "daisychain room 1",
        "config": CONFIG,
        "tokenizer": DIGEST,
        "step": 7,
        "weights": weights,
    }
    torch.save(saved, tmp_path / "given")
    answer = read_by_node(tmp_path)
    assert answer["refused"] == "CheckpointError"
    assert reason in answer["message"]


def test_the_room_refuses_a_legacy_file_of_torch(written: Path, tmp_path: Path) -> None:
    torch.save(as_saved_by_python(written), tmp_path / "given", _use_new_zipfile_serialization=False)
    assert "no safetensors file" in read_by_node(tmp_path)["message"]
