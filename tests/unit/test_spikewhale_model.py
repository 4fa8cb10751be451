"""SpikeWhale as a whole: its switches, causality, loss, gradients and sizes."""

import json
from dataclasses import asdict

import pytest
import torch
import torch.nn.functional as F

from daisychain.base import limits
from daisychain.base.errors import ConfigError
from daisychain.nn import VerifiedLinear
from daisychain.nn.spikewhale import (
    PARTS,
    PRESETS,
    SpikeWhale,
    SpikeWhaleConfig,
    config_for,
    parameter_count,
)
from daisychain.nn.spikewhale import model as model_module
from daisychain.units.counts import counts

SIZES = {
    "vocabulary": 61,
    "width": 16,
    "layers": 3,
    "heads": 2,
    "head_width": 8,
    "rotary_width": 2,
    "sequence": 24,
    "mlp_width": 32,
    "rank": 4,
    "engram_entries": 31,
    "hash_entries": 13,
}
PART_SETS = [PARTS, (), *(tuple(p for p in PARTS if p != off) for off in PARTS)]


def built(parts=PARTS, seed=0, **changed):
    torch.manual_seed(seed)
    return SpikeWhale(SpikeWhaleConfig(**{**SIZES, "parts": parts, **changed}))


def shaken(model, seed=1):
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model


def windows(samples=3, length=12, seed=4):
    return torch.randint(0, 61, (samples, length + 1), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("arithmetic", ["float", "int8"])
@pytest.mark.parametrize("parts", PART_SETS, ids=lambda parts: "+".join(parts) or "none")
def test_no_later_token_moves_an_earlier_logit(parts, arithmetic, training):
    model = shaken(built(parts, arithmetic=arithmetic)).train(training)
    ids = windows()[:, :-1]
    other = ids.clone()
    other[:, 7:] = (other[:, 7:] + 1) % 61
    with torch.no_grad():
        one, two = model(ids), model(other)
    assert torch.equal(one[:, :7], two[:, :7])
    assert not torch.equal(one[:, 7], two[:, 7])


def test_every_earlier_token_can_move_a_later_logit():
    model = shaken(built(arithmetic="float")).eval()
    ids = windows(1)[:, :-1]
    with torch.no_grad():
        last = model(ids)[0, -1]
        for place in range(ids.shape[1]):
            other = ids.clone()
            other[0, place] = (other[0, place] + 1) % 61
            assert not torch.equal(model(other)[0, -1], last), place


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_off_takes_its_parameters_along(part):
    whole, off = (set(built(parts).state_dict()) for parts in (PARTS, [p for p in PARTS if p != part]))
    owned = {
        "hash_lookup": "lookup.",
        "engram": "engram",
        "hyper_connections": "_connection.",
        "low_rank": ".query.0",
        "qk_norm": ".query_norm.",
        "refinement": "refinement.",
        "multi_token": "multi_token.",
    }
    if part in owned:
        assert any(owned[part] in name for name in whole)
        assert not any(owned[part] in name for name in off)
    if part == "shared_key_value":
        weights = [built(p).blocks[0].attention.key_value.weight for p in (PARTS, ())]
        assert [tuple(w.shape) for w in weights] == [(16, 16), (32, 16)]
    if part == "position_free":
        assert [built(p).turned.shape[-1] for p in (PARTS, ())] == [1, 4]


def test_with_hyper_connections_a_model_begins_as_a_plain_residual_network():
    widened = built(arithmetic="float", streams=4)
    plain = built([p for p in PARTS if p != "hyper_connections"], arithmetic="float")
    plain.load_state_dict(widened.state_dict(), strict=False)
    ids = windows()[:, :-1]
    torch.testing.assert_close(widened(ids), plain(ids), rtol=1e-4, atol=1e-5)


def test_streams_part_while_training():
    """Equal streams that all learned the same would be one stream."""
    model = built(arithmetic="float", streams=4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        model.loss(windows())[0].backward()
        optimizer.step()
    writes = torch.stack([m.writes.detach() for m in model.modules() if hasattr(m, "writes")])
    assert float(writes.std(dim=1).max()) > 1e-3


def test_every_linear_layer_is_verified_and_the_head_is_the_embedding():
    model = built()
    linears = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
    assert len(linears) > 15
    assert all(isinstance(m, VerifiedLinear) for m in linears)
    assert model.head.weight is model.tokens.weight
    assert not any(isinstance(m, VerifiedLinear) for m in built(arithmetic="float").modules())
    assert set(built(arithmetic="float").state_dict()) == set(model.state_dict())


@pytest.mark.parametrize("training", [True, False])
def test_the_loss_is_plain_cross_entropy_whatever_the_multi_token_head_says(training):
    model = shaken(built(arithmetic="float")).train(training)
    batch = windows()
    total, count = model.loss(batch)
    wanted = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten(), reduction="sum")
    assert count == batch[:, 1:].numel()
    torch.testing.assert_close(total, wanted, rtol=1e-5, atol=0)
    without = shaken(built(arithmetic="float"))
    without.multi_token = None
    assert without.loss(batch)[0].item() == model.train().loss(batch)[0].item()


def test_the_multi_token_head_adds_its_gradient():
    batch = windows()
    gradients = []
    for by_hand in (False, True):
        model = shaken(built(arithmetic="float"))
        if by_hand:
            head, model.multi_token = model.multi_token, None
            hidden = model._hidden(batch[:, :-1])
            further = head(hidden[:, :-1], model.tokens(batch[:, 1:-1]))
            loss = F.cross_entropy(model.head(further).flatten(0, 1), batch[:, 2:].flatten(), reduction="sum")
            total = model.loss(batch)[0] + limits.SPIKEWHALE_MULTI_TOKEN_WEIGHT * loss
            model.multi_token = head
        else:
            total, _ = model.loss(batch)
        total.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-3, atol=1e-4, msg=name)
        assert bool(gradient.any()), name


