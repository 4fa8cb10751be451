"""A model that a browser room trained: its file, checked before it is believed, and the text it goes on with.

The same tokens as on the page for the same seed: the model runs by the numeric contract itself.
"""

import hashlib
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch

from daisychain.base import limits
from daisychain.base.errors import CheckpointError, ConfigError
from daisychain.data.tokenizer import TOKENIZER_FILE, load_tokenizer, text_pieces
from daisychain.numerics.blocks import F32
from daisychain.numerics.decoder import (
    Decoder,
    DecoderConfig,
    named_tensors,
    parameter_count,
    parameter_shapes,
)
from daisychain.numerics.sampling import check_sampling, generate

METADATA_KEY = "daisychain"
SAFETENSORS_FORMAT = "room 1"
PT_FORMAT = "daisychain room 1"
PT_FORMAT_START = b"daisychain room "  # of any version
PT_PICKLE_READ_BYTES = 1 << 20
OPTIMIZER_VECTORS = ("optimizer/mean", "optimizer/square")
ZIP_START = b"PK\x03\x04"
EMPTY_PROMPT = "\n"  # a model needs something to go on


@dataclass(frozen=True)
class RoomModel:
    """A decoder with its weights, one flat vector, after `step` steps."""

    config: DecoderConfig
    step: int
    weights: F32

    def tensors(self) -> Mapping[str, F32]:
        """The weights by name."""
        return named_tensors(self.config, self.weights)

    def generate(self, prompt: str, tokens: int, temperature: float, seed: int) -> Iterator[str]:
        """Text of `tokens` tokens that goes on from the prompt, piece by piece. ConfigError at once."""
        check_sampling(tokens, temperature, seed)
        ids = load_tokenizer().encode(prompt or EMPTY_PROMPT).tolist()
        return text_pieces(generate(Decoder(self.config), self.weights, ids, tokens, temperature, seed))


class _RefusedError(Exception):
    """Why a file is not believed."""


def is_room_model(path: Path) -> bool:
    """Whether a file says that it is a room's model; nothing else in it is believed, and nothing run."""
    try:
        if is_zip(path):
            return _is_room_pt(path)
        with safetensors.safe_open(path, framework="np") as file:
            described = json.loads((file.metadata() or {})[METADATA_KEY])
        return isinstance(described, dict) and str(described.get("format")).startswith("room ")
    except (OSError, safetensors.SafetensorError, KeyError, ValueError, RecursionError, zipfile.BadZipFile):
        return False


def _is_room_pt(path: Path) -> bool:
    """Whether the format's name stands in the pickle, which is not unpickled."""
    with zipfile.ZipFile(path) as archive:
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if not pickles:
            return False
        with archive.open(pickles[0]) as file:
            return PT_FORMAT_START in file.read(PT_PICKLE_READ_BYTES)


def is_zip(path: Path) -> bool:
    """Whether a file may be a `.pt`."""
    try:
        with open(path, "rb") as file:
            return file.read(len(ZIP_START)) == ZIP_START
    except OSError:
        return False


def read_room_model(path: Path) -> RoomModel:
    """The model of a `.safetensors` or `.pt` file that a room's page saved. Raises CheckpointError."""
    try:
        if (size := path.stat().st_size) > limits.MAX_ROOM_MODEL_BYTES:
            raise _RefusedError(f"it has {size} bytes, more than {limits.MAX_ROOM_MODEL_BYTES}")
        return _read_pt(path) if is_zip(path) else _read_safetensors(path)
    except _RefusedError as reason:
        raise CheckpointError(
            f"room model {path} was refused: {reason}. Use a file that the page saved."
        ) from None
    except OSError as error:
        raise CheckpointError(f"room model {path} cannot be read: {error.strerror}.") from None


