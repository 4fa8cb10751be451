"""What is held out: disjoint, complete, the same everywhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.data.split import data_hash, held_out_split


@given(count=st.integers(2, 5_000), most=st.integers(1, 600), seed=st.integers(0, 2**64 - 1))
def test_parts_are_disjoint_complete_sorted_and_bounded(count: int, most: int, seed: int) -> None:
    train, held_out = held_out_split(count, most, seed)
    assert np.array_equal(np.sort(np.concatenate([train, held_out])), np.arange(count))
    assert len(train) >= 1
    assert 1 <= len(held_out) <= most
    assert (np.diff(train) > 0).all()
    assert (np.diff(held_out) > 0).all()


def test_split_is_pinned() -> None:
    """A change here changes what every run trains on."""
    assert held_out_split(20, 100, 0)[1].tolist() == [12, 13, 14, 19]
    assert held_out_split(20, 100, 1)[1].tolist() == [0, 1, 2, 12]


@pytest.mark.parametrize("change", ["value", "shape", "type", "order"])
def test_data_hash_tells_changes(change: str) -> None:
    first, second = np.arange(6, dtype=np.int64), np.ones(3, np.float32)
    changed = {
        "value": (first + 1, second),
        "shape": (first.reshape(2, 3), second),
        "type": (first.astype(np.int32), second),
        "order": (second, first),
    }[change]
    assert data_hash(first, second) == data_hash(first.copy(), second.copy())
    assert data_hash(first, second) != data_hash(*changed)
