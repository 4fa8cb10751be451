"""Checkpoints: one safetensors file each, whole or absent, checked before a byte of it is believed.

Tensors are `model/<name>` and `optimizer/<name>`; everything else is JSON in the file's metadata. A SHA-256 over
the whole file, with its own 64 digits taken as zeros, stands in the header. Nothing in a file is ever executed.
"""

import hashlib
import io
import itertools
import json
import math
import re
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from daisychain.base import limits
from daisychain.base.errors import CheckpointError
from daisychain.base.files import write_atomic
from daisychain.base.log import warn

FORMAT_VERSION = 1
MODEL, OPTIMIZER = "model/", "optimizer/"
Array = npt.NDArray[Any]
Layout = Mapping[str, tuple[str, tuple[int, ...]]]  # name → (NumPy type without byte order, shape)
_TYPES = {
    "F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1",
    "U64": "u8", "U32": "u4", "U16": "u2", "U8": "u1", "BOOL": "b1",
}  # fmt: skip
_NAMES = {numpy_type: name for name, numpy_type in _TYPES.items()}
_NO_CHECKSUM = b"0" * 64
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Meta:
    """What a checkpoint holds besides tensors. `numbers` are the optimiser's, kept to the last bit."""

    task: str
    description: Mapping[str, Any]  # what the task needs to be restored
    setup: Mapping[str, Any]  # what had to be the same on every node: settings, digests of data and model
    step: int  # steps done
    position: int  # samples used
    plan: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    contract: int = limits.CONTRACT_VERSION


@dataclass(frozen=True)
class _Entry:
    numpy_type: str
    shape: tuple[int, ...]
    bytes_long: int


@dataclass(frozen=True)
class _Header:
    raw: bytes  # length field and JSON, as they stand in the file
    checksum: str
    meta: Meta
    entries: Mapping[str, _Entry]  # in file order


def checkpoint_path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}.safetensors"


def save(path: Path, meta: Meta, model: Mapping[str, Array], optimizer: Mapping[str, Array]) -> None:
    """Write a checkpoint; without `optimizer` it is a final model. Raises OSError, the old file intact."""
    named = [(MODEL + name, array) for name, array in model.items()]
    named += [(OPTIMIZER + name, array) for name, array in optimizer.items()]
    tensors = {
        name: np.asarray(array, array.dtype.newbyteorder("<"), order="C") for name, array in sorted(named)
    }
    header = _encode_header(meta, tensors)
    digest = hashlib.sha256(header)
    for array in tensors.values():
        digest.update(_content(array))
    header = header.replace(_NO_CHECKSUM, digest.hexdigest().encode(), 1)
    write_atomic(path, itertools.chain([header], (_content(array) for array in tensors.values())))


def _content(array: Array) -> memoryview:
    """The bytes of an array in C order, without a copy: an optimiser's vector is as large as the model."""
    return array.reshape(-1).view(np.uint8).data


def save_and_prune(
    folder: Path, meta: Meta, model: Mapping[str, Array], optimizer: Mapping[str, Array]
) -> Path:
    """Save into `folder`, named by step, and then remove all but this and the newest, CHECKPOINTS_KEPT in all."""
    path = checkpoint_path(folder, meta.step)
    save(path, meta, model, optimizer)
    others = [other for other in _by_step(folder) if other != path]
    for old in others[limits.CHECKPOINTS_KEPT - 1 :]:
        old.unlink(missing_ok=True)
    return path


def read_meta(path: Path) -> Meta:
    """What is in a checkpoint, from its checked header; the tensors are not read."""
    with _opened(path) as file:
        return _read_header(path, file).meta


def verify(path: Path) -> Meta:
    """Read the whole file once; raises CheckpointError unless every byte is as it was written."""
    with _opened(path) as file:
        header = _read_header(path, file)
        _read_tensors(path, file, header, {})
    return header.meta


