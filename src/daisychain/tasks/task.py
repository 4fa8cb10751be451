"""What a training task is. `examples/my_task_template.py` is one to copy."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

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


class Task:
    """Base of the built-in tasks; a task of your own may inherit it or only look like it.

    `sample_count` is the number of training samples; their ids are 0 … sample_count − 1.
    """

    name: str = "custom"
    sample_count: int = 0
    metric: str = ""  # the key of `evaluate` that a person looks at, such as "accuracy"
    learning_rate: float = 1e-3  # used unless the user gives one
    batch_samples: int = 32  # likewise

    def build_model(self) -> torch.nn.Module:
        """A new model with seeded weights. Rank 0's weights are sent to all."""
        raise NotImplementedError

    def sample(self, ids: SampleIds) -> Any:
        """The batch of these training samples; whatever `loss` takes. The same ids give the same batch."""
        raise NotImplementedError

    def loss(self, model: torch.nn.Module, batch: Any) -> Loss:
        """The loss of a batch, differentiable."""
        raise NotImplementedError

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        """Metrics on held-out data, by name; called without gradients, in eval mode."""
        return {}

    def description(self) -> Mapping[str, Any]:
        """JSON that `restore` needs to rebuild the task for inference, without its training data."""
        return {}

    @classmethod
    def restore(cls, description: Mapping[str, Any]) -> "Task":
        """The task of a checkpoint; able to build the model and to infer, not to sample."""
        return cls()
