"""Neural = table = integer on the complete domain of every unit, on every path."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from daisychain import numerics
from daisychain.base import limits
from daisychain.base.errors import UnitError
from daisychain.units import UNITS, Nets, load_tables, shipped_nets, verify_units
from daisychain.units.counts import MULTIPLY, RELU, REQUANTISE
from daisychain.units.domain import complete_domain
from daisychain.units.perceptron import Net

BATCHED: dict[str, Any] = {"neural": shipped_nets(), "table": load_tables()}


def by_hand(unit: str, *operands: int) -> int:
    """A unit in Python's own integers."""
    if unit == MULTIPLY:
        return operands[0] * operands[1]
    if unit == REQUANTISE:
        return max(-128, min(127, (operands[0] + 128) // 256))
    return max(operands[0], 0)


@pytest.mark.parametrize("unit", UNITS)
def test_the_domain_is_complete_and_its_truth_is_right(unit: str) -> None:
    domain = complete_domain(unit)
    cases = list(zip(*(operand.tolist() for operand in domain.operands), strict=True))
    byte = range(-128, 128)
    expected = {
        MULTIPLY: {(a, b) for a in byte for b in byte},
        REQUANTISE: {(x,) for x in range(-32768, 32768)},
        RELU: {(x,) for x in byte},
    }[unit]
    assert len(cases) == len(expected)
    assert set(cases) == expected
    assert domain.truth.tolist() == [by_hand(unit, *case) for case in cases]


def test_every_path_of_every_unit_is_right_on_its_complete_domain() -> None:
    certificates = verify_units()
    paths = [(c.unit, c.path, c.right, c.total) for c in certificates]
    totals = {MULTIPLY: 65_536, REQUANTISE: 65_536, RELU: 256}
    assert paths == [(u, p, totals[u], totals[u]) for u in UNITS for p in ("scalar", "batched", "table")]
    assert all(c.complete and c.margin <= limits.UNIT_MARGIN_MAX for c in certificates)
    assert all(c.margin > 0 for c in certificates if c.path != "table")


def test_wrong_nets_are_not_certified() -> None:
    def wrong(net: Net) -> Net:
        return dataclasses.replace(net, output_bias=net.output_bias + np.float32(1))

    nets = Nets({unit: wrong(net) for unit, net in shipped_nets().by_unit.items()})
    for certificate in verify_units(nets=nets):
        assert certificate.complete == (certificate.path == "table")
        assert (certificate.margin > limits.UNIT_MARGIN_MAX) == (certificate.path != "table")


@pytest.mark.parametrize("path", BATCHED)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (5, 7), (limits.UNIT_BLOCK_ELEMENTS // 4 + 1,)])
def test_any_shape_and_layout_has_the_integer_result(path: str, unit: str, shape: tuple[int, ...]) -> None:
    function: Callable[..., Any] = getattr(BATCHED[path], unit)
    domain = complete_domain(unit)
    random = np.random.default_rng(0)
    where = random.integers(0, len(domain.truth), shape)
    operands, truth = [operand[where] for operand in domain.operands], domain.truth[where]
    layouts: list[Callable[[Any], Any]] = [
        np.asarray,
        np.transpose,
        np.asfortranarray,
        lambda array: np.broadcast_to(array, (2, *shape)),
        lambda array: array[..., ::-1] if shape else array,
        lambda array: np.repeat(array, 2, axis=-1)[..., ::2] if shape else array,
    ]
    for layout in layouts:
        result = function(*map(layout, operands))
        assert result.dtype == truth.dtype
        assert np.array_equal(result, layout(truth))


@pytest.mark.parametrize("path", BATCHED)
def test_operands_of_unequal_layout_are_paired_by_position(path: str) -> None:
    a = np.arange(-20, 22, dtype=np.int8).reshape(6, 7)
    b = np.asfortranarray(a * np.int8(3))
    left, right = np.broadcast_arrays(a[:, None], b[None])
    result = BATCHED[path].multiply(left, right)
    assert np.array_equal(result, left.astype(np.int16) * right)


@pytest.mark.parametrize("path", BATCHED)
def test_other_types_and_unequal_shapes_are_refused(path: str) -> None:
    functions = BATCHED[path]
    a = np.zeros(4, np.int8)
    for call in (
        lambda: functions.multiply(a, np.zeros(5, np.int8)),
        lambda: functions.multiply(a, np.zeros(4, np.int16)),
        lambda: functions.multiply(np.zeros(4, np.uint8), a),
        lambda: functions.requantise(a),
        lambda: functions.requantise(np.full(4, np.nan, np.float32)),
        lambda: functions.relu(np.zeros(4, np.int64)),
    ):
        with pytest.raises(UnitError, match="arrays of one shape; it was given"):
            call()


def test_requantise_and_relu_are_those_of_the_contract() -> None:
    x, y = complete_domain(REQUANTISE).operands[0], complete_domain(RELU).operands[0]
    for functions in BATCHED.values():
        assert np.array_equal(functions.requantise(x), numerics.requantise(x))
        assert np.array_equal(functions.relu(y), numerics.relu(y))
