"""`daisychain ablate`: what is compared is comparable, and the table says what was measured."""

import json

import pytest

from daisychain.base.errors import ConfigError
from daisychain.cli import ablate, main
from daisychain.nn import Transformer
from daisychain.nn.spikewhale import PARTS, PRESETS, SpikeWhale, parameter_count
from daisychain.tasks.ablation import (
    BARE,
    FLOAT,
    PLAIN,
    WHOLE,
    Result,
    plain_config,
    tied_parameters,
    tied_transformer,
    variants,
)

SAME_SIZE = 0.02


@pytest.mark.parametrize("preset", PRESETS)
def test_the_plain_transformer_has_as_many_parameters(preset):
    plain, whale = plain_config(PRESETS[preset]), PRESETS[preset]
    assert abs(tied_parameters(plain) / parameter_count(whale) - 1) < SAME_SIZE
    assert (plain.layers, plain.sequence, plain.vocabulary) == (
        whale.layers,
        whale.sequence,
        whale.vocabulary,
    )


def test_every_part_is_switched_off_once_and_a_tied_head_is_one():
    found = {variant.name: variant for variant in variants(PRESETS["tiny"])}
    assert list(found) == [WHOLE, FLOAT, PLAIN, BARE, *(f"without {part}" for part in PARTS)]
    for part in PARTS:
        model = found[f"without {part}"].build()
        assert isinstance(model, SpikeWhale)
        assert model.config == PRESETS["tiny"].without(part)
    assert found[BARE].build().config.parts == ()
    assert found[FLOAT].build().config.arithmetic == "float"
    plain = tied_transformer(plain_config(PRESETS["tiny"]))
    assert isinstance(plain, Transformer)
    assert plain.head.weight is plain.tokens.weight


def test_a_result_says_mean_spread_and_paired_difference():
    whole, other = Result("whole", 5, [1.0, 2.0], 3.0), Result("other", 5, [1.5, 2.7], 3.0)
    assert (whole.mean, round(whole.spread, 6)) == (1.5, round(0.5**0.5, 6))
    difference, spread = other.against(whole)
    assert (round(difference, 6), round(spread, 6)) == (0.6, round(0.2 * 0.5**0.5, 6))
    alone = Result("alone", 5, [1.0], 3.0)
    assert (alone.spread, alone.against(whole)) == (None, (0.0, None))


def test_the_command_trains_and_prints_a_table_and_one_line(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("A daisy chain is a chain of daisies. " * 300)
    arguments = ["ablate", "--steps", "2", "--seeds", "2", "--data", str(text), "--only", "plain, engram"]
    assert main.run([*arguments, "--json"]) == 0
    out = capsys.readouterr().out.splitlines()
    measured = json.loads(out[-1])
    assert [m["name"] for m in measured["models"]] == [WHOLE, PLAIN, "without engram"]
    for model in measured["models"]:
        assert len(set(model["held_out_loss"])) == 2
        assert 5 < model["mean"] < 11
        assert any(line.startswith(model["name"]) and f"{model['parameters']:,}" in line for line in out)


def test_names_that_do_not_exist_are_refused(capsys):
    with pytest.raises(
        ConfigError, match="--only 'whale' is not known; use whole, float, plain, bare, hash_lookup"
    ):
        ablate._chosen(variants(PRESETS["tiny"]), "whale")
    assert main.run(["ablate", "--preset", "huge"]) == 2
    assert main.run(["ablate", "--seeds", "0"]) == 2
    assert "preset 'huge' is not known" in capsys.readouterr().err
