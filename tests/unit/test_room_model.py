"""A model that a room trained, in Python: the page's files and tokens, and hostile files refused."""

import hashlib
import json
import os
import pickle
import shutil
import struct
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from daisychain.base import limits
from daisychain.base.errors import CheckpointError, ConfigError
from daisychain.cli.main import run
from daisychain.data.tokenizer import TOKENIZER_FILE, load_tokenizer
from daisychain.numerics.decoder import DecoderConfig, initial_weights, named_tensors
from daisychain.tasks.room_model import EMPTY_PROMPT, is_room_model, read_room_model

ROOT = Path(__file__).parents[2]
CONFIG = DecoderConfig(width=8, layers=1, heads=2, sequence=16)
TOKENIZER = hashlib.sha256(TOKENIZER_FILE.read_bytes()).hexdigest()
DESCRIBED = {"format": "room 1", "config": vars(CONFIG), "step": 300, "tokenizer": TOKENIZER}


def weights():
    flat = initial_weights(CONFIG, 1)
    flat[: CONFIG.vocabulary * CONFIG.width] *= np.float32(30)  # so that some tokens are likelier than others
    return flat


def tensors():
    return {name: tensor.copy() for name, tensor in named_tensors(CONFIG, weights()).items()}


def save_safetensors(path, described=None, **changed):
    content = {**tensors(), **{name.replace("__", "/"): array for name, array in changed.items()}}
    content = {name: array for name, array in content.items() if array is not None}
    save_file(content, path, {"daisychain": json.dumps({**DESCRIBED, **(described or {})})})
    return path


def save_pt(path, described=None, **changed):
    content = {**{name: torch.from_numpy(array) for name, array in tensors().items()}, **changed}
    whole = {**DESCRIBED, "format": "daisychain room 1", "weights": content, **(described or {})}
    torch.save(whole, path)
    return path


def refusal(path):
    with pytest.raises(CheckpointError) as caught:
        read_room_model(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("save", [save_safetensors, save_pt])
def test_both_formats_hold_the_same_model(tmp_path, save):
    model = read_room_model(save(tmp_path / "model"))
    assert (model.config, model.step) == (CONFIG, 300)
    assert model.weights.tobytes() == weights().tobytes()
    assert list(model.tensors()) == list(tensors())


def test_the_optimisers_vectors_are_checked_and_left_out(tmp_path):
    vector = np.zeros(len(weights()), np.float32)
    path = save_safetensors(tmp_path / "m", optimizer__mean=vector, optimizer__square=vector)
    assert read_room_model(path).weights.tobytes() == weights().tobytes()
    assert "optimizer/mean" in refusal(save_safetensors(tmp_path / "m", optimizer__mean=vector[1:]))


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_generate_and_export(tmp_path, capfdbinary, suffix):
    save = {"safetensors": save_safetensors, "pt": save_pt}[suffix]
    path = str(save(tmp_path / f"model.{suffix}"))
    outputs = []
    for seed in ("1", "1", "2"):
        assert run(["generate", path, "--prompt", "To be é ", "--tokens", "9", "--seed", seed]) == 0
        outputs.append(capfdbinary.readouterr().out)
    first, again, other = outputs
    assert first.startswith("To be é ".encode())
    assert first == again != other
    assert run(["predict", path, "rows.csv"]) == 2
    assert b"use `daisychain generate`" in capfdbinary.readouterr().err
    assert run(["export", path, str(tmp_path / "out.pt")]) == 0
    exported = torch.load(tmp_path / "out.pt", weights_only=True)
    assert exported["norm"].tolist() == [1] * CONFIG.width


def test_pieces_are_whole_characters_and_an_empty_prompt_is_a_line_break(tmp_path):
    model = read_room_model(save_safetensors(tmp_path / "m"))
    pieces = list(model.generate("", 60, 1.2, 3))
    assert "".join(model.generate(EMPTY_PROMPT, 60, 1.2, 3)) == "".join(pieces)
    assert len(pieces) > 5
    for piece in pieces[:-1]:
        assert not piece.endswith("\ufffd")
    with pytest.raises(ConfigError, match="tokens"):
        model.generate("x", -1, 1.0, 0)


@pytest.mark.parametrize(
    ("described", "words"),
    [
        ({"format": "room 2"}, "'room 2'"),
        ({"tokenizer": "0" * 64}, "tokenizer"),
        ({"tokenizer": None}, "tokenizer"),
        ({"step": -1}, "step"),
        ({"step": 1.5}, "step"),
        ({"config": {**vars(CONFIG), "layers": 0}}, "layers"),
        ({"config": {**vars(CONFIG), "layers": 2}}, "lacks blocks.1"),
        ({"config": {**vars(CONFIG), "width": 10**9}}, "width"),
        ({"config": {**vars(CONFIG), "vocabulary": 300}}, "vocabulary"),
        ({"config": {**vars(CONFIG), "extra": 1}}, "config"),
        ({"config": [1]}, "config"),
    ],
)
def test_a_wrong_description_is_refused(tmp_path, described, words):
    assert words in refusal(save_safetensors(tmp_path / "m", described))
    if "format" not in described:
        assert words in refusal(save_pt(tmp_path / "m.pt", described))


def test_wrong_tensors_are_refused(tmp_path):
    path = tmp_path / "m"
    bad = np.ones(CONFIG.width, np.float32)
    bad[3] = np.nan
    assert "norm has NaN" in refusal(save_safetensors(path, norm=bad))
    assert "norm has NaN" in refusal(save_pt(path, norm=torch.from_numpy(bad)))
    assert "[9]; float32 of [8]" in refusal(save_safetensors(path, norm=np.ones(9, np.float32)))
    assert "norm has shape" in refusal(save_safetensors(path, norm=np.ones(8)))
    assert "norm has shape" in refusal(save_pt(path, norm=torch.ones(8, dtype=torch.float16)))
    assert "norm is no tensor" in refusal(save_pt(path, norm=[1] * 8))
    assert "lacks norm" in refusal(save_safetensors(path, norm=None))
    assert "'extra'" in refusal(save_safetensors(path, extra=np.ones(8, np.float32)))


class Bomb:
    def __reduce__(self):
        return (os.system, ("touch executed",))


def test_hostile_files_are_refused_and_run_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = save_safetensors(tmp_path / "whole").read_bytes()
    (tmp_path / "cut").write_bytes(whole[:-9])
    length = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8 : 8 + length])
    header["norm"]["data_offsets"] = header["positions"]["data_offsets"]
    text = json.dumps(header).encode()
    (tmp_path / "overlap").write_bytes(struct.pack("<Q", len(text)) + text + whole[8 + length :])
    (tmp_path / "pickle").write_bytes(pickle.dumps(Bomb()))
    (tmp_path / "empty").write_bytes(b"")
    torch.save({"weights": {"norm": Bomb()}}, tmp_path / "bomb.pt")
    torch.save(tensors(), tmp_path / "state.pt", pickle_protocol=4)
    (tmp_path / "cut.pt").write_bytes(save_pt(tmp_path / "whole.pt").read_bytes()[:-500])
    for name in ("cut", "overlap", "pickle", "empty", "bomb.pt", "state.pt", "cut.pt", "absent", "."):
        refusal(tmp_path / name)
        assert not is_room_model(tmp_path / name)
    assert not (tmp_path / "executed").exists()


