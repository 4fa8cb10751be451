"""Which backend computes: proven bit for bit, timed at the task's own shapes, audited while it works."""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from daisychain.base.errors import ConfigError, DaisyError, KernelError
from daisychain.base.log import say, warn
from daisychain.kernels.audit import Auditor
from daisychain.kernels.backend import Backend, Operand
from daisychain.kernels.compiled import CompiledElementwise
from daisychain.kernels.elementwise import PlainElementwise
from daisychain.kernels.int_mm import IntMm
from daisychain.kernels.proof import admission_cases, contract_product, find_fault, same_bits
from daisychain.kernels.sgemm import Sgemm
from daisychain.kernels.unit_backends import neural_backend, table_backend
from daisychain.numerics import block_edges, block_relu, check_contraction
from daisychain.numerics.blocks import I64
from daisychain.units.counts import MULTIPLY, RELU, REQUANTISE, Counts, counts

Shape = tuple[int, int, int, int, int]  # rows of a, length, rows of b, axis of a, axis of b
DEFAULT_SHAPES: Mapping[Shape, int] = {(256, 256, 256, 1, 1): 1, (256, 256, 256, 0, 0): 1}
TIMED_SHAPES = 6  # of the task's shapes, the heaviest
TIMING_ROUNDS = 5
COMPARED_CELLS = 1 << 20  # of a product that is proven at once: NumPy's steps take many times its memory
LAST_RESORT = "table"
FLOAT32 = "float32"


@dataclass(frozen=True)
class Verdict:
    """What became of a backend. `ratio` is its time over that of the float32 products of the same shapes."""

    name: str
    admitted: bool
    reason: str
    ratio: float | None = None


def all_backends(device_type: str = "cpu") -> list[Backend]:
    """Fast ones first; the `-plain` twins work where nothing can be compiled, and on other devices than the CPU."""
    fast, plain = CompiledElementwise(), PlainElementwise()
    on_cpu: list[Backend] = [IntMm(fast), Sgemm(fast), IntMm(plain)]
    return [*(on_cpu if device_type == "cpu" else []), Sgemm(plain), table_backend(), neural_backend()]


@lru_cache(maxsize=1024)
def _edges(length: int, period: int | None) -> I64:
    edges = block_edges(length, period)
    edges.flags.writeable = False
    return edges


