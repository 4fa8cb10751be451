"""DaisyAdam and DaisySGD: separate correctly rounded operations in a pinned order (docs/NUMERICS.md, rule 12).

They work in place on flat float32 arrays. `torch.sqrt` is not correctly rounded; `np.sqrt` is.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from daisychain.base.errors import ConfigError
from daisychain.numerics.blocks import F32

_f = np.float32


@dataclass(frozen=True)
class AdamScalars:
    """What one DaisyAdam step needs, each rounded to float32 once."""

    keep: np.float32  # 1 − rate·decay
    beta1: np.float32
    rest1: np.float32  # 1 − β1
    beta2: np.float32
    rest2: np.float32  # 1 − β2
    root: np.float32  # 1 / √(1 − β2^t)
    size: np.float32  # rate / (1 − β1^t)
    epsilon: np.float32


def adam_update(weights: F32, gradient: F32, mean: F32, square: F32, s: AdamScalars) -> None:
    """One step in place. The order of operations is the contract."""
    mean *= s.beta1
    mean += gradient * s.rest1
    square *= s.beta2
    square += (gradient * gradient) * s.rest2
    divisor = np.sqrt(square)
    divisor *= s.root
    divisor += s.epsilon
    change = mean / divisor
    change *= s.size
    if s.keep != 1:
        weights *= s.keep
    weights -= change


def momentum_update(
    weights: F32, gradient: F32, velocity: F32, rate: np.float32, momentum: np.float32
) -> None:
    """SGD with momentum in place: u = u·μ + g, w = w − u·rate."""
    velocity *= momentum
    velocity += gradient
    weights -= velocity * rate


AdamUpdate = Callable[[F32, F32, F32, F32, AdamScalars], None]


@dataclass
class DaisyAdam:
    """Adam with decoupled weight decay over one flat parameter vector of `size` numbers.

    The powers of β are kept as float64 products, never `pow`, so that they are the same everywhere.
    """

    size: int
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    power1: float = 1.0
    power2: float = 1.0
    update: AdamUpdate = adam_update  # or a faster one, proven to give the same bits
    mean: F32 = field(init=False)
    square: F32 = field(init=False)

    def __post_init__(self) -> None:
        self.mean = np.zeros(self.size, np.float32)
        self.square = np.zeros(self.size, np.float32)

    def scalars(self, rate: float) -> AdamScalars:
        """Advance the powers by one step and give this step's scalars."""
        self.power1 *= self.beta1
        self.power2 *= self.beta2
        return AdamScalars(
            keep=_f(1.0 - rate * self.weight_decay),
            beta1=_f(self.beta1),
            rest1=_f(1.0 - self.beta1),
            beta2=_f(self.beta2),
            rest2=_f(1.0 - self.beta2),
            root=_f(1.0 / math.sqrt(1.0 - self.power2)),
            size=_f(rate / (1.0 - self.power1)),
            epsilon=_f(self.epsilon),
        )

    def step(self, weights: F32, gradient: F32, rate: float) -> None:
        """Update `weights` (size,) in place from the mean gradient (size,)."""
        self.update(weights, gradient, self.mean, self.square, self.scalars(rate))

    def arrays(self) -> dict[str, F32]:
        """The state that a checkpoint holds, by name; `load` takes it back."""
        return {"mean": self.mean, "square": self.square}

    def numbers(self) -> dict[str, float]:
        return {"power1": self.power1, "power2": self.power2}

    def load(self, arrays: dict[str, F32], numbers: dict[str, float]) -> None:
        self.mean[:], self.square[:] = arrays["mean"], arrays["square"]
        self.power1, self.power2 = numbers["power1"], numbers["power2"]


@dataclass
class DaisySGD:
    """SGD with momentum over one flat parameter vector of `size` numbers."""

    size: int
    momentum: float = 0.9
    velocity: F32 = field(init=False)

    def __post_init__(self) -> None:
        self.velocity = np.zeros(self.size, np.float32)

    def step(self, weights: F32, gradient: F32, rate: float) -> None:
        """Update `weights` (size,) in place from the mean gradient (size,)."""
        momentum_update(weights, gradient, self.velocity, _f(rate), _f(self.momentum))

    def arrays(self) -> dict[str, F32]:
        return {"velocity": self.velocity}

    def numbers(self) -> dict[str, float]:
        return {}

    def load(self, arrays: dict[str, F32], numbers: dict[str, float]) -> None:
        self.velocity[:] = arrays["velocity"]


Optimizer = DaisyAdam | DaisySGD


OPTIMIZERS: dict[str, type[DaisyAdam] | type[DaisySGD]] = {"adam": DaisyAdam, "sgd": DaisySGD}


def make_optimizer(name: str, size: int) -> Optimizer:
    """`adam` or `sgd`, over `size` parameters."""
    check_optimizer(name)
    return OPTIMIZERS[name](size)


def check_optimizer(name: str) -> None:
    """Refuse a name that no optimiser has."""
    if name not in OPTIMIZERS:
        raise ConfigError(f"optimizer {name!r} is not known; use {' or '.join(OPTIMIZERS)}.")
