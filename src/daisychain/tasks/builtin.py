"""What the built-in tasks share: options, seeded models, and the perceptron's description in a checkpoint."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch

from daisychain.base import limits
from daisychain.base.errors import CheckpointError, ConfigError
from daisychain.nn import MLP
from daisychain.tasks.task import Arithmetic, TaskOptions

EVALUATION_ROWS = 1_024  # rows that a model sees at once outside training
Module = TypeVar("Module", bound=torch.nn.Module)


def task_name(base: str, options: TaskOptions) -> str:
    """`digits`, or `digits-float` with ordinary layers."""
    return f"{base}-float" if options.arithmetic == "float" else base


#: Options that task spikewhale alone has a use for.
LANGUAGE_MODEL = (
    "preset", "heads", "without", "dataset", "dataset_config", "split", "column", "on_data_failure"
)  # fmt: skip


def refuse_options(task: str, options: TaskOptions, *names: str) -> None:
    """Refuse options that a task has no use for, rather than ignore them."""
    for name in names:
        value = getattr(options, name)
        if value is None or value == ():
            continue
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        raise ConfigError(f"--{name.replace('_', '-')} {text!r} means nothing to task {task}; leave it out.")


def in_range(name: str, value: object, most: int) -> int:
    """A whole number from 1 to `most`. Raises ConfigError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ConfigError(f"{name} {value!r:.60} must be a whole number from 1 to {most}.")
    return value


def hidden_sizes(options: TaskOptions, default: Sequence[int]) -> tuple[int, ...]:
    """Widths of the hidden layers: the task's own, or `--width` and `--layers`."""
    if options.width is None and options.layers is None:
        return tuple(default)
    layers = len(default) if options.layers is None else options.layers
    width = default[0] if options.width is None else options.width
    return (in_range("width", width, limits.MAX_MODEL_WIDTH),) * in_range(
        "layers", layers, limits.MAX_MODEL_LAYERS
    )


def seeded(seed: int, build: Callable[[], Module]) -> Module:
    """A model with seeded weights; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def device_of(model: torch.nn.Module) -> torch.device:
    return next(model.parameters()).device


def outputs(model: torch.nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """What a model says about rows, a part at a time: float32 (n, …) on the CPU."""
    device = device_of(model)
    with torch.no_grad():
        return torch.cat([model(part.to(device)).cpu() for part in torch.split(inputs, EVALUATION_ROWS)])


@dataclass(frozen=True)
class PerceptronSpec:
    """Shape and arithmetic of an MLP; JSON in a checkpoint. Raises ConfigError for what cannot be built."""

    sizes: tuple[int, ...]
    arithmetic: Arithmetic
    backward: Literal["int8", "float"]

    def __post_init__(self) -> None:
        in_range("layers", len(self.sizes) - 2, limits.MAX_MODEL_LAYERS)
        in_range("inputs", self.sizes[0], limits.ACCUMULATOR_MAX_K)
        for size in self.sizes[1:]:
            in_range("width", size, limits.MAX_MODEL_WIDTH)
        check_arithmetic(self.arithmetic, self.backward)

    def build(self, seed: int) -> MLP:
        return seeded(seed, lambda: MLP(self.sizes, self.arithmetic, self.backward))


def check_arithmetic(arithmetic: object, backward: object) -> None:
    if arithmetic not in ("int8", "int8x3", "float") or backward not in ("int8", "float"):
        raise ConfigError(
            f"arithmetic {arithmetic!r} with backward {backward!r} is not known; use int8, int8x3 or float, and "
            "backward int8 or float."
        )


def perceptron_from_json(description: Mapping[str, Any], inputs: int, outputs: int) -> PerceptronSpec:
    """What `asdict` made of a spec, for a task with so many inputs and outputs. CheckpointError: it may be hostile."""
    try:
        model = description["model"]
        spec = PerceptronSpec(tuple(model["sizes"]), model["arithmetic"], model["backward"])
    except (ConfigError, KeyError, TypeError) as error:
        raise CheckpointError(f"the checkpoint's model cannot be built: {error!r:.200}.") from None
    if (spec.sizes[0], spec.sizes[-1]) != (inputs, outputs):
        raise CheckpointError(
            f"the checkpoint's model maps {spec.sizes[0]!r} to {spec.sizes[-1]!r} numbers; its task needs "
            f"{inputs} to {outputs}."
        )
    return spec
