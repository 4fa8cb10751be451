"""Generation with a cache is generation without, token for token."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from daisychain.base import limits
from daisychain.base.errors import ConfigError, NonFiniteError
from daisychain.nn.spikewhale import PARTS, SpikeWhale, SpikeWhaleConfig, generate
from daisychain.nn.spikewhale.generate import pick, shortened

SEQUENCE = 12
SETS = [PARTS, (), *(tuple(p for p in PARTS if p != off) for off in PARTS)]


def built(parts=PARTS, **changed):
    torch.manual_seed(3)
    sizes = {
        "vocabulary": 97,
        "width": 32,
        "layers": 2,
        "heads": 2,
        "sequence": SEQUENCE,
        "engram_entries": 64,
    }
    model = SpikeWhale(SpikeWhaleConfig(**{**sizes, "parts": parts, **changed})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model


@pytest.mark.parametrize("arithmetic", ["int8", "float"])
@pytest.mark.parametrize("parts", SETS, ids=lambda parts: "+".join(parts) or "none")
def test_with_a_cache_and_without_the_same_tokens_come(parts, arithmetic):
    model = built(parts, arithmetic=arithmetic)
    for temperature, tokens in ((0.0, SEQUENCE), (1.0, 2 * SEQUENCE)):
        with_cache, without = (
            list(generate(model, [5, 6, 7], tokens, temperature, 11, cached=cached))
            for cached in (True, False)
        )
        assert with_cache == without
        assert len(with_cache) == tokens
    assert len(set(with_cache)) > 5


@pytest.mark.parametrize("parts", [PARTS, ()])
def test_in_8_bits_cached_logits_are_the_whole_texts_bit_for_bit(parts):
    model = built(parts)
    ids = torch.randint(0, 97, (1, SEQUENCE))
    with torch.no_grad():
        wanted = model(ids)[0]
        one_by_one, cache = [], model.start_cache()
        for place in range(SEQUENCE):
            one_by_one.append(model.forward_cached(ids[:, place : place + 1], cache))
        assert torch.equal(torch.stack(one_by_one), wanted)
        in_pieces = model.start_cache()
        for start, end in ((0, 5), (5, 6), (6, SEQUENCE)):
            assert torch.equal(model.forward_cached(ids[:, start:end], in_pieces), wanted[end - 1])


@pytest.mark.parametrize("parts", [PARTS, ()])
def test_between_the_products_of_a_model_that_writes_all_is_float64(parts, monkeypatch):
    """What float32 loses depends on how many rows are summed together; here it is too little to be seen for sure."""
    model, seen = built(parts), []
    for name in ("scaled_dot_product_attention", "rms_norm"):
        whole = getattr(F, name)

        def watched(x, *rest, whole=whole, **options):
            seen.append(x.dtype)
            return whole(x, *rest, **options)

        monkeypatch.setattr(F, name, watched)
    for block in model.blocks:
        block.register_forward_pre_hook(lambda _, given: seen.append(given[0].dtype))
    for training, wanted in ((False, torch.float64), (True, torch.float32)):
        seen.clear()
        with torch.no_grad():
            model.train(training)(torch.tensor([[5, 6, 7]]))
        assert len(seen) > 2 * len(model.blocks)
        assert set(seen) == {wanted}


def test_a_full_cache_refuses_more():
    model, cache = built(), None
    cache = model.start_cache()
    with torch.no_grad():
        model.forward_cached(torch.zeros(1, SEQUENCE - 1, dtype=torch.int64), cache)
        with pytest.raises(ConfigError, match="2 tokens do not fit a cache with room for 1"):
            model.forward_cached(torch.zeros(1, 2, dtype=torch.int64), cache)
        with pytest.raises(ConfigError, match="0 tokens"):
            model.forward_cached(torch.zeros(1, 0, dtype=torch.int64), cache)


def test_a_cache_takes_memory_for_the_tokens_it_has_seen_and_no_more():
    """A small file may describe a long sequence, many layers and many heads."""
    model = built([], heads=64, sequence=4_096, layers=2)
    cache = model.start_cache()

    def numbers():
        return sum(tensor.numel() for tensor in (*cache.keys, *cache.values))

    assert numbers() == 0
    with torch.no_grad():
        model.forward_cached(torch.zeros(1, 3, dtype=torch.int64), cache)
        a_token = 2 * 2 * model.config.heads * model.config.head_width
        assert numbers() <= 6 * a_token
        model.forward_cached(torch.zeros(1, 5, dtype=torch.int64), cache)
        assert numbers() <= 16 * a_token


def test_a_full_context_goes_on_with_its_last_half():
    assert shortened([1, 2, 3, 4], 4) == [1, 2, 3, 4]
    assert shortened([1, 2, 3, 4, 5], 4) == [4, 5]
    assert shortened([1, 2], 1) == [2]
    model = built()
    long = list(range(90))
    assert list(generate(model, long, 4, 0, 0)) == list(generate(model, long[-6:], 4, 0, 0))
    shortest = built(sequence=1)
    one, two = (list(generate(shortest, [1, 2], 5, 0, 0, cached=cached)) for cached in (True, False))
    assert one == two


def test_the_seed_decides_and_temperature_zero_takes_the_likeliest():
    model = built(arithmetic="float")
    first, again, other = (list(generate(model, [1], 20, 1.0, seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    with torch.no_grad():
        likeliest = int(model(torch.tensor([[1]]))[0, -1].argmax())
    assert next(generate(model, [1], 1, 0.0, 1)) == likeliest
    assert list(generate(model, [1], 0, 1.0, 0)) == []


@pytest.mark.parametrize(("temperature", "share"), [(1.0, 0.75), (0.5, 0.9), (100.0, 0.5)])
def test_a_token_comes_as_often_as_its_likelihood_at_that_temperature_says(temperature, share):
    generator = torch.Generator().manual_seed(0)
    logits = torch.full((97,), -1e9, dtype=torch.float64)
    logits[[5, 7]] = torch.tensor([np.log(3.0), 0.0], dtype=torch.float64)
    drawn = [pick(logits, temperature, generator) for _ in range(2_000)]
    assert set(drawn) == {5, 7}
    assert drawn.count(5) / len(drawn) == pytest.approx(share, abs=0.04)


def test_only_the_likeliest_few_are_ever_drawn():
    generator = torch.Generator().manual_seed(0)
    logits = torch.arange(97, dtype=torch.float64) * 1e-3
    drawn = {pick(logits, 1.0, generator) for _ in range(2_000)}
    assert drawn == set(range(97 - limits.SAMPLING_TOP_K, 97))


@pytest.mark.parametrize(
    ("ids", "tokens", "temperature", "message"),
    [
        ([], 5, 1.0, "ids from 0 to 96 is needed"),
        ([97], 5, 1.0, "ids from 0 to 96 is needed"),
        ([-1], 5, 1.0, "ids from 0 to 96 is needed"),
        ([1], -1, 1.0, "tokens -1"),
        ([1], True, 1.0, "tokens True"),
        ([1], 10**9, 1.0, "tokens 1000000000"),
        ([1], 5, -1.0, r"temperature -1\.0"),
        ([1], 5, float("nan"), "temperature nan"),
    ],
)
def test_bad_arguments_are_refused_at_once(ids, tokens, temperature, message):
    with pytest.raises(ConfigError, match=message):
        generate(built(), ids, tokens, temperature, 0)


def test_a_model_in_training_mode_or_diverged_does_not_generate():
    model = built(arithmetic="float")
    with pytest.raises(ConfigError, match=r"call eval\(\)"):
        generate(model.train(), [1], 1, 0.0, 0)
    torch.nn.init.constant_(model.norm.gain, torch.nan)
    with pytest.raises(NonFiniteError, match="diverged"):
        next(generate(model.eval(), [1], 1, 0.0, 0))