def load(
    path: Path,
    layout: Layout,
    buffers: Collection[str] = (),
    into: Mapping[str, Array] = MappingProxyType({}),
) -> tuple[Meta, dict[str, Array]]:
    """Meta and the tensors of `layout` (names with their prefix), all of them or CheckpointError.

    Names, types and shapes are compared with `layout` before memory is taken for them; tensors of the model that
    `layout` does not have are refused, optimiser tensors that it does not ask for are skipped. Numbers have to be
    finite, except in `buffers`, where a mask may hold infinity. Tensors of `into` are read into its arrays, to save
    memory; after an error what these hold is worth nothing.
    """
    with _opened(path) as file:
        header = _read_header(path, file)
        _compare(path, header, layout)
        tensors = _read_tensors(path, file, header, layout, into)
    for name, array in tensors.items():
        if name not in buffers and array.dtype.kind == "f" and not np.isfinite(array).all():
            raise CheckpointError(f"checkpoint {path} has NaN or infinity in {name}; use an earlier one.")
    return header.meta, tensors


def newest_whole(folder: Path) -> Path | None:
    """The checkpoint of the latest step that is whole; broken ones are named and skipped. None if there is none."""
    for path in _by_step(folder):
        try:
            verify(path)
            return path
        except CheckpointError as error:
            warn(f"skipped: {error}")
    return None


def _by_step(folder: Path) -> list[Path]:
    found = [path for path in folder.glob("step-*.safetensors") if re.fullmatch(r"step-\d{8,}", path.stem)]
    return sorted(found, key=lambda path: int(path.stem[5:]), reverse=True)


def _encode_header(meta: Meta, tensors: Mapping[str, Array]) -> bytes:
    numbers = {name: number.hex() for name, number in meta.numbers.items()}
    described = {"format": FORMAT_VERSION, **asdict(meta), "numbers": numbers}
    metadata = {"sha256": _NO_CHECKSUM.decode(), "daisychain": json.dumps(described, sort_keys=True)}
    header: dict[str, Any] = {"__metadata__": metadata}
    start = 0
    for name, array in tensors.items():
        end = start + array.nbytes
        kind = _NAMES[array.dtype.str[1:]]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


class _RefusedError(Exception):
    """Why a header is not believed."""


def _opened(path: Path) -> io.BufferedReader:
    try:
        return open(path, "rb")
    except OSError as error:
        raise CheckpointError(f"checkpoint {path} cannot be opened: {error.strerror}.") from error


def _read_header(path: Path, file: io.BufferedReader) -> _Header:
    try:
        size = file.seek(0, 2)
        file.seek(0)
        return _parse_header(file, size)
    except _RefusedError as reason:
        raise CheckpointError(f"checkpoint {path} {reason}.") from None
    except OSError as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        kind = type(error).__name__
        raise CheckpointError(f"checkpoint {path} has a header that is cut or altered ({kind}).") from None


def _parse_header(file: io.BufferedReader, size: int) -> _Header:
    start = file.read(8)
    if not 8 < size <= limits.MAX_CHECKPOINT_BYTES:
        raise _RefusedError(
            f"is {size} bytes long; a checkpoint has between 9 and {limits.MAX_CHECKPOINT_BYTES}"
        )
    length = struct.unpack("<Q", start)[0]
    if length > min(limits.MAX_CHECKPOINT_HEADER_BYTES, size - 8):
        if start.startswith((b"\x80", b"PK\x03\x04")):
            raise _RefusedError(
                "is a pickle or a .pt file, which could run code; only safetensors checkpoints are read"
            )
        raise _RefusedError("is cut, or no safetensors file: its header would be longer than it may be")
    text = file.read(length)
    header = json.loads(text.decode(), object_pairs_hook=_no_duplicates)
    if not isinstance(header, dict) or not isinstance(header.get("__metadata__"), dict):
        raise _RefusedError("has no DaisyChain metadata")
    metadata = header.pop("__metadata__")
    checksum = metadata.get("sha256")
    if (
        not isinstance(checksum, str)
        or not re.fullmatch("[0-9a-f]{64}", checksum)
        or "daisychain" not in metadata
    ):
        raise _RefusedError("has no DaisyChain metadata")
    entries, end = {}, 0
    for name, value in header.items():
        entries[name] = _entry(name, value, end)
        end += entries[name].bytes_long
    if 8 + length + end != size:
        raise _RefusedError(
            f"is {size} bytes long where its header says {8 + length + end}; it is cut or altered"
        )
    return _Header(start + text, checksum, _meta(json.loads(metadata["daisychain"])), entries)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a name twice")
    return dict(pairs)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _entry(name: str, value: Any, start: int) -> _Entry:
    kind, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not name.startswith((MODEL, OPTIMIZER)) or kind not in _TYPES:
        raise _RefusedError(f"holds a tensor {name!r} of type {kind!r}, which no checkpoint has")
    if not isinstance(shape, list) or not all(map(_is_count, shape)) or len(shape) > 32:
        raise _RefusedError(f"gives {name} an impossible shape")
    bytes_long = math.prod(shape) * int(_TYPES[kind][1])
    if offsets != [start, start + bytes_long] or not all(map(_is_count, offsets)):
        raise _RefusedError(f"places {name} where it cannot be")
    return _Entry(_TYPES[kind], tuple(shape), bytes_long)


