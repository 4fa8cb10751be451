"""What each part of SpikeWhale is worth: the model whole, with one part off, in float, and plain transformers."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, stdev
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from daisychain.data.packed import PackedText
from daisychain.nn import SpikeWhale, Transformer, TransformerConfig
from daisychain.nn.linear import Backward
from daisychain.nn.spikewhale import SpikeWhaleConfig, parameter_count
from daisychain.tasks.builtin import EVALUATION_ROWS, seeded
from daisychain.tasks.task import Loss, SampleIds, Task

WHOLE, FLOAT, PLAIN, BARE = "whole", "whole, in float", "plain transformer", "all parts off"
LEARNING_RATE = 1e-2  # the best of a few for SpikeWhale; a plain transformer hardly minds (docs/NOTES.md)
WARMUP_STEPS = 30
BATCH_SAMPLES = 8


@dataclass(frozen=True)
class Variant:
    """A model that is compared with the others."""

    name: str
    build: Callable[[], nn.Module]


def variants(config: SpikeWhaleConfig) -> list[Variant]:
    """The whole model first, then what it is compared with."""
    off = [Variant(f"without {part}", partial(SpikeWhale, config.without(part))) for part in config.parts]
    in_float = replace(config, arithmetic="float", backward="float")
    return [
        Variant(WHOLE, partial(SpikeWhale, config)),
        Variant(FLOAT, partial(SpikeWhale, in_float)),
        Variant(PLAIN, partial(tied_transformer, plain_config(config))),
        Variant(BARE, partial(SpikeWhale, config.without(*config.parts))),
        *off,
    ]


def plain_config(config: SpikeWhaleConfig) -> TransformerConfig:
    """A plain transformer as deep, as long and of as many parameters as a SpikeWhale, its head tied like it."""

    def of_width(width: int) -> TransformerConfig:
        how: tuple[str, Backward] = (config.arithmetic, config.backward)
        return TransformerConfig(config.vocabulary, width, config.layers, config.heads, config.sequence, *how)

    def size(width: int) -> int:
        return tied_parameters(of_width(width))

    wanted = parameter_count(config)
    widths = range(config.heads, 4 * config.width + config.heads, config.heads)
    place = bisect_left(widths, wanted, key=size)
    return of_width(min(widths[max(0, place - 1) : place + 1], key=lambda width: abs(size(width) - wanted)))


def tied_parameters(config: TransformerConfig) -> int:
    """How many numbers a tied plain transformer learns."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in tied_transformer(config).parameters())


def tied_transformer(config: TransformerConfig) -> Transformer:
    """A plain transformer whose head is its token embedding."""
    model = Transformer(config)
    model.head.weight = model.tokens.weight
    return model


class AblationTask(Task):
    """One variant on a packed text, for the trainer. A batch is windows int64 (n, sequence + 1)."""

    metric = "held_out_loss"
    learning_rate = LEARNING_RATE
    warmup_steps = WARMUP_STEPS
    batch_samples = BATCH_SAMPLES

    def __init__(self, variant: Variant, text: PackedText, seed: int) -> None:
        self.name, self.variant, self.text, self.seed = variant.name, variant, text, seed
        self.sample_count = text.sample_count

    def build_model(self) -> nn.Module:
        return seeded(self.seed, self.variant.build)

    def sample(self, ids: SampleIds) -> torch.Tensor:
        return torch.from_numpy(self.text.windows(ids))

    def loss(self, model: nn.Module, batch: torch.Tensor) -> Loss:
        if isinstance(model, SpikeWhale):
            return model.loss(batch)
        logits, targets = model(batch[:, :-1]), batch[:, 1:]
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum"), targets.numel()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """held_out_loss, in nats a token."""
        total, count = 0.0, 0
        windows = torch.from_numpy(self.text.held_out())
        for part in windows.split(max(1, EVALUATION_ROWS // self.text.sequence)):
            with torch.no_grad():
                loss, tokens = self.loss(model, part)
            total, count = total + float(loss), count + tokens
        return {"held_out_loss": total / count}

    def description(self) -> Mapping[str, Any]:
        return {"variant": self.variant.name, "data": dict(self.text.identity)}


@dataclass(frozen=True)
class Result:
    """What became of one variant: held-out losses in nats a token, one a seed, and milliseconds a step."""

    name: str
    parameters: int
    losses: Sequence[float]
    step_ms: float

    @property
    def mean(self) -> float:
        return fmean(self.losses)

    @property
    def spread(self) -> float | None:
        """The standard deviation over the seeds; None where there is one."""
        return stdev(self.losses) if len(self.losses) > 1 else None

    def against(self, other: "Result") -> tuple[float, float | None]:
        """The mean of the differences to another variant, seed by seed, and their standard deviation."""
        pairs = zip(self.losses, other.losses, strict=False)
        differences = [mine - theirs for mine, theirs in pairs]
        return fmean(differences), stdev(differences) if len(differences) > 1 else None

    def as_json(self) -> Mapping[str, Any]:
        return {
            "name": self.name,
            "parameters": self.parameters,
            "held_out_loss": list(self.losses),
            "mean": self.mean,
            "spread": self.spread,
            "step_ms": self.step_ms,
        }