@pytest.mark.parametrize("parts", [PARTS, ()])
def test_each_gradient_arrives_once_a_step(parts):
    """The trainer sends a parameter's gradient as soon as it is there."""
    model = shaken(built(parts))
    arrived = []
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: arrived.append(name))
    model.loss(windows())[0].backward()
    assert sorted(arrived) == sorted(name for name, _ in model.named_parameters())


def test_the_gradient_of_a_batch_is_the_sum_of_its_windows():
    model, batch = shaken(built()), windows()
    gradients = []
    for parts in ([batch], batch.split(1)):
        model.zero_grad()
        for part in parts:
            model.loss(part)[0].backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for together, apart in zip(*gradients, strict=True):
        torch.testing.assert_close(together, apart, rtol=0, atol=2e-5 * max(1, float(together.abs().max())))


def test_no_more_logits_than_the_limit_are_in_memory(monkeypatch):
    rows = []
    model = built(sequence=400)
    model.head.register_forward_hook(lambda *call: rows.append(call[2].shape[:-1].numel()))
    model.loss(windows(2, 400))[0].backward()
    assert max(rows) <= limits.SPIKEWHALE_LOGIT_ROWS
    assert sum(rows) == 2 * (400 + 399)


def test_evaluation_computes_no_gradient_and_no_multi_token_head():
    for training in (True, False):
        model = built().train(training)
        model.multi_token.forward = None
        counts.reset()
        with torch.no_grad():
            logits = model(windows()[:, :-1])
            once = counts.total("multiply")
            model.loss(windows())
        assert logits.shape == (3, 12, 61)
        assert counts.total("multiply") == 2 * once


def test_a_window_of_one_token_has_a_loss():
    total, count = built().loss(windows(2, 1))
    total.backward()
    assert count == 2


