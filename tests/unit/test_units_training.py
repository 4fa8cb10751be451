"""Training the nets from random weights."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from daisychain.base import limits
from daisychain.base.errors import ConfigError, UnitError
from daisychain.units import UNITS, Nets, load_nets, save_nets, shipped_nets, verify_units
from daisychain.units import training as training_module
from daisychain.units.counts import RELU
from daisychain.units.perceptron import SPECS, Net, NetSpec
from daisychain.units.training import RECIPES, Recipe, train_net, train_units

UNDERTRAINED = {
    unit: dataclasses.replace(recipe, adam_steps=50, rounds=0) for unit, recipe in RECIPES.items()
}


def test_one_seed_trains_three_nets_that_are_right_and_loadable(tmp_path: Path) -> None:
    lines: list[str] = []
    random_state, threads = torch.get_rng_state(), torch.get_num_threads()
    train_units(tmp_path, 2, lines.append)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.get_num_threads() == threads
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{unit}.safetensors" for unit in UNITS)
    assert all(certificate.complete for certificate in verify_units(nets=load_nets(tmp_path)))
    for unit in UNITS:
        assert any(unit in line and "right on every word" in line for line in lines)
        shipped, mine = shipped_nets().by_unit[unit], load_nets(tmp_path).by_unit[unit]
        assert not np.array_equal(shipped.hidden_weight, mine.hidden_weight)


def test_the_seed_decides_the_weights() -> None:
    spec = SPECS[RELU]
    one, again, other = (train_net(spec, seed, UNDERTRAINED[RELU]) for seed in (7, 7, 8))
    assert np.array_equal(one.hidden_weight, again.hidden_weight)
    assert np.array_equal(one.output_bias, again.output_bias)
    assert not np.array_equal(one.hidden_weight, other.hidden_weight)


def test_an_undertrained_net_is_refused_at_saving(tmp_path: Path) -> None:
    weak = train_net(SPECS[RELU], 0, UNDERTRAINED[RELU])
    with pytest.raises(UnitError, match="not saved: relu is up to"):
        save_nets(tmp_path, Nets({**shipped_nets().by_unit, RELU: weak}))
    assert list(tmp_path.iterdir()) == []


def test_training_that_never_succeeds_ends_with_an_error_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_module, "RECIPES", UNDERTRAINED)
    lines: list[str] = []
    with pytest.raises(UnitError, match="with seeds 3 to 7"):
        train_units(tmp_path, 3, lines.append)
    assert len(lines) == training_module.ATTEMPTS
    assert list(tmp_path.iterdir()) == []


def test_a_miss_is_tried_again_with_the_next_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[str, int]] = []

    def train(spec: NetSpec, seed: int, recipe: Recipe) -> Net:
        tried.append((spec.unit, seed))
        net = shipped_nets().by_unit[spec.unit]
        if spec.unit == RELU and seed < 12:
            return dataclasses.replace(net, output_bias=net.output_bias + np.float32(np.nan))
        return net

    monkeypatch.setattr(training_module, "train_net", train)
    train_units(tmp_path, 10, lambda line: None)
    assert tried == [*((unit, 10) for unit in UNITS), (RELU, 11), (RELU, 12)]
    assert all(net.margin() <= limits.UNIT_MARGIN_MAX for net in load_nets(tmp_path).by_unit.values())


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_bad_seed_is_refused(tmp_path: Path, seed: int) -> None:
    with pytest.raises(ConfigError, match=str(seed)):
        train_units(tmp_path, seed)
