"""The nets: their margin, their memory, and their files."""

import dataclasses
import json
import shutil
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from daisychain.base import limits
from daisychain.base.errors import UnitError
from daisychain.units import UNITS, Nets, load_nets, load_tables, save_nets, shipped_nets
from daisychain.units.counts import MULTIPLY, RELU, REQUANTISE
from daisychain.units.perceptron import F32, Net, bits
from daisychain.units.store import METADATA_KEY, SHIPPED_FOLDER, _seal, load_net, net_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SHIPPED_FOLDER, tmp_path / "weights"))


def changed(net: Net, **arrays: F32) -> Net:
    return dataclasses.replace(net, **arrays)


def arrays_of(net: Net) -> dict[str, F32]:
    return {f.name: getattr(net, f.name) for f in dataclasses.fields(net) if f.name != "spec"}


@pytest.mark.parametrize("unit", UNITS)
def test_no_order_of_summation_leaves_the_margin(unit: str) -> None:
    net = shipped_nets().by_unit[unit]
    words = net.spec.words()
    inputs, truth = bits(words), net.spec.truth(words)
    random = np.random.default_rng(1)
    for _ in range(5):
        hidden = np.zeros((len(words), len(net.hidden_bias)), np.float32) + net.hidden_bias
        for bit in random.permutation(inputs.shape[1]):
            hidden = hidden + inputs[:, bit, None] * net.hidden_weight[bit]
        outputs = np.zeros(len(words), np.float32)
        for neuron in random.permutation(hidden.shape[1]):
            outputs = outputs + np.maximum(hidden[:, neuron], 0) * net.output_weight[neuron]
        outputs = outputs + net.output_bias
        assert np.abs(outputs.astype(np.float64) - truth).max() <= net.margin()
    assert net.margin() <= limits.UNIT_MARGIN_MAX


def test_the_margin_counts_roundings_and_not_only_distances() -> None:
    """Two huge hidden neurons that cancel: exact in exact arithmetic, at the mercy of the order in float32."""
    net = shipped_nets().by_unit[RELU]
    width = net.hidden_weight.shape[0]
    fragile = changed(
        net,
        hidden_weight=np.hstack([net.hidden_weight, np.full((width, 2), 0.1, np.float32)]),
        hidden_bias=np.append(net.hidden_bias, np.full(2, 2.0**22, np.float32)),
        output_weight=np.append(net.output_weight, np.array([1, -1], np.float32)),
    )
    assert net.margin() <= limits.UNIT_MARGIN_MAX < 1 < fragile.margin()


@pytest.mark.parametrize("path", ["neural", "table"])
@pytest.mark.parametrize("unit", UNITS)
def test_memory_beyond_operands_is_flat(path: str, unit: str) -> None:
    functions: Any = {"neural": shipped_nets(), "table": load_tables()}[path]
    random = np.random.default_rng(2)

    def extra_bytes(elements: int) -> int:
        kind = np.int16 if unit == REQUANTISE else np.int8
        x = random.integers(np.iinfo(kind).min, np.iinfo(kind).max, elements, kind, endpoint=True)
        operands = (x, x) if unit == MULTIPLY else (x,)
        tracemalloc.start()
        result = getattr(functions, unit)(*operands)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return int(peak - result.nbytes)

    small, block, large = map(extra_bytes, (10**4, 2 * limits.UNIT_BLOCK_ELEMENTS, 10**6))
    assert max(small, block, large) < 20e6
    assert large <= block * 1.02


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    save_nets(tmp_path / "a" / "b", shipped_nets())
    loaded = load_nets(tmp_path / "a" / "b")
    for unit in UNITS:
        mine, other = arrays_of(shipped_nets().by_unit[unit]), arrays_of(loaded.by_unit[unit])
        assert all(np.array_equal(mine[name], other[name]) for name in mine)
        assert (
            net_path(tmp_path / "a" / "b", unit).read_bytes() == net_path(SHIPPED_FOLDER, unit).read_bytes()
        )


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("shift", [0.3, 1.0, np.nan])
def test_a_net_that_is_not_right_is_not_saved(tmp_path: Path, unit: str, shift: float) -> None:
    by_unit = dict(shipped_nets().by_unit)
    by_unit[unit] = changed(by_unit[unit], output_bias=by_unit[unit].output_bias + np.float32(shift))
    with pytest.raises(UnitError, match=f"not saved: {unit}"):
        save_nets(tmp_path, Nets(by_unit))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_unit_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnitError, match="cannot be written"):
        save_nets(tmp_path / "file", shipped_nets())


def test_a_missing_file_is_a_unit_error(folder: Path) -> None:
    net_path(folder, RELU).unlink()
    with pytest.raises(UnitError, match="relu"):
        load_nets(folder)


@pytest.mark.parametrize("unit", UNITS)
def test_a_cut_or_altered_file_is_refused(folder: Path, unit: str) -> None:
    path = net_path(folder, unit)
    good = path.read_bytes()
    random = np.random.default_rng(3)
    cut = [good[:length] for length in random.integers(0, len(good), 60)]
    flipped = []
    for bit in random.integers(0, 8 * len(good), 300):
        altered = bytearray(good)
        altered[bit // 8] ^= 1 << int(bit % 8)
        flipped.append(bytes(altered))
    for hostile in [*cut, *flipped, b"", good + b"\0", good * 2, b"\x80\x04\x95cos\nsystem\n"]:
        path.write_bytes(hostile)
        with pytest.raises(UnitError) as caught:
            load_net(path, unit)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["BF16", "F16", "F64", "I32", "F8_E4M3", "BOOL", "U8", "C64", "unknown"])
def test_a_file_of_another_type_is_refused(folder: Path, kind: str) -> None:
    path = net_path(folder, RELU)
    good = path.read_bytes()
    length = struct.unpack("<Q", good[:8])[0]
    header = json.loads(good[8 : 8 + length])
    for name in header.keys() - {"__metadata__"}:
        header[name]["dtype"] = kind
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + good[8 + length :])
    with pytest.raises(UnitError):
        load_nets(folder)


def test_a_huge_file_is_refused_unread(folder: Path) -> None:
    with open(net_path(folder, RELU), "r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(UnitError, match="bytes, more than"):
        load_nets(folder)


def test_a_wrong_net_with_a_valid_seal_is_refused(folder: Path) -> None:
    arrays = arrays_of(shipped_nets().by_unit[RELU])
    arrays["output_bias"] = arrays["output_bias"] + np.float32(0.3)
    net_path(folder, RELU).write_bytes(save(arrays, {METADATA_KEY: _seal(RELU, arrays)}))
    with pytest.raises(UnitError, match="away from the right integer"):
        load_nets(folder)


def test_the_net_of_another_unit_is_refused(folder: Path) -> None:
    net_path(folder, RELU).write_bytes(net_path(folder, MULTIPLY).read_bytes())
    with pytest.raises(UnitError, match="was altered"):
        load_nets(folder)