def _read_safetensors(path: Path) -> RoomModel:
    try:
        with safetensors.safe_open(path, framework="np") as file:
            described = json.loads((file.metadata() or {})[METADATA_KEY])
            config, step = _description(described, SAFETENSORS_FORMAT)
            optimizer = {name: (parameter_count(config),) for name in OPTIMIZER_VECTORS}
            _check_names(set(file.keys()) - set(optimizer), config)
            for name, shape in (parameter_shapes(config) | optimizer).items():
                if name in file.keys():  # noqa: SIM118  safe_open is no mapping
                    part = file.get_slice(name)
                    _check_tensor(name, part.get_dtype() == "F32", tuple(part.get_shape()), shape)
            return _model(config, step, {name: file.get_tensor(name) for name in parameter_shapes(config)})
    except (safetensors.SafetensorError, KeyError, ValueError, RecursionError) as error:
        raise _RefusedError(f"it is no safetensors file of a room, or is cut ({error!r:.120})") from None


def _read_pt(path: Path) -> RoomModel:
    """Opened with weights_only: a file with code in it is refused, and none of it runs."""
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked > limits.MAX_ROOM_MODEL_BYTES:  # before memory is taken for it
            raise _RefusedError(f"it unpacks to {unpacked} bytes, more than {limits.MAX_ROOM_MODEL_BYTES}")
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except _RefusedError:
        raise
    except Exception as error:  # torch names no narrower one
        reason = " ".join(str(error).split())[:120]
        raise _RefusedError(f"it is no .pt file, or its pickle holds more than weights ({reason})") from None
    if not isinstance(content, dict) or not isinstance(content.get("weights"), dict):
        raise _RefusedError('its pickle is not a dict with "weights", as a room\'s is')
    config, step = _description(content, PT_FORMAT)
    weights = content["weights"]
    _check_names(set(weights), config)
    for name, shape in parameter_shapes(config).items():
        tensor = weights[name]
        if not isinstance(tensor, torch.Tensor):
            raise _RefusedError(f"its {name} is no tensor")
        whole = tensor.dtype == torch.float32 and tensor.layout == torch.strided
        _check_tensor(name, whole, tuple(tensor.shape), shape)
    return _model(config, step, {name: weights[name].detach().numpy() for name in parameter_shapes(config)})


def _description(described: Any, wanted: str) -> tuple[DecoderConfig, int]:
    """Config and step, of our format and tokenizer."""
    if not isinstance(described, dict) or described.get("format") != wanted:
        found = described.get("format") if isinstance(described, dict) else described
        raise _RefusedError(f"its format is {found!r:.60}; this version reads {wanted!r}")
    tokenizer = hashlib.sha256(TOKENIZER_FILE.read_bytes()).hexdigest()
    if described.get("tokenizer") != tokenizer:
        raise _RefusedError(f"it is of tokenizer {described.get('tokenizer')!r:.70}, not {tokenizer!r}")
    step, config = described.get("step"), described.get("config")
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < 2**53:
        raise _RefusedError(f"its step is {step!r:.60}, not a whole number")
    if not isinstance(config, dict) or set(config) != {field.name for field in fields(DecoderConfig)}:
        raise _RefusedError("its config has other names than a room's")
    if config["vocabulary"] != limits.VOCABULARY:
        raise _RefusedError(f"its vocabulary is {config['vocabulary']!r:.60}, not {limits.VOCABULARY}")
    try:
        return DecoderConfig(**config), step
    except ConfigError as error:
        raise _RefusedError(f"its config cannot be used: {str(error).rstrip('.')}") from None


def _check_names(found: set[Any], config: DecoderConfig) -> None:
    for name in parameter_shapes(config).keys() - found:
        raise _RefusedError(f"it lacks {name}")
    for name in found - parameter_shapes(config).keys():
        raise _RefusedError(f"it holds {name!r:.60}, which its config does not have")


def _check_tensor(name: str, whole: bool, found: tuple[int, ...], shape: tuple[int, ...]) -> None:
    if not whole or found != shape:
        raise _RefusedError(f"its {name} has shape {list(found)}; float32 of {list(shape)} is needed")


def _model(config: DecoderConfig, step: int, tensors: Mapping[str, F32]) -> RoomModel:
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise _RefusedError(f"its {name} has NaN or infinity")
    return RoomModel(
        config, step, np.concatenate([tensors[name].reshape(-1) for name in parameter_shapes(config)])
    )