class Kernels:
    """The registry of one process. `product` and `relu` are what layers call."""

    def __init__(
        self,
        backends: Sequence[Backend] | None = None,
        forced: str | None = None,
        counts: Counts = counts,
        device_type: str = "cpu",
    ) -> None:
        self.backends = {b.name: b for b in (all_backends(device_type) if backends is None else backends)}
        self.device = torch.device(device_type)
        if forced is not None and forced not in self.backends:
            raise KernelError(f"kernel {forced!r} is not known; use one of {', '.join(self.backends)}.")
        self.verdicts: dict[str, Verdict] = {}
        self.shapes: Counter[Shape] = Counter()
        self.auditor = Auditor()
        self.counts = counts
        self._forced = forced
        self._active: Backend | None = None
        self.choice = "none"  # the backend that works and why, in words

    @property
    def active(self) -> Backend:
        """The backend that works now; chosen at first use."""
        if self._active is None:
            self.choose()
        assert self._active is not None
        return self._active

    @property
    def name(self) -> str:
        """The backend that works, or `none` where no product was asked for."""
        return self._active.name if self._active else "none"

    def begin_step(self) -> None:
        """Tell the audit that a training step begins."""
        self.auditor.begin_step()

    def prove(self, name: str) -> Verdict:
        """Prove a backend once, and remember."""
        if name not in self.verdicts:
            backend = self.backends[name]
            if (absence := backend.unavailable()) is not None:
                self.verdicts[name] = Verdict(name, False, absence)
            else:
                fault = self._find_fault(backend)
                self.verdicts[name] = Verdict(name, fault is None, fault or "every bit equal")
                if fault is not None:
                    warn(f"kernel {name} is not used: {fault}.")
        return self.verdicts[name]

    def _find_fault(self, backend: Backend) -> str | None:
        try:
            return find_fault(backend, admission_cases(), self.device)
        except Exception as error:  # whatever a library of this machine cannot do
            return _failure(error)

    def choose(self, quiet: bool = False) -> Verdict:
        """Prove, time at the shapes seen so far, and take the fastest; unless `quiet`, say which and why."""
        if self._forced is not None:
            return self.force(self._forced, quiet)
        timed = self.time(self._candidates())
        if not timed and LAST_RESORT not in self.backends:
            raise KernelError(f"no kernel can be used: {self._refusals()}.")
        if timed:
            verdict = min(timed, key=lambda v: v.ratio or 0.0)
            reason = "the fastest of " + ", ".join(f"{v.name} {v.ratio:.2f}" for v in timed) + " × float32"
        else:
            verdict = self.prove(LAST_RESORT)
            reason = "no fast kernel passed the proof; this will be slow"
        if not verdict.admitted:
            raise KernelError(f"no kernel can be used: {self._refusals()}.")
        self._use(verdict.name, reason, quiet)
        return verdict

    def _refusals(self) -> str:
        return "; ".join(f"{v.name}: {v.reason}" for v in self.verdicts.values() if not v.admitted)

    def force(self, name: str, quiet: bool = False) -> Verdict:
        """Use this backend from now on, whatever its speed. Raises KernelError if the proof refuses it."""
        if not (verdict := self.prove(name)).admitted:
            raise KernelError(f"kernel {name} cannot be used: {verdict.reason}.")
        self._use(name, "forced", quiet)
        return verdict

    def _use(self, name: str, reason: str, quiet: bool) -> None:
        changed = self._active is None or self._active.name != name
        self._active, self.choice = self.backends[name], f"{name} ({reason})"
        for backend in self.backends.values():
            if backend is not self._active:
                backend.forget()
        if changed and not quiet:
            say(f"kernel: {self.choice}")

    def _candidates(self) -> list[str]:
        """Admitted backends for work; a plain twin only where its compiled one is not admitted."""
        names = [name for name, backend in self.backends.items() if not backend.for_proof]
        admitted: list[str] = []
        for name in names:
            twin = name.removesuffix("-plain")
            if (twin == name or twin not in admitted) and self.prove(name).admitted:
                admitted.append(name)
        return admitted

    def time(self, names: Sequence[str]) -> list[Verdict]:
        """Prove admitted backends at the heaviest shapes seen too, and time them against float32, in turns.

        Returns the verdicts of those that are still admitted. A time is the median of several rounds.
        """
        shapes = Counter(self.shapes or DEFAULT_SHAPES)
        heaviest = sorted(shapes, key=lambda s: -shapes[s] * s[0] * s[1] * s[2])[:TIMED_SHAPES]
        seconds: dict[str, float] = defaultdict(float)
        for shape in heaviest:
            rows_a, length, rows_b, axis_a, axis_b = shape
            a, b = self._random(rows_a, length, axis_a), self._random(rows_b, length, axis_b)
            names = [name for name in names if self._right_at(name, a, b)]
            for name, median_s in self._medians(names, a, b).items():
                seconds[name] += shapes[shape] * median_s
        for name in names:
            ratio = seconds[name] / max(seconds[FLOAT32], 1e-9)
            self.verdicts[name] = replace(self.verdicts[name], ratio=ratio)
        return [self.verdicts[name] for name in names]

    def _right_at(self, name: str, a: Operand, b: Operand) -> bool:
        """Whether a backend has the contract's bits for these operands; if not, it is not admitted any more."""
        edges = _edges(a.length, None)
        got = self.backends[name].product(a, b, edges).cpu().numpy()
        left, right = a.rows_last().cpu().numpy(), b.rows_last().cpu().numpy()
        rows = max(1, COMPARED_CELLS // b.rows)
        if all(
            same_bits(got[i : i + rows], contract_product(left[i : i + rows], right, edges))
            for i in range(0, a.rows, rows)
        ):
            return True
        fault = f"wrong bits in a product of the task's own shape, {a.rows}×{a.length}×{b.rows}"
        self.verdicts[name] = Verdict(name, False, fault)
        warn(f"kernel {name} is not used: {fault}.")
        return False

    def _medians(self, names: Sequence[str], a: Operand, b: Operand) -> dict[str, float]:
        edges = _edges(a.length, None)
        rounds: dict[str, list[float]] = {name: [] for name in (*names, FLOAT32)}
        for _ in range(TIMING_ROUNDS):
            for name, times in rounds.items():
                start = time.perf_counter()
                if name == FLOAT32:
                    a.part(0, a.length) @ b.part(0, b.length).t()
                else:
                    self.backends[name].product(a, b, edges)
                if self.device.type == "cuda":
                    torch.cuda.synchronize()
                times.append(time.perf_counter() - start)
        return {name: sorted(times)[TIMING_ROUNDS // 2] for name, times in rounds.items()}

    def _random(self, rows: int, length: int, axis: int) -> Operand:
        return Operand(torch.randn((rows, length) if axis == 1 else (length, rows), device=self.device), axis)

    def product(self, a: Operand, b: Operand, period: int | None = None) -> torch.Tensor:
        """(m, K) · (n, K)ᵀ → float32 (m, n) with the bits of the contract; counted and audited.

        `period` restarts the blocks along K at each of its multiples. Raises AccumulatorBoundError for a K above
        131,071, NonFiniteError and BlockRangeError for numbers that cannot be quantised.
        """
        check_contraction(a.length)
        _check_operands(a, b)
        if a.length == 0:  # an empty sum; there is no block to begin with
            return torch.zeros(a.rows, b.rows, device=a.data.device)
        edges = _edges(a.length, period)
        self.shapes[(a.rows, a.length, b.rows, a.axis, b.axis)] += 1
        y = self._audited(
            lambda backend: backend.product(a, b, edges), lambda y: self.auditor.find_fault(a, b, edges, y)
        )
        self.counts.add(REQUANTISE, self.active.name, a.data.numel() + b.data.numel())
        self.counts.add(MULTIPLY, self.active.name, a.rows * a.length * b.rows)
        return y

    def split_high_low(self, x: Operand, period: int | None = None) -> tuple[Operand, Operand]:
        """The two halves of 3×INT8, as numerics.split_high_low: x = high + low + a small remainder."""
        edges = _edges(x.length, period)
        high = self._audited(
            lambda backend: backend.rounded(x, edges),
            lambda high: self.auditor.find_split_fault(x, edges, high),
        )
        self.counts.add(REQUANTISE, self.active.name, x.data.numel())
        return Operand(high, x.axis), Operand(x.data - high, x.axis)

    def relu(self, x: torch.Tensor) -> torch.Tensor:
        """float32 (rows, length) → ReLU on the unit, as numerics.block_relu; counted and audited."""
        y = self._audited(
            lambda backend: backend.relu(x),
            lambda y: self.auditor.find_rounding_fault("ReLU", x, y, block_relu),
        )
        self.counts.add(REQUANTISE, self.active.name, x.numel())
        self.counts.add(RELU, self.active.name, x.numel())
        return y

    def _audited(
        self, compute: Callable[[Backend], torch.Tensor], find_fault: Callable[[torch.Tensor], str | None]
    ) -> torch.Tensor:
        """What the active backend computes, or the next one's if the audit finds fault with it or it fails."""
        while True:
            try:
                result = compute(self.active)
                fault = find_fault(result)
            except DaisyError:  # the numbers are bad, not the backend
                raise
            except (RuntimeError, TypeError, ValueError) as error:
                fault = _failure(error)
            if fault is None:
                return result
            self._demote(fault)

    def _demote(self, fault: str) -> None:
        """Never use the active backend again, and take the next."""
        name = self.active.name
        warn(f"kernel {name} is demoted: {fault}; the product is redone.")
        self.verdicts[name] = Verdict(name, False, f"demoted: {fault}")
        self._forced = None
        self.choose()


def _check_operands(a: Operand, b: Operand) -> None:
    if a.length != b.length:
        raise ConfigError(
            f"contractions {a.length} and {b.length} long cannot be multiplied; they must be equal."
        )
    for operand in (a, b):
        if operand.data.dtype != torch.float32:
            raise ConfigError(
                f"verified products take float32, not {operand.data.dtype}; convert with .float()."
            )


def _failure(error: Exception) -> str:
    first_line = (str(error).splitlines() or [""])[0]
    return f"it failed, {type(error).__name__}: {first_line}"


def default(device_type: str = "cpu") -> Kernels:
    """The registry of this process for a kind of device; `DAISY_KERNEL` forces a backend."""
    return _registry(device_type)


class Sizes(Kernels):
    """For tensors that have sizes and no numbers (torch's device `meta`): what a step takes is seen without taking it.

    `shapes` holds the products that would have been computed.
    """

    def __init__(self) -> None:
        super().__init__(backends=[])
        self.device = torch.device("meta")

    def product(self, a: Operand, b: Operand, period: int | None = None) -> torch.Tensor:
        check_contraction(a.length)
        _check_operands(a, b)
        self.shapes[(a.rows, a.length, b.rows, a.axis, b.axis)] += 1
        return torch.empty(a.rows, b.rows, device=self.device)

    def split_high_low(self, x: Operand, period: int | None = None) -> tuple[Operand, Operand]:
        return Operand(torch.empty_like(x.data), x.axis), Operand(torch.empty_like(x.data), x.axis)

    def relu(self, x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)


@lru_cache(maxsize=8)
def _registry(device_type: str) -> Kernels:
    if device_type == "meta":
        return Sizes()
    return Kernels(forced=os.environ.get("DAISY_KERNEL") or None, device_type=device_type)
