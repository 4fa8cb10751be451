"""Checkpoints: whole or absent, and nothing is believed before it was checked."""

import errno
import hashlib
import json
import os
import pickle
import random
import struct
import subprocess
import sys
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
import torch

from daisychain.base import limits
from daisychain.base.errors import CheckpointError
from daisychain.cluster.storage import checkpoint
from daisychain.cluster.storage.checkpoint import Meta

META = Meta(
    task="digits",
    description={"classes": [0, 1], "é": "\u0000"},
    setup={"seed": 3, "optimizer": "adam"},
    step=300,
    position=9600,
    plan={"shares": [11, 21]},
    metrics={"accuracy": 0.1},
    numbers={"power1": 0.9**300, "power2": 1 / 3},
)
MODEL = {
    "a.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "scalar": np.array(7),
    "mask": np.array([True, False]),
    "empty": np.zeros((0, 3), np.float32),
}
OPTIMIZER = {"mean": np.linspace(0, 1, 12, dtype=np.float32)}


def layout(model=MODEL, optimizer=OPTIMIZER):
    named = {checkpoint.MODEL + n: a for n, a in model.items()} | {
        checkpoint.OPTIMIZER + n: a for n, a in optimizer.items()
    }
    return {name: (array.dtype.str[1:], array.shape) for name, array in named.items()}


@pytest.fixture
def path(tmp_path):
    checkpoint.save(tmp_path / "c.safetensors", META, MODEL, OPTIMIZER)
    return tmp_path / "c.safetensors"


def test_everything_comes_back_to_the_last_bit(path):
    meta, tensors = checkpoint.load(path, layout())
    assert meta == META == checkpoint.read_meta(path) == checkpoint.verify(path)
    for name, array in MODEL.items():
        assert tensors["model/" + name].dtype == array.dtype
        assert tensors["model/" + name].tobytes() == array.tobytes()
        assert tensors["model/" + name].shape == array.shape
    assert np.array_equal(tensors["optimizer/mean"], OPTIMIZER["mean"])
    assert "optimizer/mean" not in checkpoint.load(path, layout(optimizer={}))[1]


def test_the_file_is_safetensors_for_everybody_else(path):
    tensors = safetensors.numpy.load_file(path)
    assert set(tensors) == set(layout())
    assert np.array_equal(tensors["model/a.weight"], MODEL["a.weight"])


def test_equal_content_gives_equal_bytes(path, tmp_path):
    checkpoint.save(tmp_path / "d", META, dict(reversed(MODEL.items())), OPTIMIZER)
    assert (tmp_path / "d").read_bytes() == path.read_bytes()


def refusal(path, call=None):
    """The one-line message with which a file is refused; anything but a CheckpointError fails the test."""
    with pytest.raises(CheckpointError) as caught:
        (call or (lambda p: checkpoint.load(p, layout())))(path)
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("seed", range(4))
def test_mutations_are_refused(path, tmp_path, seed):
    """Cuts, flips, additions and moved pieces, 100 a seed, half of them in the header."""
    whole = path.read_bytes()
    header_end = 8 + struct.unpack("<Q", whole[:8])[0]
    dice = random.Random(seed)
    target = tmp_path / "mutated.safetensors"
    for turn in range(100):
        data = bytearray(whole)
        at = dice.randrange(header_end if turn % 2 else len(whole))
        kind = dice.choice(["flip", "byte", "cut", "add", "swap", "erase", "double"])
        if kind == "flip":
            data[at] ^= 1 << dice.randrange(8)
        elif kind == "byte":
            data[at] = dice.choice([b for b in range(256) if b != data[at]])
        elif kind == "cut":
            data = data[:at]
        elif kind == "add":
            data[at:at] = dice.randbytes(dice.randrange(1, 9))
        elif kind == "swap":
            other = dice.randrange(len(data) - 8)
            data[at : at + 8], data[other : other + 8] = data[other : other + 8], data[at : at + 8]
        elif kind == "erase":
            del data[at : at + dice.randrange(1, 64)]
        else:
            data[at:at] = data[at : at + 16]
        if bytes(data) == whole:
            continue
        target.write_bytes(data)
        refusal(target)
        refusal(target, checkpoint.verify)


def test_every_single_byte_is_covered(path, tmp_path):
    whole = path.read_bytes()
    target = tmp_path / "flipped.safetensors"
    for at in range(len(whole)):
        target.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        refusal(target, checkpoint.verify)


