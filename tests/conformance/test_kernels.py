"""Every backend on every shape class, layout and vector: equal bits. Planted faults: caught by gate or audit."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from daisychain.base import errors
from daisychain.base.errors import AccumulatorBoundError, KernelError, NonFiniteError
from daisychain.kernels import Kernels, Operand, compiled, default
from daisychain.kernels.audit import Auditor
from daisychain.kernels.optimizer import find_adam_fault
from daisychain.kernels.proof import (
    LAYOUTS,
    PROOF_BACKEND_WORK,
    admission_cases,
    all_cases,
    find_fault,
    make_case,
    operand,
    same_bits,
)
from daisychain.kernels.registry import all_backends
from daisychain.numerics import block_product, quantise
from daisychain.numerics.golden import decode
from daisychain.numerics.optimizer import AdamScalars, DaisyAdam, adam_update
from daisychain.numerics.product import integer_product
from daisychain.units import load_tables, shipped_nets
from daisychain.units.counts import Counts

VECTORS = Path(__file__).parents[2] / "vectors"
BACKENDS = {backend.name: backend for backend in all_backends()}


def fresh(backends=None, forced=None):
    return Kernels(backends, forced, counts=Counts())


@pytest.fixture(params=BACKENDS)
def backend(request):
    chosen = BACKENDS[request.param]
    assert chosen.unavailable() is None, "the test environment installs everything"
    return chosen


def test_every_shape_class_and_layout(backend):
    assert find_fault(backend, all_cases()) is None


def test_golden_vectors(backend):
    for case in json.loads((VECTORS / "blocks.json").read_text())["blocks"]:
        a, b, wanted = decode(case["a"]).copy(), decode(case["b"]).copy(), decode(case["product"])
        edges = decode(case["edges"]).astype(np.int64)
        for axis_a, axis_b in LAYOUTS:
            got = backend.product(operand(a, axis_a), operand(b, axis_b), edges).numpy()
            assert same_bits(got, wanted), case["name"]
        assert same_bits(backend.relu(torch.from_numpy(a)).numpy(), decode(case["relu_a"])), case["name"]


def test_an_all_minus_128_product_does_not_show_saturation_and_mixed_signs_do():
    low, high = np.full((1, 128), -128, np.int8), np.full((1, 128), 127, np.int8)
    sums = Saturating.saturating_sums
    assert sums(low, low) == integer_product(low, low)
    assert sums(high, high) != integer_product(high, high)


def test_the_admission_selection_covers_each_pattern_side_and_length():
    names = [case.name for case in admission_cases()]
    every = [case.name for case in all_cases()]
    assert {n.split()[0] for n in names} == {n.split()[0] for n in every}
    assert {n.split()[1].split("×")[1] for n in names} == {n.split()[1].split("×")[1] for n in every}
    sides = {tuple(n.split()[1].split("×")[::2]) for n in names}
    assert sides == {tuple(n.split()[1].split("×")[::2]) for n in every}


def test_golden_vectors_of_three_products(backend):
    kernels = fresh([backend], forced=backend.name)
    for case in json.loads((VECTORS / "blocks.json").read_text())["blocks"]:
        a, b, wanted = decode(case["a"]).copy(), decode(case["b"]).copy(), decode(case["triple_product"])
        period = 1 if case["name"].endswith("each a block") else 100 if "restarting" in case["name"] else None
        (ah, al), (bh, bl) = (kernels.split_high_low(operand(x, 1), period) for x in (a, b))
        product = partial(kernels.product, period=period)
        got = (product(ah, bh) + product(ah, bl)) + product(al, bh)
        assert same_bits(got.numpy(), wanted), case["name"]


def test_golden_vectors_of_refusals(backend):
    kernels = fresh([backend], forced=backend.name)
    for case in json.loads((VECTORS / "refused.json").read_text())["refused"]:
        x = decode(case["x"]).copy() if "x" in case else np.zeros((1, case["length"]), np.float32)
        with pytest.raises(getattr(errors, case["error"])):
            kernels.product(operand(x, 1), operand(x, 1))


@pytest.mark.parametrize("update", [adam_update, compiled.adam_update])
def test_golden_vectors_of_daisy_adam(update):
    vectors = json.loads((VECTORS / "optimizers.json").read_text())["optimizers"]
    for name, decay in (("adam", 0.0), ("adam_decay_0.1", 0.1)):
        weights, gradients = decode(vectors["start"]).copy(), decode(vectors["gradients"])
        optimizer = DaisyAdam(len(weights), weight_decay=decay, update=update)
        for gradient, wanted in zip(gradients, decode(vectors[name]["weights"]), strict=True):
            optimizer.step(weights, gradient.copy(), vectors["rate"])
            assert same_bits(weights, wanted)
        assert same_bits(optimizer.square, decode(vectors[name]["square"]))


@pytest.mark.parametrize("units", [shipped_nets, load_tables])
def test_golden_vectors_of_the_units(units):
    vectors = json.loads((VECTORS / "units.json").read_text())["units"]
    x = np.arange(-32768, 32768).astype(np.int16)
    steps = decode(vectors["requantise_first_input_of_each_output"])
    wanted = np.searchsorted(steps, x, side="right") - 129
    assert np.array_equal(units().requantise(x), wanted)
    assert np.array_equal(units().relu(np.arange(-128, 128).astype(np.int8)), decode(vectors["relu_of_all"]))
    codes = decode(vectors["codes"])
    left, right = (part.copy() for part in np.broadcast_arrays(codes[:, None], codes[None]))
    assert np.array_equal(units().multiply(left, right), decode(vectors["products"]))


# Planted faults: each wraps a right backend and is wrong in one way.


class Planted:
    """A backend with a fault, from a given product on."""

    for_proof = False

    def __init__(self, name="planted", after=0, inner="sgemm"):
        self.name, self.after, self.calls = name, after, 0
        self.inner = BACKENDS[inner]

    def unavailable(self):
        return None

    def rounded(self, x, edges):
        return self.inner.rounded(x, edges)

    def relu(self, x):
        return self.inner.relu(x)

    def product(self, a, b, edges):
        self.calls += 1
        if self.calls <= self.after:
            return self.inner.product(a, b, edges)
        return self.wrong(a, b, edges)

    def forget(self):
        self.inner.forget()

    def wrong(self, a, b, edges):
        raise NotImplementedError


class WrongLastColumn(Planted):
    def wrong(self, a, b, edges):
        y = self.inner.product(a, b, edges)
        y[:, -1] = torch.nextafter(y[:, -1], torch.tensor(torch.inf))
        return y


class LostBlock(Planted):
    def wrong(self, a, b, edges):
        if len(edges) < 3:
            return self.inner.product(a, b, edges)
        cut = int(edges[-2])
        left, right = (
            Operand(x.data[:, :cut].contiguous() if x.axis == 1 else x.data[:cut].contiguous(), x.axis)
            for x in (a, b)
        )
        return self.inner.product(left, right, edges[:-1])


class SwappedLayout(Planted):
    def wrong(self, a, b, edges):
        if b.axis == 1 and b.rows == b.length:
            b = Operand(b.data.t().contiguous(), 1)
        return self.inner.product(a, b, edges)


class Minus127As126(Planted):
    """A code at the end of the range is read as its neighbour."""

    def wrong(self, a, b, edges):
        def bend(x):
            values = self.inner.rounded(x, edges)
            limit = values.abs().amax()
            return Operand(torch.where(values == -limit, values * (126 / 127), x.data), x.axis)

        return self.inner.product(bend(a), b, edges)


class Saturating(Planted):
    """Pairs of unsigned × signed products are summed in 16 bits, as int8 instructions before VNNI do."""

    def wrong(self, a, b, edges):
        left, right = (quantise(x.rows_last().numpy(), edges) for x in (a, b))
        return torch.from_numpy(block_product(left, right, self.saturating_sums))

    @staticmethod
    def saturating_sums(a, b):
        products = (a.astype(np.int32)[:, None] + 128) * b.astype(np.int32)[None]
        padded = np.zeros((*products.shape[:2], products.shape[2] + products.shape[2] % 2), np.int32)
        padded[..., : products.shape[2]] = products
        pairs = np.clip(padded[..., ::2] + padded[..., 1::2], -32768, 32767)
        return pairs.sum(-1, dtype=np.int32) - 128 * b.astype(np.int32).sum(1)[None]


class LetsNaNThrough(Planted):
    def wrong(self, a, b, edges):
        clean = [Operand(torch.nan_to_num(x.data, nan=0.0, posinf=0.0, neginf=0.0), x.axis) for x in (a, b)]
        return self.inner.product(*clean, edges)


FAULTS = [WrongLastColumn, LostBlock, SwappedLayout, Minus127As126, Saturating, LetsNaNThrough]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_gate_refuses_a_planted_fault(fault, capfd):
    kernels = fresh([fault(), BACKENDS["sgemm"]])
    assert kernels.choose().name == "sgemm"
    assert not kernels.verdicts["planted"].admitted
    assert "planted is not used" in capfd.readouterr().err


@pytest.mark.parametrize("fault", [WrongLastColumn, LostBlock, SwappedLayout, Saturating, Minus127As126])
def test_the_audit_catches_a_fault_that_begins_after_the_gate(fault, capfd):
    generator = torch.Generator().manual_seed(7)
    kernels = fresh([fault(after=0), BACKENDS["sgemm"]])
    kernels._active = kernels.backends["planted"]  # as if it had passed
    for _ in range(40):
        kernels.auditor.begin_step()
        a, b = (127 * torch.randn(rows, 256, generator=generator).sign() for rows in (64, 256))
        y = kernels.product(Operand(a, 1), Operand(b, 1))
        if "planted" in kernels.verdicts:
            break
    assert not kernels.verdicts["planted"].admitted
    assert kernels.active.name == "sgemm"
    right = BACKENDS["sgemm"].product(Operand(a, 1), Operand(b, 1), np.array([0, 128, 256]))
    assert torch.equal(y, right), "the product was redone"
    assert "demoted" in capfd.readouterr().err


def test_a_fault_in_a_structural_place_is_caught_at_its_first_product():
    """So that a run goes on with unchanged hashes."""
    for fault in (WrongLastColumn, LostBlock):
        kernels = fresh([fault(), BACKENDS["sgemm"]])
        kernels._active = kernels.backends["planted"]
        a, b = torch.randn(40, 300), torch.randn(50, 300)
        y = kernels.product(Operand(a, 1), Operand(b, 1))
        assert kernels.active.name == "sgemm"
        assert torch.equal(y, fresh([BACKENDS["sgemm"]]).product(Operand(a, 1), Operand(b, 1)))


def test_without_the_compiled_checker_the_numpy_contract_audits(monkeypatch):
    monkeypatch.setenv("DAISY_COMPILED", "0")
    kernels = fresh([WrongLastColumn(inner="sgemm-plain"), BACKENDS["sgemm-plain"]])
    kernels._active = kernels.backends["planted"]
    kernels.auditor.begin_step()
    kernels.product(Operand(torch.randn(8, 20), 1), Operand(torch.randn(9, 20), 1))
    assert kernels.active.name == "sgemm-plain"


def test_a_wrong_relu_is_caught():
    class WrongReLU(Planted):
        def product(self, a, b, edges):
            return self.inner.product(a, b, edges)

        def relu(self, x):
            return torch.relu(x)

    kernels = fresh([WrongReLU(), BACKENDS["sgemm"]])
    assert kernels.choose().name == "sgemm"
    kernels = fresh([WrongReLU(), BACKENDS["sgemm"]])
    kernels._active = kernels.backends["planted"]
    kernels.product(Operand(torch.randn(8, 20), 1), Operand(torch.randn(9, 20), 1))
    y = kernels.relu(torch.randn(6, 200))
    assert kernels.active.name == "sgemm"
    assert same_bits(y.numpy(), BACKENDS["sgemm"].relu(y).numpy())


def test_saturating_int8_instructions_are_found_out():
    """oneDNN held to AVX2 without VNNI gives wrong sums: the gate must say so, and the table must still be right."""
    code = (
        "import torch; torch.set_num_threads(1)\n"
        "from daisychain.kernels.registry import Kernels\n"
        "k = Kernels(); v = k.prove('int_mm'); print(v.admitted, v.reason); print(k.choose().name)\n"
    )
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert run.returncode == 0, run.stderr
    verdict, chosen = run.stdout.splitlines()
    if verdict.startswith("True"):
        pytest.skip("int_mm is exact here even without VNNI instructions")
    assert "wrong bits" in verdict
    assert chosen == "sgemm"


# The registry.


def test_a_forced_backend_is_used_or_refused_with_the_reason():
    kernels = fresh(forced="sgemm-plain")
    assert kernels.choose().name == "sgemm-plain"
    with pytest.raises(KernelError, match=r"kernel 'magic' is not known; use one of int_mm, sgemm"):
        fresh(forced="magic")
    with pytest.raises(KernelError, match=r"kernel planted cannot be used: wrong bits"):
        fresh([WrongLastColumn()], forced="planted").choose()


def test_a_slow_backend_is_not_chosen_and_the_choice_is_said(capfd):
    class Slow(Planted):
        def wrong(self, a, b, edges):
            for _ in range(20):
                self.inner.product(a, b, edges)
            return self.inner.product(a, b, edges)

    assert fresh([Slow(), BACKENDS["sgemm"]]).choose().name == "sgemm"
    assert "kernel: sgemm (the fastest of planted" in capfd.readouterr().err


def test_with_no_fast_kernel_the_table_works_and_says_it_is_slow(capfd):
    kernels = fresh([WrongLastColumn(), BACKENDS["table"]])
    assert kernels.choose().name == "table"
    assert "slow" in capfd.readouterr().err


def test_a_backend_that_fails_is_refused_and_one_that_fails_later_is_demoted(capfd):
    class Failing(Planted):
        def wrong(self, a, b, edges):
            raise RuntimeError("not implemented for this CPU\nand more")

    kernels = fresh([Failing(), BACKENDS["sgemm"]])
    assert kernels.choose().name == "sgemm"
    assert kernels.verdicts["planted"].reason == "it failed, RuntimeError: not implemented for this CPU"
    kernels = fresh([Failing(), BACKENDS["sgemm"]])
    kernels._active = kernels.backends["planted"]
    kernels.product(Operand(torch.randn(8, 20), 1), Operand(torch.randn(9, 20), 1))
    assert kernels.active.name == "sgemm"
    with pytest.raises(KernelError, match="planted: it failed"):
        fresh([Failing()]).choose()


def test_a_wrong_split_is_caught():
    class WrongSplit(Planted):
        def product(self, a, b, edges):
            return self.inner.product(a, b, edges)

        def rounded(self, x, edges):
            return self.inner.rounded(x, edges) * (1 + 2.0**-10)

    kernels = fresh([WrongSplit(), BACKENDS["sgemm"]])
    kernels._active = kernels.backends["planted"]
    kernels.split_high_low(Operand(torch.randn(6, 200), 0))
    assert kernels.active.name == "sgemm"


def test_products_are_counted_for_the_backend_that_made_them():
    kernels = fresh(forced="sgemm")
    kernels.product(Operand(torch.randn(3, 50), 1), Operand(torch.randn(4, 50), 1))
    kernels.relu(torch.randn(5, 6))
    assert kernels.counts.table() == {
        "multiply": {"sgemm": 3 * 4 * 50},
        "requantise": {"sgemm": 7 * 50 + 30},
        "relu": {"sgemm": 30},
    }


def test_k_above_the_bound_and_nan_are_refused_at_the_entry():
    kernels = fresh(forced="sgemm")
    long = torch.zeros(1, 131_072)
    with pytest.raises(AccumulatorBoundError, match="131072"):
        kernels.product(Operand(long, 1), Operand(long, 1))
    with pytest.raises(NonFiniteError, match="2 of 6 values"):
        kernels.product(Operand(torch.tensor([[1.0, torch.nan, 2.0]] * 2), 1), Operand(torch.ones(1, 3), 1))


def test_an_empty_product_is_empty():
    kernels = fresh(forced="sgemm")
    assert kernels.product(Operand(torch.zeros(0, 5), 1), Operand(torch.zeros(4, 5), 1)).shape == (0, 4)


@pytest.mark.parametrize("name", [name for name in BACKENDS if name != "neural"])
def test_memory_of_a_product_is_flat(name):
    m, k, n = 512, 768, 768
    assert extra_megabytes(name, m, k, n) < 80


def test_memory_of_the_nets_is_flat():
    assert extra_megabytes("neural", 64, 96, 96) < 80


def extra_megabytes(name, m, k, n):
    """Peak resident memory of one product beyond that of the process before it, measured in a fresh process."""
    code = (
        "import sys, resource, torch; torch.set_num_threads(1)\n"
        "from daisychain.kernels.registry import all_backends\n"
        "from daisychain.kernels import Operand\n"
        "from daisychain.numerics import block_edges\n"
        "name, m, k, n = sys.argv[1], *map(int, sys.argv[2:])\n"
        "backend = {b.name: b for b in all_backends()}[name]\n"
        "a, b = Operand(torch.randn(m, k), 1), Operand(torch.randn(n, k), 1)\n"
        "small = Operand(torch.randn(4, 8), 1)\n"
        "backend.product(small, small, block_edges(8))\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak(); backend.product(a, b, block_edges(k)); print((peak() - before) / 1024)\n"
    )
    command = [sys.executable, "-c", code, name, str(m), str(k), str(n)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert run.returncode == 0, run.stderr
    return float(run.stdout)


# The compiled DaisyAdam.


def test_the_compiled_adam_has_the_contracts_bits():
    assert find_adam_fault(compiled.adam_update) is None


def test_an_adam_with_another_order_is_found_out():
    def other_order(weights, gradient, mean, square, s: AdamScalars):
        mean *= s.beta1
        mean += gradient * s.rest1
        square *= s.beta2
        square += (gradient * s.rest2) * gradient
        weights -= mean * s.size / (np.sqrt(square) * s.root + s.epsilon)

    assert find_adam_fault(other_order) is not None
    assert find_adam_fault(adam_update) is None


def test_proof_backends_are_proven_on_cases_of_their_size():
    work = [case.work for case in all_cases() if case.work <= PROOF_BACKEND_WORK]
    assert len(work) > 200
    assert make_case("normal", 3, 129, 4, 0).work <= PROOF_BACKEND_WORK


def test_a_fault_at_the_tasks_own_shape_alone_is_found_before_it_works(capfd):
    class WrongFarOut(Planted):
        def wrong(self, a, b, edges):
            y = self.inner.product(a, b, edges)
            if b.rows > 200:
                y[:, 170] += 1
            return y

    kernels = fresh([WrongFarOut(), BACKENDS["sgemm"]])
    kernels.shapes[(64, 100, 300, 1, 1)] += 1
    assert kernels.choose().name == "sgemm"
    assert "task's own shape, 64×100×300" in kernels.verdicts["planted"].reason


@pytest.mark.parametrize("products", [1, 8, 16, 64])
def test_the_audit_comes_to_every_row_and_column(products):
    auditor = Auditor(seed=3)
    cells = {shape: set() for shape in range(products)}
    for _ in range(256):
        for number in range(products):
            operand_a, operand_b = Operand(torch.empty(64 + number, 1), 1), Operand(torch.empty(256, 1), 1)
            seen = auditor.cells_of(operand_a, operand_b)
            cells[number].update(map(tuple, seen.tolist()))
    for number, visited in cells.items():
        assert {row for row, _ in visited} == set(range(64 + number))
        assert {column for _, column in visited} == set(range(256))


def test_there_is_one_registry_a_kind_of_device():
    assert default() is default("cpu")
    assert [b.name for b in all_backends("cuda")] == ["sgemm-plain", "table", "neural"]
