"""Shares: they sum, they follow speed, they settle, they stay put."""

import contextlib
import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.base import limits
from daisychain.base.errors import CheckpointError, ConfigError
from daisychain.cluster.fleet.links import Link
from daisychain.cluster.plan import Planner, divide, divide_by_speed, link_times_s, overhead_from, step_time_s

weights = st.lists(st.floats(0, 1e300), min_size=1, max_size=12).filter(any)
speeds = st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=12)


@given(st.integers(0, 10_000), weights)
def test_shares_sum_and_are_within_one_of_their_quota(total, weights):
    shares = divide(total, weights)
    assert sum(shares) == total
    scale = max(weights)
    quotas = [total * (w / scale) / math.fsum(v / scale for v in weights) for w in weights]
    assert all(q - 1 - 1e-6 <= n <= q + 1 + 1e-6 for n, q in zip(shares, quotas, strict=True))


@given(st.integers(0, 10_000), weights)
def test_who_is_faster_gets_no_less(total, weights):
    shares = divide(total, weights)
    ranked = sorted(zip(weights, shares, strict=True))
    assert [n for _, n in ranked] == sorted(n for _, n in ranked)


def test_ties_go_to_the_lower_place():
    assert divide(32, [1, 1, 1]) == (11, 11, 10)
    assert divide(2, [1, 1, 1]) == (1, 1, 0)
    assert divide(7, [3]) == (7,)
    assert divide(0, [1, 2]) == (0, 0)
    assert divide(32, [5e-324, 5e-324]) == (16, 16)


@pytest.mark.parametrize("bad", [[], [0.0, 0.0], [math.nan, 1], [math.inf, 1], [-1.0, 2]])
def test_weights_that_mean_nothing_are_refused(bad):
    with pytest.raises(ConfigError, match="cannot be divided"):
        divide(32, bad)
    with pytest.raises(ConfigError):
        divide(-1, [1.0])


@given(st.integers(1, 500), speeds, st.integers(1, 2))
def test_a_share_is_nothing_or_at_least_the_least(batch, speeds, least):
    shares, left_out = divide_by_speed(batch, speeds, least)
    assert sum(shares) == batch
    members = [n for n in shares if n]
    assert len(members) == 1 or min(members) >= least
    assert all(shares[i] == 0 for i in left_out)
    kept = [speeds[i] for i in range(len(speeds)) if i not in left_out]
    assert all(speeds[i] <= min(kept) for i in left_out)  # only the slowest are left out


def test_half_a_sample_is_the_limit():
    assert divide_by_speed(32, [1.0, 1 / 62])[0] == (31, 1)
    assert divide_by_speed(32, [1.0, 1 / 64.1]) == ((32, 0), [1])


def simulate(planner, slowness, overhead, steps, noise=0.0, seed=0):
    """Nodes that need slowness·(overhead + n) seconds for n samples; the plan's notes."""
    dice = random.Random(seed)
    notes = []
    for _ in range(steps):
        shares = planner.next_shares()
        assert sum(shares) == planner.batch_samples
        assert all(n >= 0 for n in shares)
        times = [
            slow * (overhead + n) * (1 + noise * dice.random()) if n else 0.0
            for slow, n in zip(slowness, shares, strict=True)
        ]
        notes += planner.observe(shares, times)
    return notes


@pytest.mark.parametrize("overhead", [0.0, 1.0, 8.0, 60.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_node_three_times_slower_settles_at_a_third_within_20_steps(overhead, seed):
    planner = Planner((0, 1), 64)
    simulate(planner, [1e-3, 3e-3], overhead, 20, noise=0.05, seed=seed)
    assert 2.7 <= planner.shares[0] / planner.shares[1] <= 3.3


def test_a_node_that_becomes_three_times_slower_settles_within_20_steps():
    planner = Planner((0, 1), 64)
    simulate(planner, [1e-3, 1e-3], 5.0, 40, noise=0.05)
    assert planner.shares == (32, 32)
    simulate(planner, [1e-3, 3e-3], 5.0, 20, noise=0.05)
    assert 2.7 <= planner.shares[0] / planner.shares[1] <= 3.3


@pytest.mark.parametrize("overhead", [0.0, 50.0])
def test_equal_nodes_keep_their_shares_in_spite_of_noise(overhead):
    planner = Planner((0, 1, 2), 96)
    assert simulate(planner, [1e-3] * 3, overhead, 400, noise=0.08) == []
    assert planner.shares == (32, 32, 32)


def test_a_held_up_step_moves_nothing():
    planner = Planner((0, 1), 64)
    simulate(planner, [1e-3, 1e-3], 1.0, 12)
    planner.observe(planner.next_shares(), [0.032, 30.0])
    simulate(planner, [1e-3, 1e-3], 1.0, 30)
    assert abs(planner.shares[0] - planner.shares[1]) <= 7


def test_a_hopeless_node_gets_nothing_is_named_and_comes_back():
    planner = Planner((0, 1, 7), 32)
    notes = simulate(planner, [1e-3, 1e-3, 0.2], 0.5, 20)
    assert planner.shares == (16, 16, 0)
    assert sum("node 7 gets no samples" in note for note in notes) == 1
    assert list(planner.left_out) == [7]
    assert simulate(planner, [1e-3, 1e-3, 0.2], 0.5, 120) == []  # probed, and not named again
    simulate(planner, [1e-3, 1e-3, 1e-3], 0.5, 60)
    assert planner.shares[2] >= 9
    assert planner.left_out == {}


def test_a_link_that_costs_more_than_it_brings_leaves_the_node_out():
    planner = Planner((0, 1, 2), 30, link_s=(0.001, 0.001, 0.5))
    notes = simulate(planner, [1e-3] * 3, 0.0, 20)
    assert planner.shares == (15, 15, 0)
    assert any("node 2 gets no samples: its link takes 0.5 s" in note for note in notes)
    noise = Planner((0, 1, 2), 30, link_s=(0.02, 0.02, 0.03))
    simulate(noise, [1e-3] * 3, 0.0, 20)
    assert noise.shares == (10, 10, 10)
    worth_it = Planner((0, 1, 2), 30, link_s=(0.001, 0.001, 0.5))
    simulate(worth_it, [1.0] * 3, 0.0, 20)
    assert worth_it.shares == (10, 10, 10)


@pytest.mark.parametrize("time_s", [0.0, -1.0, math.nan, math.inf])
def test_times_that_mean_nothing_are_no_measurement(time_s):
    planner = Planner((0, 1), 32)
    for _ in range(40):
        planner.observe(planner.next_shares(), [time_s, 0.01])
    assert sum(planner.next_shares()) == 32
    assert all(math.isfinite(speed) for speed in planner.speeds)


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 7])
def test_batches_smaller_than_the_cluster(batch):
    planner = Planner(tuple(range(5)), batch)
    simulate(planner, [1e-3, 1e-3, 1e-3, 1e-4, 1e-3], 0.1, 400)
    assert planner.shares[3] == max(planner.shares)  # the fast one was found, though it began with nothing