def forged(path, tmp_path, change_header=None, change_meta=None, data=None):
    """A file with a right checksum and a header that its writer chose."""
    whole = path.read_bytes()
    length = struct.unpack("<Q", whole[:8])[0]
    header, content = json.loads(whole[8 : 8 + length]), whole[8 + length :] if data is None else data
    meta = json.loads(header["__metadata__"]["daisychain"])
    if change_meta:
        change_meta(meta)
    header["__metadata__"] = {"sha256": "0" * 64, "daisychain": json.dumps(meta)}
    if change_header:
        header = change_header(header) or header
    text = json.dumps(header).encode()
    raw = struct.pack("<Q", len(text)) + text
    digest = hashlib.sha256(raw + content).hexdigest().encode()
    target = tmp_path / "forged.safetensors"
    target.write_bytes(raw.replace(b"0" * 64, digest, 1) + content)
    return target


def test_the_forger_knows_the_format(path, tmp_path):
    assert checkpoint.verify(forged(path, tmp_path)) == META


def entry(name, **changes):
    return lambda header: header[name].update(changes)


@pytest.mark.parametrize(
    "change",
    [
        entry("model/a.weight", shape=[3, -4]),
        entry("model/a.weight", shape=[3, True]),
        entry("model/a.weight", shape=[1 << 40, 1 << 40]),
        entry("model/a.weight", shape="3"),
        entry("model/a.weight", data_offsets=[0, 1 << 70]),
        entry("model/a.weight", data_offsets=[8, 56]),
        entry("model/a.weight", data_offsets=[0.0, 48.0]),
        entry("model/a.weight", dtype="F8_E4M3"),
        entry("model/a.weight", dtype=["F32"]),
        lambda header: header.update({"../../evil": header.pop("model/a.weight")}),
        lambda header: header.update({"model/a.weight": None}),
        lambda header: header.pop("model/a.weight"),
        lambda header: header.pop("__metadata__"),
        lambda header: header["__metadata__"].pop("sha256"),
        lambda header: header["__metadata__"].update(sha256=5),
        lambda header: header["__metadata__"].update(daisychain="[" * 100_000),
        lambda header: header["__metadata__"].update(daisychain="[]"),
        lambda header: header["__metadata__"].update(daisychain=None),
        lambda header: [header],
    ],
)
def test_hostile_headers_with_a_right_checksum_are_refused(path, tmp_path, change):
    refusal(forged(path, tmp_path, change_header=lambda h: v if isinstance(v := change(h), list) else None))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"format": 2}, "format 2"),
        ({"contract": 99}, "contract 99"),
        ({"step": -1}, "metadata"),
        ({"step": 1.5}, "metadata"),
        ({"step": 1 << 80}, "metadata"),
        ({"task": None}, "metadata"),
        ({"plan": []}, "metadata"),
        ({"numbers": {"power1": "0x1p999999999"}}, "OverflowError"),
        ({"numbers": {"power1": "nan"}}, "not finite"),
        ({"numbers": {"power1": 3}}, "TypeError"),
        ({"unknown": 1}, "metadata"),
    ],
)
def test_metadata_of_another_shape_is_refused(path, tmp_path, change, named):
    assert named in refusal(forged(path, tmp_path, change_meta=lambda meta: meta.update(change)))


class Bomb:
    def __reduce__(self):
        return (os.system, ("touch executed",))


def test_pickles_and_pt_files_are_refused_and_run_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        (tmp_path / "p.safetensors").write_bytes(pickle.dumps(Bomb(), protocol))
        refusal(tmp_path / "p.safetensors")
    torch.save({"w": torch.zeros(3), "x": Bomb()}, tmp_path / "model.pt")
    assert "pickle" in refusal(tmp_path / "model.pt")
    with zipfile.ZipFile(tmp_path / "z.safetensors", "w") as archive:
        archive.writestr("data.pkl", pickle.dumps(Bomb()))
    refusal(tmp_path / "z.safetensors")
    assert not (tmp_path / "executed").exists()


def test_a_header_length_that_looks_like_a_pickle_is_no_pickle(tmp_path):
    for padding in range(300):
        path = tmp_path / "c.safetensors"
        checkpoint.save(path, replace(META, description={"padding": "x" * padding}), MODEL, {})
        if path.read_bytes()[0] == 0x80:
            assert checkpoint.verify(path).step == META.step
            return
    pytest.fail("no padding gives a header length that begins with 0x80")


def test_files_that_are_none(tmp_path):
    assert "cannot be opened" in refusal(tmp_path / "absent")
    refusal(tmp_path)
    for content in (
        b"",
        b"x",
        b"\0" * 8,
        b"\xff" * 8,
        b"\xff" * 100,
        struct.pack("<Q", 2) + b"{}",
        b"\0" * 100,
    ):
        (tmp_path / "f").write_bytes(content)
        refusal(tmp_path / "f")