@pytest.mark.parametrize("arithmetic", ["int8", "int8x3", "float"])
def test_it_learns_in_every_arithmetic(arithmetic):
    model = built(arithmetic=arithmetic)
    batch = windows(4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first = model.loss(batch)[0].item()
    for _ in range(25):
        optimizer.zero_grad()
        model.loss(batch)[0].backward()
        optimizer.step()
    assert model.loss(batch)[0].item() < first / 2


def test_too_long_a_text_is_refused():
    with pytest.raises(ConfigError, match="25 tokens are more than the model's sequence 24"):
        built()(torch.zeros(1, 25, dtype=torch.int64))


def test_presets_have_the_sizes_that_are_promised():
    assert parameter_count(PRESETS["tiny"]) <= 900_000
    assert abs(parameter_count(PRESETS["published"]) / 86e6 - 1) < 0.02
    published = PRESETS["published"]
    shape = published.layers, published.width, published.heads, published.head_width, published.rotary_width
    assert shape == (16, 640, 10, 64, 16)
    assert (published.sequence, published.vocabulary, published.rank) == (4_096, 16_512, 128)
    assert (published.engram_entries, published.streams, published.parts) == (4_096, 4, PARTS)
    counts = [parameter_count(PRESETS[name]) for name in ("tiny", "small", "medium", "published")]
    assert counts == sorted(counts)


def test_the_count_is_that_of_the_built_model():
    for parts in (PARTS, ()):
        model = built(parts)
        assert parameter_count(model.config) == sum(p.numel() for p in model.parameters())


def test_every_place_of_the_sliders_is_a_model():
    for width in (*range(32, 769, 32), limits.MAX_MODEL_WIDTH):
        for heads in (1, 2, 3, 5, 12, 16, limits.SPIKEWHALE_MAX_HEADS):
            config = config_for("small", width=width, heads=heads, layers=2, sequence=512)
            assert (config.width, config.heads, config.layers, config.sequence) == (width, heads, 2, 512)
            assert config.rotary_width * 4 == config.head_width
    assert config_for() == PRESETS["tiny"]
    assert config_for("published") == PRESETS["published"]
    assert config_for("published", width=640) == PRESETS["published"]
    assert config_for("small", layers=2).width == PRESETS["small"].width
    assert parameter_count(config_for(width=768, layers=12, sequence=512, heads=12)) > 86e6
    torch.manual_seed(0)
    odd = SpikeWhale(
        config_for(width=96, heads=5, layers=1, sequence=8, parts=["engram"], arithmetic="float")
    )
    assert odd(torch.zeros(1, 8, dtype=torch.int64)).shape == (1, 8, 16_512)


def test_a_config_goes_through_json():
    config = PRESETS["small"].without("engram", "refinement")
    again = SpikeWhaleConfig.from_json(json.loads(json.dumps(asdict(config))))
    assert again == config
    assert not again.has("engram")
    assert again.has("low_rank")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"width": 0}, "width 0 must be a whole number from 1 to 4096"),
        ({"width": True}, "width True"),
        ({"layers": "4"}, "layers '4'"),
        ({"sequence": 10**9}, "sequence 1000000000"),
        ({"rotary_width": 3}, "rotary_width 3 of head_width 8"),
        ({"rotary_width": 10}, "rotary_width 10 of head_width 8"),
        ({"streams": 99}, "streams 99"),
        ({"heads": 64, "head_width": 256}, "heads 64 of head_width 256 .* at most 8192 wide"),
        ({"parts": "engram"}, "parts 'engram' must be a list"),
        ({"parts": ["whale"]}, "part 'whale' is not known; parts are hash_lookup"),
        ({"parts": [["engram"]]}, "is not known"),
        ({"arithmetic": "int4"}, "'int4' .* use int8, int8x3, float"),
        ({"backward": ["int8"]}, "is not known"),
    ],
)
def test_a_config_that_cannot_be_built_says_why(changed, message):
    with pytest.raises(ConfigError, match=message):
        SpikeWhaleConfig(**{**SIZES, **changed})
    with pytest.raises(ConfigError, match=message):
        SpikeWhaleConfig.from_json({**asdict(SpikeWhaleConfig(**SIZES)), **changed})


def test_hostile_descriptions_and_names_are_refused():
    for described in ({}, [], {**asdict(PRESETS["tiny"]), "more": 1}, "tiny"):
        with pytest.raises(ConfigError, match="is described by"):
            SpikeWhaleConfig.from_json(described)
    with pytest.raises(ConfigError, match="preset 'huge' is not known; use tiny, small, medium, published"):
        config_for("huge")
    with pytest.raises(ConfigError, match="width '32'"):
        config_for(width="32")
    with pytest.raises(ConfigError, match="heads 0"):
        config_for(heads=0)
    with pytest.raises(ConfigError, match="part 'x' is not known"):
        PRESETS["tiny"].has("x")


def test_the_module_has_its_engram_where_it_can_see_something():
    assert model_module.ENGRAM_BEFORE >= 1
    one_layer = built(layers=1)
    assert one_layer(windows()[:, :-1]).shape == (3, 12, 61)
