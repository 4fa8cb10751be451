"""The block format against exact rational arithmetic, and the contract's bounds."""

import itertools
from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.base import limits
from daisychain.base.errors import AccumulatorBoundError, BlockRangeError, NonFiniteError
from daisychain.numerics import (
    block_edges,
    block_product,
    block_relu,
    product,
    quantise,
    requantise,
    triple_product,
)
from daisychain.numerics.blocks import MAGNITUDE_LIMIT
from daisychain.numerics.product import integer_product, split_high_low
from daisychain.numerics.vectors import edge_values

finite = st.floats(width=32, allow_nan=False, allow_infinity=False, max_value=2.0**56, min_value=-(2.0**56))


@given(st.lists(finite, min_size=1, max_size=40))
def test_codes_and_exponents_follow_the_rule_in_rationals(numbers):
    x = np.array([numbers], np.float32)
    blocks = quantise(x)
    k = int(blocks.exponents[0, 0])
    largest = max(abs(Fraction(float(v))) for v in x[0])
    assert floor(largest * Fraction(2) ** (8 - k)) <= 32_639
    assert k == limits.EXPONENT_MIN or floor(largest * Fraction(2) ** (9 - k)) > 32_639
    for value, code in zip(x[0], blocks.codes[0], strict=True):
        assert code == floor(Fraction(float(value)) * Fraction(2) ** -k + Fraction(1, 2))
        assert abs(int(code)) <= 127


def test_the_largest_magnitude_is_held_and_the_next_is_refused():
    below = np.nextafter(MAGNITUDE_LIMIT, np.float32(0))
    assert quantise(np.array([[below, -below]], np.float32)).codes.tolist() == [[127, -127]]
    with pytest.raises(BlockRangeError, match=r"1 of 2 values .* first at \(0, 1\)"):
        quantise(np.array([[0, -MAGNITUDE_LIMIT]], np.float32))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_is_refused_saying_how_many_and_where(bad):
    x = np.zeros((3, 200), np.float32)
    x[1, 130] = x[2, 5] = bad
    with pytest.raises(NonFiniteError, match=r"2 of 600 values .* first at \(1, 130\)"):
        quantise(x)


@pytest.mark.parametrize("length", [0, 1, 127, 128, 129, 300])
def test_block_edges_cover_the_length(length):
    for period in (None, 1, 7, 128, 200):
        edges = block_edges(length, period)
        assert edges[0] == 0
        assert edges[-1] == length
        assert all(0 < b - a <= limits.BLOCK_LENGTH for a, b in itertools.pairwise(edges))
        if period:
            assert set(range(0, length, period)) <= set(edges.tolist())


def test_the_product_is_exact_in_rationals_up_to_one_rounding_a_block():
    generator = np.random.Generator(np.random.PCG64(1))
    a, b = (generator.standard_normal((2, 128)).astype(np.float32) for _ in range(2))
    qa, qb = quantise(a), quantise(b)
    got = block_product(qa, qb)
    for i, j in itertools.product(range(2), range(2)):
        total = sum(int(p) * int(q) for p, q in zip(qa.codes[i], qb.codes[j], strict=True))
        exact = Fraction(total) * Fraction(2) ** (int(qa.exponents[i, 0]) + int(qb.exponents[j, 0]))
        assert Fraction(float(got[i, j])) == exact


def test_no_intermediate_of_a_block_overflows_at_the_largest_exponents():
    x = np.full((1, 128), np.nextafter(MAGNITUDE_LIMIT, np.float32(0)))
    assert np.isfinite(product(x, x)).all()
    assert product(x, -x)[0, 0] == -(np.float32(127 * 127 * 128) * np.float32(2.0**106))


def test_k_above_the_accumulator_bound_is_refused_at_every_entry():
    x = np.zeros((1, limits.ACCUMULATOR_MAX_K + 1), np.float32)
    codes = x.astype(np.int8)
    for call in (
        lambda: product(x, x),
        lambda: triple_product(x, x),
        lambda: integer_product(codes, codes),
        lambda: block_product(quantise(x), quantise(x)),
    ):
        with pytest.raises(AccumulatorBoundError, match="131072"):
            call()
    worst = np.full((1, limits.ACCUMULATOR_MAX_K), -128, np.int8)
    assert integer_product(worst, worst)[0, 0] == limits.ACCUMULATOR_MAX_K * 128 * 128


def test_requantise_rounds_half_up_and_saturates():
    x = np.arange(-32768, 32768).astype(np.int16)
    expected = [max(-128, min(127, (int(v) + 128) // 256)) for v in x]
    assert requantise(x).tolist() == expected


def test_splitting_is_exact_and_triple_is_much_closer_than_single():
    generator = np.random.Generator(np.random.PCG64(2))
    a, b = (generator.standard_normal((8, 300)).astype(np.float32) for _ in range(2))
    high, low = split_high_low(a)
    rest = a.astype(np.float64) - high.values() - low.values()
    assert np.abs(rest).max() <= np.abs(a).max() / 16_000
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(triple_product(a, b) - exact).max() < np.abs(product(a, b) - exact).max() / 10


@given(st.lists(finite, min_size=1, max_size=20))
def test_the_bounds_that_the_contract_states(numbers):
    x = np.array([numbers], np.float32)
    largest = np.abs(x).max().astype(np.float64)
    high, low = split_high_low(x)
    error = np.abs(x.astype(np.float64) - high.values())
    assert error.max() <= max(largest / 127, 2.0**-61)
    assert np.abs(x.astype(np.float64) - high.values() - low.values()).max() <= max(
        largest / 16_000, 2.0**-61
    )


def test_relu_on_the_unit_loses_nothing_when_quantised_again():
    x = edge_values()[None]
    once = block_relu(x)
    assert np.array_equal(quantise(once).values().view(np.int32), once.view(np.int32))
    assert not np.signbit(once).any()
