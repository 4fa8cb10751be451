"""What a training task is. `examples/my_task_template.py` is one to copy."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch

from daisychain.base.errors import TaskError

SampleIds = npt.NDArray[np.int64]
#: A mean over the samples given, or (sum, count) where the unit is a token or a pixel.
Loss = torch.Tensor | tuple[torch.Tensor, int]
Arithmetic = Literal["int8", "int8x3", "float"]


@dataclass(frozen=True)
class TaskOptions:
    """What the command line gives to a task. Every field has a usable default."""

    data: Path | None = None
    target: str | None = None
    seed: int = 0
    arithmetic: Arithmetic = "int8"  # float: ordinary layers (FEATURES P5)
    backward: Literal["int8", "float"] = "int8"
    width: int | None = None
    layers: int | None = None
    sequence: int | None = None
    # Of task spikewhale alone:
    preset: str | None = None  # a size by name; width, layers, heads and sequence change it
    heads: int | None = None
    without: tuple[str, ...] = ()  # parts of the model to leave out
    dataset: str | None = None  # owner/name on the Hugging Face hub
    dataset_config: str | None = None
    split: str | None = None
    column: str | None = None  # with the text
    on_data_failure: Literal["stop", "embedded"] | None = None  # what a hub that fails leads to


@dataclass(frozen=True)
class Glimpse:
    """How a model does on the way: figures by name, and a short text that it wrote, if it writes."""

    metrics: Mapping[str, float]
    text: str = ""


class Task:
    """Base of the built-in tasks; a task of your own may inherit it or only look like it.

    `sample_count` is the number of training samples; their ids are 0 … sample_count − 1.
    """

    name: str = "custom"
    sample_count: int = 0
    metric: str = ""  # the key of `evaluate` that a person looks at, such as "accuracy"
    learning_rate: float = 1e-3  # used unless the user gives one
    warmup_steps: int = 0  # likewise: steps over which the rate rises
    batch_samples: int = 32  # likewise
    usage: str = "predict {model} ROWS.csv"  # the command that a finished model is for
    notes: Sequence[str] = ()  # what was decided about the data, a line each; said by `load_task`
    #: Samples are fetched as they come: ids are used in rising order, without end, and `sample` may wait for them.
    streamed: bool = False

    def build_model(self) -> torch.nn.Module:
        """A new model with seeded weights. Rank 0's weights are sent to all."""
        raise NotImplementedError

    def sample(self, ids: SampleIds) -> Any:
        """The batch of these training samples; whatever `loss` takes. The same ids give the same batch.

        Tensors on the CPU: the trainer moves them to the model's device before `loss`.
        """
        raise NotImplementedError

    def loss(self, model: torch.nn.Module, batch: Any) -> Loss:
        """The loss of a batch, differentiable."""
        raise NotImplementedError

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        """Metrics on held-out data, by name; called without gradients, in eval mode."""
        return {}

    def glimpse(self, model: torch.nn.Module) -> Glimpse | None:
        """A quick look at a model that is being trained; None if the task has nothing to show.

        Called on the first node at each checkpoint: without gradients, in eval mode, and within a second or so.
        """
        return None

    def predict(self, model: torch.nn.Module, table: Any) -> list[dict[str, str | float | int]]:
        """An answer for each row of a table: the path of a CSV or Parquet file, or a pyarrow.Table."""
        raise TaskError(f"task {self.name!r} has no predictions; give it a method `predict(model, table)`.")

    def description(self) -> Mapping[str, Any]:
        """JSON that `restore` needs to rebuild the task for inference, without its training data.

        Nodes compare it before the first step: a hash of the data belongs in it.
        """
        return {}

    @classmethod
    def restore(cls, description: Mapping[str, Any]) -> "Task":
        """The task of a checkpoint; able to build the model and to infer, not to sample."""
        return cls()


@runtime_checkable
class Writer(Protocol):
    """A task whose models write text."""

    def generate(
        self, model: torch.nn.Module, prompt: bytes | str, tokens: int, temperature: float, seed: int
    ) -> Iterator[bytes]:
        """What goes on from the prompt, piece by piece. Raises ConfigError for bad arguments at once."""


def to_device(batch: Any, device: torch.device) -> Any:
    """A batch with its tensors on `device`, inside tuples, lists and dictionaries too."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {name: to_device(part, device) for name, part in batch.items()}
    if type(batch) in (list, tuple):
        return type(batch)(to_device(part, device) for part in batch)
    return batch


def loss_sum_and_count(loss: object, samples: int) -> tuple[torch.Tensor, int]:
    """What `Task.loss` returned for a batch of `samples`, as a scalar sum and the count it is over. TaskError."""
    if isinstance(loss, tuple) and len(loss) == 2:
        total, count = loss
    else:
        total, count = loss, samples
    if not isinstance(total, torch.Tensor) or total.numel() != 1 or not total.is_floating_point():
        raise TaskError(f"loss returned {shown(loss)}; {LOSS_WANTED}.")
    if not total.requires_grad:
        raise TaskError(
            "loss returned a tensor without a gradient; compute it from the model, without detach."
        )
    try:
        whole = operator.index(count)
    except TypeError:
        raise TaskError(f"loss returned {shown(loss)}; {LOSS_WANTED}.") from None
    if whole < 1:
        raise TaskError(f"loss returned a sum over {whole} items; the count must be at least 1.")
    total = total.reshape(())
    return (total, whole) if isinstance(loss, tuple) else (total * samples, samples)


LOSS_WANTED = "it must be a scalar tensor, the mean over the samples given, or a pair (sum, count)"


def shown(value: object) -> str:
    """A value in a few words, on one line."""
    if isinstance(value, torch.Tensor):
        return f"a {value.dtype} tensor of shape {tuple(value.shape)}"
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))})"
    return f"{type(value).__name__} {' '.join(repr(value).split())[:60]}"
