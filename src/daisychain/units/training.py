"""Training the unit nets from random weights: Adam to come near, L-BFGS to come within the margin."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from daisychain.base import limits
from daisychain.base.errors import ConfigError, UnitError
from daisychain.base.log import say
from daisychain.units.counts import MULTIPLY, RELU, REQUANTISE, UNITS
from daisychain.units.perceptron import SPECS, Net, Nets, NetSpec, bits
from daisychain.units.store import save_nets

ATTEMPTS = 5  # seeds tried for each net
ADAM_RATE = 0.03
ADAM_BATCH_WORDS = 512
OUTPUT_SCALE = 128.0  # a net learns integers divided by this; the division is undone in its last layer
FREE_DISTANCE = 0.1  # a word so near its integer costs nothing in the L-BFGS rounds


@dataclass(frozen=True)
class Recipe:
    """How the net of one unit is trained."""

    hidden: int
    adam_steps: int = 2000
    rounds: int = 12  # of L-BFGS, each with a fresh history
    round_steps: int = 300
    rare_words: range = range(0)  # words that matter, but that a uniform sample hardly holds
    rare_share: float = 0.0  # of the loss


RECIPES = {
    MULTIPLY: Recipe(hidden=48),
    # Saturation: the last 128 positive words of 65,536 are all that tells it from a plain rounding shift.
    REQUANTISE: Recipe(hidden=12, round_steps=100, rare_words=range(32_640, 32_768), rare_share=0.1),
    RELU: Recipe(hidden=8),
}


def train_units(folder: Path, seed: int, report: Callable[[str], None] = say) -> Nets:
    """Train the three nets and write them into `folder` if all are right on their complete domains.

    One thread, seeded: the same machine gives the same files. A net that misses the margin is tried again with
    the next seed; after `ATTEMPTS` seeds UnitError is raised and nothing is written. ConfigError for a bad seed.
    """
    if not 0 <= seed < 2**32:
        raise ConfigError(f"seed {seed} cannot be used; give one from 0 to 2^32 − 1.")
    nets = Nets({unit: _train_until_right(SPECS[unit], seed, report) for unit in UNITS})
    save_nets(folder, nets)
    return nets


def _train_until_right(spec: NetSpec, seed: int, report: Callable[[str], None]) -> Net:
    for attempt_seed in range(seed, seed + ATTEMPTS):
        net = train_net(spec, attempt_seed, RECIPES[spec.unit])
        margin = net.margin()
        right = margin <= limits.UNIT_MARGIN_MAX
        verdict = "right on every word" if right else "not good enough, trying the next seed"
        report(f"unit {spec.unit}, seed {attempt_seed}: within {margin:.3f} of the integer, {verdict}")
        if right:
            return net
    raise UnitError(
        f"unit {spec.unit} missed the margin of {limits.UNIT_MARGIN_MAX} with seeds {seed} to {attempt_seed}; "
        "nothing was saved. Try another seed."
    )


def train_net(spec: NetSpec, seed: int, recipe: Recipe) -> Net:
    """One net from random weights; whether it is good enough is for the caller to check."""
    with _one_thread():
        generator = torch.Generator().manual_seed(seed)
        training = _Training(spec, recipe, generator)
        training.adam(recipe.adam_steps, generator)
        for _ in range(recipe.rounds):
            if training.distance() <= 2 * FREE_DISTANCE:
                break
            training.lbfgs(recipe.round_steps)
        return training.net()


class _Training:
    """Data and float64 parameters of one net while it is trained."""

    def __init__(self, spec: NetSpec, recipe: Recipe, generator: torch.Generator) -> None:
        words = spec.words()
        self.spec = spec
        self.inputs = torch.from_numpy(bits(words).astype(np.float64))
        self.targets = torch.from_numpy(spec.truth(words).astype(np.float64)) / OUTPUT_SCALE
        self.importance = torch.full((len(words),), 1.0 - recipe.rare_share, dtype=torch.float64)
        if rare := len(recipe.rare_words):
            self.importance[list(recipe.rare_words)] = recipe.rare_share * (len(words) - rare) / rare

        def uniform(fan_in: int, *shape: int) -> torch.Tensor:
            values = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
            return (values / math.sqrt(fan_in)).requires_grad_()

        width, hidden = spec.word_bits, recipe.hidden
        self.parameters = [
            uniform(width, width, hidden),
            uniform(width, hidden),
            uniform(hidden, hidden),
            uniform(hidden, 1),
        ]

    def errors(self, chosen: torch.Tensor | slice = slice(None)) -> torch.Tensor:
        weight, bias, out_weight, out_bias = self.parameters
        outputs = torch.relu(self.inputs[chosen] @ weight + bias) @ out_weight + out_bias
        return outputs - self.targets[chosen]

    def distance(self) -> float:
        """From the right integer, on the worst word."""
        with torch.no_grad():
            return float(self.errors().abs().max()) * OUTPUT_SCALE

    def adam(self, steps: int, generator: torch.Generator) -> None:
        """Least squares on random words, drawn by importance."""
        optimizer = torch.optim.Adam(self.parameters, lr=ADAM_RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            chosen = torch.multinomial(
                self.importance, ADAM_BATCH_WORDS, replacement=True, generator=generator
            )
            optimizer.zero_grad()
            self.errors(chosen).square().mean().backward()
            optimizer.step()
            schedule.step()

    def lbfgs(self, steps: int) -> None:
        """Least squares on every word, counting only what lies beyond `FREE_DISTANCE`."""
        optimizer = torch.optim.LBFGS(
            self.parameters,
            max_iter=steps,
            history_size=50,
            tolerance_grad=1e-12,
            tolerance_change=1e-14,
            line_search_fn="strong_wolfe",
        )

        def loss() -> float:
            optimizer.zero_grad()
            beyond = (self.errors().abs() - FREE_DISTANCE / OUTPUT_SCALE).clamp_min(0)
            total = (self.importance * beyond.square()).sum()
            total.backward()
            return float(total.detach())

        optimizer.step(loss)

    def net(self) -> Net:
        weight, bias, out_weight, out_bias = (p.detach().numpy() for p in self.parameters)
        scaled = (out_weight * OUTPUT_SCALE, out_bias * OUTPUT_SCALE)
        return Net(self.spec, *(array.astype(np.float32) for array in (weight, bias, *scaled)))


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
