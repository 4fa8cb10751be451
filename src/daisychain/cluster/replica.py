"""One node's copy of the model: trainable weights in one flat vector, and everything the state hash covers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from daisychain.base.errors import FleetError, NonFiniteError, TaskError
from daisychain.cluster.fleet import Fleet
from daisychain.numerics.blocks import F32

Array = npt.NDArray[Any]
Layout = dict[str, tuple[str, tuple[int, ...]]]  # name → (NumPy type without byte order, shape)
_CPU = torch.device("cpu")


class Replica:
    """Owns the parameters of `model` on `device`: each trainable one becomes a view of one flat float32 vector.

    The optimiser works on `flat`, a NumPy view of the vector on the CPU; `publish` makes its changes visible.
    Shared parameters are held once, frozen ones and persistent buffers as they are. Raises TaskError for a model
    that cannot be held so.
    """

    def __init__(self, model: torch.nn.Module, device: torch.device = _CPU) -> None:
        self.model = model.to(device)
        named = dict(model.named_parameters())
        for name, parameter in named.items():
            if parameter.dtype != torch.float32 or parameter.layout != torch.strided:
                raise TaskError(
                    f"parameter {name} is {parameter.dtype}; every parameter has to be dense float32."
                )
        self.trainable = {name: p for name, p in named.items() if p.requires_grad}
        self.frozen = {name: p for name, p in named.items() if not p.requires_grad}
        if not self.trainable:
            raise TaskError("the model has no trainable parameters; set requires_grad on some.")
        persistent = model.state_dict().keys()
        self.buffers = {name: b for name, b in model.named_buffers() if name in persistent}
        for name, buffer in self.buffers.items():
            if buffer.dtype == torch.bfloat16 or buffer.is_complex():
                raise TaskError(f"buffer {name} is {buffer.dtype}; use float32, an integer type or bool.")
        self.edges = np.cumsum([0, *(p.numel() for p in self.trainable.values())]).tolist()
        weights = torch.empty(self.edges[-1], dtype=torch.float32)
        self._device_weights = weights if device == _CPU else weights.to(device)
        for parameter, view in zip(self.trainable.values(), self.views(self._device_weights), strict=True):
            view.copy_(parameter.data)
            parameter.data = view
        self._views = self.views(self._device_weights)
        weights.copy_(self._device_weights)
        self.flat: F32 = weights.numpy()
        self._weights = weights

    @property
    def device(self) -> torch.device:
        return self._device_weights.device

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """`flat` cut and shaped like the trainable parameters, in order."""
        spans = zip(self.edges[:-1], self.edges[1:], strict=True)
        return [flat[a:b].view(p.shape) for (a, b), p in zip(spans, self.trainable.values(), strict=True)]

    def check_own(self) -> None:
        """Refuse a model whose parameters are not the ones taken over: what they learn would be lost. TaskError."""
        now = dict(self.model.named_parameters())
        for (name, parameter), view in zip(self.trainable.items(), self._views, strict=True):
            if now.get(name) is not parameter or parameter.data_ptr() != view.data_ptr():
                raise TaskError(
                    f"parameter {name} was replaced while the task computed; change weights in place or not at all."
                )

    def publish(self) -> None:
        """Make changes of `flat` visible to the model, and to whoever caches by a tensor's version."""
        if self._device_weights is not self._weights:
            self._device_weights.copy_(self._weights)
        torch.autograd.graph.increment_version(list(self.trainable.values()))

    def state(self) -> dict[str, Array]:
        """Every parameter and persistent buffer by name. Weights are live views, buffers are copies."""
        views = zip(self.trainable, self.views(self._weights), strict=True)
        state: dict[str, Array] = {name: view.numpy() for name, view in views}
        state |= {name: p.detach().cpu().numpy() for name, p in self.frozen.items()}
        return state | {name: b.detach().cpu().numpy().copy() for name, b in self.buffers.items()}

    def layout(self) -> Layout:
        return {name: (array.dtype.str[1:], array.shape) for name, array in self.state().items()}

    def load(self, state: Mapping[str, Array]) -> None:
        """Take over the tensors of `state`, by name; names that it lacks keep theirs."""
        for name, view in zip(self.trainable, self.views(self._weights), strict=True):
            if name in state:
                view.copy_(torch.from_numpy(state[name].copy()))
        for name, tensor in (self.frozen | self.buffers).items():
            if name in state:
                tensor.data.copy_(torch.from_numpy(state[name].copy()))
        self.publish()

    def broadcast(self, fleet: Fleet, source: int) -> None:
        """Take over the whole state of node `source`."""
        fleet.broadcast(self._weights, source)
        for tensor in (self.frozen | self.buffers).values():
            if tensor.numel():
                sent = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
                fleet.broadcast(sent, source)
                tensor.data.copy_(sent.view(tensor.dtype).view(tensor.shape))
        self.publish()

    def changed_buffers(self, before: Mapping[str, Array]) -> tuple[int, ...]:
        """Places, in `buffers`, of those whose bits are not those of `before`."""
        now = {name: b.detach().cpu().numpy() for name, b in self.buffers.items()}
        return tuple(i for i, (name, b) in enumerate(now.items()) if b.tobytes() != before[name].tobytes())

    def pack(self, names: Sequence[str]) -> bytes:
        """The bytes of these buffers, one after the other."""
        return b"".join(self.buffers[name].detach().cpu().numpy().tobytes() for name in names)


def merge_buffers(
    before: Mapping[str, Array], names: Sequence[str], packed: Sequence[bytes], samples: Sequence[int]
) -> dict[str, Array]:
    """What the buffers `names` are after a step in which the nodes changed them each on its own samples.

    Floating ones move by the mean of their changes, weighted by samples, summed in roster order in float64, so
    that an element nobody changed keeps its bits; counters become the largest. Raises NonFiniteError.
    """
    merged: dict[str, Array] = {}
    start = 0
    for name in names:
        old = before[name]
        parts = []
        for node, data in enumerate(packed):
            if start + old.nbytes > len(data):
                raise FleetError(
                    f"place {node} of the roster sent {len(data)} bytes of buffers, too few for {name}."
                )
            parts.append(np.frombuffer(data[start : start + old.nbytes], old.dtype).reshape(old.shape))
        start += old.nbytes
        merged[name] = _mean_change(name, old, parts, samples) if old.dtype.kind == "f" else _largest(parts)
    return merged


def _largest(parts: Sequence[Array]) -> Array:
    return np.asarray(np.maximum.reduce(list(parts)))


def _mean_change(name: str, old: Array, parts: Sequence[Array], samples: Sequence[int]) -> Array:
    total = np.zeros(old.shape, np.float64)
    touched = np.zeros(old.shape, bool)
    for part, n in zip(parts, samples, strict=True):
        differs = _bits(part) != _bits(old)
        touched |= differs
        with np.errstate(invalid="ignore"):
            total += np.where(differs, n * (part.astype(np.float64) - old), 0.0)
    new = np.where(touched, old + total / sum(samples), old).astype(old.dtype)
    if not np.isfinite(new[touched]).all():
        raise NonFiniteError(
            f"buffer {name} became NaN or infinite; look for bad input or lower the learning rate."
        )
    return np.asarray(new)


def _bits(array: Array) -> Array:
    return np.asarray(array.view(f"u{array.dtype.itemsize}"))