def test_a_file_that_unpacks_to_more_than_any_model_is_refused_before(tmp_path):
    path = tmp_path / "zip.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * (limits.MAX_ROOM_MODEL_BYTES + 1))
    assert path.stat().st_size < 1 << 20
    assert "unpacks to" in refusal(path)
    (tmp_path / "long").touch()
    os.truncate(tmp_path / "long", limits.MAX_ROOM_MODEL_BYTES + 1)
    assert "bytes, more than" in refusal(tmp_path / "long")


PAGE = """
import { writeFileSync } from "node:fs";
const at = (path) => import(`file://${process.argv[2]}/src/daisychain/static/${path}`);
const { CpuBackend } = await at("kernels/cpu.js");
const { Memory, PlainMemory } = await at("kernels/memory.js");
const { plainPrimitives } = await at("kernels/plain.js");
const { writePt, writeSafetensors } = await at("checkpoint/checkpoint.js");
const { Inference } = await at("model/inference.js");
const { generate } = await at("model/generate.js");
const { initialWeights } = await at("model/weights.js");
const [config, tokenizer, prompt, settings] = JSON.parse(process.argv[3]);
const weights = initialWeights(config, 11).map((number) => number * 12);
const checkpoint = { config, step: 3, tokenizer, weights };
writeFileSync("room.safetensors", writeSafetensors(checkpoint));
writeFileSync("room.pt", writePt(checkpoint));
const memory = new Memory(new PlainMemory());
const backend = new CpuBackend({ name: "plain", memory, primitives: plainPrimitives(memory) });
const model = new Inference(backend, config);
backend.write(model.weights, weights);
const ids = [];
for await (const id of generate(model, prompt, settings)) ids.push(id);
console.log(JSON.stringify(ids));
"""


@pytest.mark.skipif(not shutil.which("node") and os.environ.get("CI") != "true", reason="needs Node")
def test_the_pages_files_give_the_pages_tokens(tmp_path):
    (tmp_path / "page.mjs").write_text(PAGE)
    tokenizer, prompt = load_tokenizer(), "Once upon a time, in a room"
    settings = {"tokens": 12, "temperature": 0.8, "seed": 3}
    arguments = json.dumps([vars(CONFIG), TOKENIZER, tokenizer.encode(prompt).tolist(), settings])
    command = ["node", "page.mjs", str(ROOT), arguments]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    wanted = tokenizer.decode(json.loads(answer.stdout))
    for name in ("room.safetensors", "room.pt"):
        model = read_room_model(tmp_path / name)
        assert "".join(model.generate(prompt, 12, 0.8, 3)) == wanted
