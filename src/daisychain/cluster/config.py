"""What a training run is told, and what it answers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from daisychain.base import limits
from daisychain.base.errors import ConfigError
from daisychain.numerics.optimizer import check_optimizer
from daisychain.units.counts import Table


@dataclass(frozen=True)
class TrainConfig:
    """The settings of a run, the same on every node. Raises ConfigError for values that cannot be used."""

    steps: int = limits.DEFAULT_STEPS
    batch_samples: int = limits.DEFAULT_BATCH_SAMPLES  # of a step, over all nodes together
    learning_rate: float = 1e-3
    warmup_steps: int = 0  # over so many steps the rate rises to `learning_rate`
    optimizer: str = "adam"
    seed: int = limits.DEFAULT_SEED
    arithmetic: str = "int8"
    checkpoint_every_steps: int = limits.CHECKPOINT_EVERY_STEPS
    plan: Literal["measured", "equal"] = "measured"  # equal: shares never follow the speeds

    def __post_init__(self) -> None:
        for name, least in (
            ("steps", 1),
            ("batch_samples", 1),
            ("warmup_steps", 0),
            ("checkpoint_every_steps", 1),
        ):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} is {getattr(self, name)}; it has to be at least {least}.")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ConfigError(f"learning_rate is {self.learning_rate}; it has to be a finite number above 0.")
        check_optimizer(self.optimizer)
        if self.plan not in ("measured", "equal"):
            raise ConfigError(f"plan is {self.plan!r}; use measured or equal.")

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0: linear warm-up, then constant; float64, two roundings at most."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        return self.learning_rate


@dataclass(frozen=True)
class Summary:
    """A finished run. Metrics are there on rank 0, which alone evaluates."""

    task: str
    nodes: int
    steps: int  # done, those before a resume included
    stopped: bool  # ended early, by request
    loss_first: float
    loss_last: float
    samples_per_s: float
    shares: tuple[int, ...]
    state_hashes: tuple[str, ...]  # one a node, after the last step
    replica_diff: int  # nodes whose hash is not the first node's
    unit_invocations: Table
    metrics: Mapping[str, float] = field(default_factory=dict)
    checkpoint: Path | None = None
    model: Path | None = None