def test_sizes_are_bounded_before_anything_is_read(tmp_path, path, monkeypatch):
    monkeypatch.setattr(limits, "MAX_CHECKPOINT_BYTES", 100)
    assert "bytes long" in refusal(path)
    monkeypatch.setattr(limits, "MAX_CHECKPOINT_BYTES", 1 << 40)
    monkeypatch.setattr(limits, "MAX_CHECKPOINT_HEADER_BYTES", 10)
    assert "header would be longer" in refusal(path)


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        ({"model/a.weight": ("f4", (4, 3))}, "model/a.weight as f4[3, 4], the model as f4[4, 3]"),
        ({"model/a.weight": ("f8", (3, 4))}, "the model as f8"),
        ({"model/new": ("f4", (3,))}, "does not hold model/new"),
    ],
)
def test_other_models_are_refused_before_memory_is_taken(path, wanted, named, monkeypatch):
    monkeypatch.setattr(np, "empty", None)
    assert named in refusal(path, lambda p: checkpoint.load(p, layout() | wanted))


def test_tensors_that_the_model_lacks_are_refused(path):
    smaller = layout()
    smaller.pop("model/scalar")
    assert "holds model/scalar, which the model does not have" in refusal(
        path, lambda p: checkpoint.load(p, smaller)
    )


def test_numbers_that_are_not_finite_are_refused_except_in_buffers(tmp_path):
    model = {"w": np.array([1, -np.inf], np.float32)}
    checkpoint.save(tmp_path / "c", META, model, {})
    assert "NaN or infinity in model/w" in refusal(
        tmp_path / "c", lambda p: checkpoint.load(p, layout(model, {}))
    )
    assert checkpoint.load(tmp_path / "c", layout(model, {}), {"model/w"})[1]["model/w"][1] == -np.inf


def test_the_last_ones_are_kept_and_broken_ones_skipped(tmp_path, capsys):
    assert checkpoint.newest_whole(tmp_path) is None
    for step in (5, 10, 15, 123_456_789):
        checkpoint.save_and_prune(tmp_path, replace(META, step=step), MODEL, OPTIMIZER)
    names = [checkpoint.checkpoint_path(tmp_path, step) for step in (10, 15, 123_456_789)]
    assert sorted(tmp_path.iterdir()) == sorted(names)
    (tmp_path / "step-nonsense.safetensors").write_bytes(b"")
    assert checkpoint.newest_whole(tmp_path) == names[2]
    names[2].write_bytes(names[2].read_bytes()[:-1])
    assert checkpoint.newest_whole(tmp_path) == names[1]
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert names[2].name in error


def test_a_full_disk_leaves_the_old_file(path, monkeypatch):
    before = path.read_bytes()

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        checkpoint.save(path, replace(META, step=301), MODEL, OPTIMIZER)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


KILLER = """
import json, os, random, signal, sys, time
from pathlib import Path
import numpy as np
from daisychain.cluster.storage import checkpoint
from daisychain.cluster.storage.checkpoint import Meta

folder, dice, results = Path(sys.argv[1]), random.Random(7), []
model = {"w": np.arange(300_000, dtype=np.float32)}
for turn in range(50):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        newest = checkpoint.newest_whole(folder)
        step = checkpoint.read_meta(newest).step if newest else 0
        while True:
            step += 1
            model["w"][:] = step
            checkpoint.save_and_prune(folder, Meta("t", {}, {}, step, step * 32), model, {})
            os.write(write, step.to_bytes(4, "little"))
    os.close(write)
    time.sleep(dice.uniform(0.002, 0.06))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    told = b""
    while part := os.read(read, 65536):
        told += part
    os.close(read)
    newest = checkpoint.newest_whole(folder)
    found = -1
    if newest:
        meta, tensors = checkpoint.load(newest, {"model/w": ("f4", (300_000,))})
        found = meta.step if (tensors["model/w"] == meta.step).all() else -2
    results.append([int.from_bytes(told[-4:], "little"), found])
print(json.dumps({"results": results, "partial": len(list(folder.glob(".*.partial")))}))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="SIGKILL and fork are POSIX")
def test_sigkill_at_random_instants_of_a_save_50_times(tmp_path):
    """After each kill the newest whole checkpoint is the last one that was reported saved, or the one after it."""
    done = subprocess.run(
        [sys.executable, "-c", KILLER, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    last = 0
    for told, found in outcome["results"]:
        told = max(told, last)
        assert (found == -1 and told == 0) or told <= found <= told + 1
        last = max(found, 0)
    assert last > 20
    assert outcome["partial"] > 0  # some kills did hit a save
    assert "skipped" not in done.stderr  # and none of them left a broken checkpoint
