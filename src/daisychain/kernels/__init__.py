"""Fast exact products: backends admitted by proof, timed, audited, demoted on the first wrong bit."""

from daisychain.kernels.backend import Backend, Operand
from daisychain.kernels.optimizer import make_optimizer
from daisychain.kernels.registry import Kernels, Verdict, default

__all__ = ["Backend", "Kernels", "Operand", "Verdict", "default", "make_optimizer"]
