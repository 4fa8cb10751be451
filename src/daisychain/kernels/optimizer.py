"""The contract's optimisers, with a compiled DaisyAdam where it gives the same bits."""

from functools import lru_cache

import numpy as np

from daisychain import numerics
from daisychain.base.log import warn
from daisychain.kernels import compiled
from daisychain.kernels.proof import PATTERNS, pattern, same_bits
from daisychain.numerics.blocks import F32
from daisychain.numerics.optimizer import DaisyAdam, Optimizer

_PROOF_SIZE = 257
_PROOF_STEPS = 4


def make_optimizer(name: str, size: int) -> Optimizer:
    """`adam` or `sgd` over `size` parameters, as numerics.make_optimizer, at the speed this machine allows."""
    optimizer = numerics.make_optimizer(name, size)
    if isinstance(optimizer, DaisyAdam) and _compiled_adam_is_exact():
        optimizer.update = compiled.adam_update
    return optimizer


@lru_cache(maxsize=1)
def _compiled_adam_is_exact() -> bool:
    if compiled.CompiledElementwise().unavailable() is not None:
        return False
    if find_adam_fault(compiled.adam_update) is None:
        return True
    warn("the compiled DaisyAdam gives other bits than the contract here and is not used.")
    return False


def find_adam_fault(update: numerics.optimizer.AdamUpdate) -> str | None:
    """Where an update's bits leave the contract's, or None; over several steps, ranges and weight decay."""
    random = np.random.Generator(np.random.PCG64(3))
    for name in PATTERNS:
        for decay in (0.0, 0.1):
            fast = DaisyAdam(_PROOF_SIZE, weight_decay=decay, update=update)
            slow = DaisyAdam(_PROOF_SIZE, weight_decay=decay)
            weights = pattern("normal", 1, _PROOF_SIZE, random)[0]
            other = weights.copy()
            for step in range(_PROOF_STEPS):
                gradient: F32 = pattern(name, 1, _PROOF_SIZE, random)[0]
                with np.errstate(all="ignore"):
                    fast.step(weights, gradient, 1e-3)
                    slow.step(other, gradient, 1e-3)
                if not same_bits(weights, other):
                    return f"other bits after step {step} on gradients of kind {name}, decay {decay}"
    return None