def test_one_node_has_it_all():
    planner = Planner((3,), 32)
    assert simulate(planner, [1e-3], 1.0, 30) == []
    assert planner.next_shares() == (32,)


def test_batch_normalisation_never_gets_a_single_sample():
    planner = Planner((0, 1, 2), 32, share_min_samples=2)
    seen = set()
    for _ in range(150):
        shares = planner.next_shares()
        seen |= set(shares)
        planner.observe(shares, [1e-3 * s * n for s, n in zip((1, 1, 40), shares, strict=True)])
    assert 1 not in seen
    assert 0 in seen


@given(st.floats(0, 100), st.lists(st.floats(1e-6, 10), min_size=1, max_size=9))
def test_the_overhead_is_found_from_two_shares(overhead, slowness):
    soundings = [{n: s * (overhead + n) for n in (8, 24)} for s in slowness]
    assert overhead_from(soundings, 1000.0) == pytest.approx(overhead, rel=1e-6, abs=1e-6)
    assert overhead_from([{8: 2.0, 24: 1.0}], 32.0) == 32.0  # less time for more samples: only noise


def test_link_times_follow_rate_and_size():
    assert link_times_s([Link(0.625, 0.0), Link(100.0, 0.0)], 1_000_000) == (1.6, 0.01)  # 5 Mbit/s
    assert link_times_s([], 1_000_000) == ()


def test_every_node_computes_the_same_plan():
    planners = [Planner((0, 1, 2), 32) for _ in range(3)]
    for planner in planners:
        simulate(planner, [1e-3, 2e-3, 7e-3], 3.0, 120, noise=0.3, seed=4)
    assert len({json.dumps(planner.state()) for planner in planners}) == 1


def test_a_saved_plan_goes_on_and_an_unfit_one_is_not_taken():
    planner = Planner((0, 1), 32)
    simulate(planner, [1e-3, 3e-3], 1.0, 30)
    state = json.loads(json.dumps(planner.state()))
    other = Planner((0, 1), 32)
    assert other.load(state)
    assert other.next_shares() == planner.shares
    assert other.state() == planner.state()
    for change in (
        {"roster": [0, 2]}, {"batch_samples": 31}, {"shares": [40, 8]}, {"speeds": [1.0]}, {"shares": []},
        {"observed_steps": limits.PLAN_SOUNDING_STEPS - 1},
    ):  # fmt: skip
        assert not Planner((0, 1), 32).load(state | change)
    assert not Planner((0, 1), 32).load({})


JUNK = [
    7,
    10**400,
    True,
    None,
    "ab",
    {"0": 1},
    [1.5, 30.5],
    [40, -8],
    ["a", "b"],
    [[1], [2]],
    [math.nan, 1.0],
    [math.inf],
    [None],
]


@pytest.mark.parametrize(
    "name", ["roster", "batch_samples", "shares", "speeds", "overhead_samples", "observed_steps"]
)
def test_an_altered_plan_of_a_checkpoint_is_refused_in_words_and_nothing_of_it_is_taken(name):
    state = Planner((0, 1), 32).state() | {"observed_steps": limits.PLAN_SOUNDING_STEPS}
    for junk in JUNK:
        planner = Planner((0, 1), 32)
        before = planner.state()
        with contextlib.suppress(CheckpointError):  # a number may be right in one place and wrong in another
            if planner.load(state | {name: junk}):
                assert all(type(share) is int for share in planner.shares)
                assert all(math.isfinite(speed) and speed >= 0 for speed in planner.speeds)
                continue
        assert planner.state() == before
    for altered in ({"shares": 7}, {"shares": [40, -8]}, {"speeds": [1.0, math.nan]}, {"more": 1}):
        with pytest.raises(CheckpointError, match="plan is altered"):
            Planner((0, 1), 32).load(state | altered)


def test_step_time_is_the_slowest_members():
    assert step_time_s([10, 0, 5], [10.0, 1.0, 1.0], 2.0) == 7.0
