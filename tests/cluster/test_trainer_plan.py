"""The trainer follows the plan and the plan the measured times. Time is the tests' own: nothing is left to chance."""

import pytest

from daisychain.base.errors import ConfigError
from daisychain.cluster.fleet.links import Link
from daisychain.cluster.share import SLOWDOWN

from .trainer_help import NormTask, PointsTask, Run, settings, together


class OwnClock:
    """Moves when the task computes or somebody sleeps."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def now_s(self) -> float:
        return self.time_s

    def sleep(self, duration_s: float) -> None:
        self.time_s += duration_s


def timed(kind, clock, overhead_s, sample_s):
    """A task whose steps take `overhead_s` and `sample_s` a sample."""

    class Timed(kind):
        def loss(self, model, batch):
            clock.sleep(overhead_s + sample_s * len(batch[0]))
            return super().loss(model, batch)

    return Timed()


def shares_of(slowdowns, steps=20, kind=PointsTask, overhead_s=0.01, links=()):
    def work(fleet):
        clock = OwnClock()
        config = settings(steps=steps, plan="measured", batch_samples=64)
        run = Run(fleet, timed(kind, clock, overhead_s, 0.001), config, clock=clock, links=links)
        run.trainer.slowdown = slowdowns[fleet.rank]
        return run.go()

    runs = together(len(slowdowns), work)
    assert not any(run.error for run in runs), [run.error for run in runs]
    assert len({run.trainer.planner.shares for run in runs}) == 1
    return runs


def test_a_node_slowed_three_times_settles_at_a_third_in_20_steps_and_the_pool_gains():
    runs = shares_of([1.0, 3.0])
    fast, slow = runs[0].trainer.planner.shares
    assert 2.7 <= fast / slow <= 3.3
    steps = [(report.shares, max(n / v for n, v in zip(report.shares, report.node_samples_per_s, strict=True)))
             for report in runs[0].reports]  # fmt: skip
    equal_s = steps[0][1]
    assert steps[0][0] == (32, 32)
    assert equal_s / steps[-1][1] >= 1.4


def test_a_hopeless_node_is_named_and_still_gets_every_update(capsys):
    runs = shares_of([1.0, 1.0, 900.0], kind=NormTask)
    assert runs[0].trainer.planner.shares == (32, 32, 0)
    assert runs[0].summary.replica_diff == 0
    assert "node 2 gets no samples" in capsys.readouterr().err


def test_a_slow_link_is_named(capsys):
    links = [Link(100.0, 0.001), Link(100.0, 0.001), Link(0.0005, 0.5)]
    assert shares_of([1.0, 1.0, 1.0], links=links)[0].trainer.planner.shares == (32, 32, 0)
    assert "its link takes" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "0.5", "nan", "inf", "x", "-3", "1001"])
def test_a_slowdown_that_means_nothing_is_refused(text, monkeypatch):
    monkeypatch.setenv(SLOWDOWN, text)
    with pytest.raises(ConfigError, match=SLOWDOWN):
        together_one()


def test_the_slowdown_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv(SLOWDOWN, "3")
    assert together_one().trainer.slowdown == 3.0


def together_one():
    (run,) = together(1, lambda fleet: Run(fleet, PointsTask(), settings()))
    if isinstance(run, Exception):
        raise run
    return run