def _meta(described: Any) -> Meta:
    if described["format"] != FORMAT_VERSION:
        raise _RefusedError(
            f"has format {described['format']!r}; this version reads {FORMAT_VERSION}: update DaisyChain"
        )
    if described["contract"] != limits.CONTRACT_VERSION:
        raise _RefusedError(
            f"follows numeric contract {described['contract']!r}, not {limits.CONTRACT_VERSION}"
        )
    described.pop("format")
    if set(described) != {f.name for f in fields(Meta)} or not isinstance(described["task"], str):
        raise _RefusedError("has metadata of another shape")
    counts = [described[name] for name in ("step", "position")]
    tables = [described[name] for name in ("description", "setup", "plan", "metrics", "numbers")]
    if not all(map(_is_count, counts)) or not all(isinstance(table, dict) for table in tables):
        raise _RefusedError("has metadata of another shape")
    described["numbers"] = {name: float.fromhex(number) for name, number in described["numbers"].items()}
    if not all(map(math.isfinite, described["numbers"].values())):
        raise _RefusedError("has optimiser numbers that are not finite")
    return Meta(**described)


def _compare(path: Path, header: _Header, layout: Layout) -> None:
    for name in sorted({n for n in header.entries if n.startswith(MODEL)} | set(layout)):
        entry, wanted = header.entries.get(name), layout.get(name)
        if entry is None or wanted is None:
            side = "does not hold" if entry is None else "holds"
            other = "needs" if entry is None else "does not have"
            raise CheckpointError(
                f"checkpoint {path} {side} {name}, which the model {other}; it is of another model: "
                "use the task, data and sizes that it was trained with."
            )
        if (entry.numpy_type, entry.shape) != wanted:
            raise CheckpointError(
                f"checkpoint {path} has {name} as {entry.numpy_type}{list(entry.shape)}, the model as "
                f"{wanted[0]}{list(wanted[1])}; use the task, data and sizes that it was trained with."
            )


def _read_tensors(
    path: Path,
    file: io.BufferedReader,
    header: _Header,
    wanted: Layout,
    into: Mapping[str, Array] = MappingProxyType({}),
) -> dict[str, Array]:
    if header.raw.count(header.checksum.encode()) != 1:
        raise CheckpointError(f"checkpoint {path} has its checksum in two places; it is altered.")
    digest = hashlib.sha256(header.raw.replace(header.checksum.encode(), _NO_CHECKSUM))
    tensors: dict[str, Array] = {}
    try:
        for name, entry in header.entries.items():
            if name in wanted:
                kind, given = np.dtype("<" + entry.numpy_type), into.get(name)
                fit = given is not None and given.dtype == kind and given.flags.c_contiguous
                tensors[name] = given if given is not None and fit else np.empty(entry.shape, kind)
                content = _content(tensors[name])
                file.readinto(content)
                digest.update(content)
            else:
                for chunk in _chunks(file, entry.bytes_long):
                    digest.update(chunk)
    except OSError as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {error.strerror}.") from error
    if digest.hexdigest() != header.checksum:
        raise CheckpointError(f"checkpoint {path} is altered: its checksum is not that of its content.")
    return tensors


def _chunks(file: io.BufferedReader, bytes_long: int) -> Iterator[bytes]:
    while bytes_long > 0:
        chunk = file.read(min(bytes_long, _CHUNK_BYTES))
        if not chunk:
            return
        bytes_long -= len(chunk)
        yield chunk
