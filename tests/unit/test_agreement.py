"""What nodes compare before the first step, and how a difference is told."""

from dataclasses import replace

import pytest

from daisychain.cluster.agreement import first_difference, setup_of
from daisychain.cluster.config import TrainConfig
from daisychain.cluster.replica import Replica
from daisychain.nn.spikewhale import PARTS
from daisychain.tasks import TaskOptions, load_task

FLAGS = {
    "backward": ("float", "model.backward", "int8", "float"),
    "width": (32, "model.sizes", [64, 128, 64, 10], [64, 32, 32, 10]),
}


def setup(name, options):
    task = load_task(name, options, quiet=True)
    description = task.description()
    return setup_of(description, task.sample_count, name, TrainConfig(), Replica(task.build_model()))


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_that_differs_is_named_with_both_values(flag):
    value, name, here, there = FLAGS[flag]
    found = first_difference(
        setup("digits", TaskOptions()), setup("digits", replace(TaskOptions(), **{flag: value}))
    )
    assert found == (name, here, there)


def test_the_same_is_the_same_and_nothing_long_is_sent():
    assert first_difference(setup("text", TaskOptions()), setup("text", TaskOptions())) is None
    other = setup("digits", TaskOptions(seed=1))
    name, here, there = first_difference(setup("digits", TaskOptions()), other)
    assert name == "data"
    assert len(here) == len(there) == 16


def test_parts_that_are_off_are_named():
    here, there = (setup("spikewhale", TaskOptions(without=off)) for off in ((), ("engram",)))
    assert first_difference(here, there) == ("model.parts", [*PARTS], [p for p in PARTS if p != "engram"])


def test_what_one_side_lacks_is_a_difference():
    assert first_difference({"a": 1}, {"a": 1, "b": 2}) == ("b", None, 2)
    assert first_difference({"a": {"b": {"c": 1}}}, {"a": {"b": {"c": 2}}}) == ("a.b.c", 1, 2)
    assert first_difference({"a": {"b": 1}}, {"a": 1}) == ("a", {"b": 1}, 1)
