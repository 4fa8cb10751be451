"""What training takes, estimated without taking it: against what really happens, and what is said of it."""

import os
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from daisychain.base import limits
from daisychain.base.errors import ConfigError
from daisychain.cli.main import run
from daisychain.cluster import memory
from daisychain.cluster.dry_run import META, _Ledger, dry_run
from daisychain.cluster.estimate import (
    Rate,
    corrected,
    estimate,
    fits,
    in_words,
    largest_share,
    measure_rate,
    step_of,
)
from daisychain.cluster.plan import Planner
from daisychain.nn import VerifiedLinear
from daisychain.nn.spikewhale import SpikeWhale, SpikeWhaleConfig, config_for, parameter_count

SMALL = SpikeWhaleConfig(width=32, layers=1, sequence=16)
RATE = Rate(products_per_s=1e10, bytes_per_s=1e9, operation_s=1e-5, reason="assumed")


def test_a_dry_run_counts_what_a_layer_makes():
    samples, n_in, n_out = 3, 40, 20

    def loss(model):
        return model(torch.empty(samples, n_in, device=META)).sum(), samples

    found = dry_run(lambda: VerifiedLinear(n_in, n_out, bias=False), loss, samples)
    assert found.parameters == n_in * n_out
    assert (
        found.multiplied == 2 * samples * n_in * n_out
    )  # forward and the weight's gradient; the input has none
    assert found.shapes == {(samples, n_in, n_out, 1, 1): 1, (n_out, samples, n_in, 0, 0): 1}
    x, y, dw = (4 * size for size in (samples * n_in, samples * n_out, n_in * n_out))
    assert 2 * y + dw <= found.live_bytes <= x + 2 * y + dw + 64
    assert found.scratch_bytes == max(x, y) + max(dw, x) + max(y, dw)


@pytest.mark.parametrize("without", [(), ("hyper_connections", "multi_token"), ("shared_key_value",)])
def test_a_dry_run_has_the_memory_of_a_real_step(without):
    config = SpikeWhaleConfig(width=64, layers=2, sequence=48, arithmetic="float").without(*without)
    samples = 3
    model = SpikeWhale(config).train()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    windows = torch.zeros(samples, config.sequence + 1, dtype=torch.int64)
    held = [tensor for p in model.parameters() for tensor in (p, p.grad)]
    with _Ledger([*held, *model.buffers()]) as ledger:
        model.loss(windows)[0].backward()
    assert step_of(config, samples).live_bytes == pytest.approx(ledger.peak_bytes, rel=0.05)
    assert ledger.peak_bytes > 4 * config.vocabulary * config.width


def test_a_real_step_makes_the_products_that_were_counted():
    from daisychain import kernels

    registry = kernels.default()
    registry.shapes.clear()
    model = SpikeWhale(SMALL).train()
    model.loss(torch.zeros(2, SMALL.sequence + 1, dtype=torch.int64))[0].backward()
    assert step_of(SMALL, 2).shapes == dict(registry.shapes)


def test_many_samples_are_reckoned_from_few():
    few = limits.SPIKEWHALE_LOGIT_ROWS // SMALL.sequence
    reckoned = step_of(SMALL, 5 * few)
    windows = torch.empty(5 * few, SMALL.sequence + 1, dtype=torch.int64, device=META)
    counted = dry_run(lambda: SpikeWhale(SMALL), lambda model: model.loss(windows), 5 * few)
    for name in ("live_bytes", "moved_bytes", "multiplied", "scratch_bytes", "operations"):
        assert getattr(reckoned, name) == pytest.approx(getattr(counted, name), rel=0.05), name


def test_an_estimate_says_what_its_memory_is_for_and_grows_with_every_size():
    found = estimate(SMALL, 8)
    assert found.parameters == parameter_count(SMALL)
    assert found.parts["weights"] == 16 * found.parameters
    assert found.step_s is None
    assert found.memory_bytes >= sum(found.parts.values())
    for larger in ({"width": 64}, {"layers": 3}, {"sequence": 64}):
        assert (
            estimate(config_for(None, **{"width": 32, "layers": 1, "sequence": 16} | larger), 8).memory_bytes
            > found.memory_bytes
        )
    assert estimate(SMALL, 64).memory_bytes > found.memory_bytes
    assert estimate(SMALL, 64, nodes=4).memory_bytes < estimate(SMALL, 64).memory_bytes
    assert estimate(replace(SMALL, arithmetic="float"), 8).parts["kernel"] == 0


@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
def test_the_largest_share_is_that_of_the_first_steps(nodes):
    seed = int.from_bytes(os.urandom(4), "little")
    print("seed", seed)
    random = np.random.default_rng(seed)
    for batch in (1, nodes, *random.integers(1, 200, 10).tolist()):
        planner = Planner(tuple(range(nodes)), batch)
        met = 0
        for _ in range(limits.PLAN_SOUNDING_STEPS + 1):
            shares = planner.next_shares()
            met = max(met, *shares)
            planner.observe(shares, [float(n) for n in shares])
        assert met == largest_share(batch, nodes), (batch, nodes)


def test_a_step_takes_longer_on_shared_cores_and_as_long_as_its_rate_says():
    alone, two_machines = (estimate(SMALL, 16, nodes, RATE, nodes_here=1).step_s for nodes in (1, 2))
    together = estimate(SMALL, 16, 2, RATE).step_s
    assert two_machines < alone
    assert two_machines < together
    slow = corrected(RATE, alone, 3 * alone)
    assert estimate(SMALL, 16, 1, slow).step_s == pytest.approx(3 * alone)
    assert "3 times" in slow.reason


def test_a_measured_rate_is_what_the_clock_said():
    ticks = iter(range(10_000))
    rate = measure_rate(lambda: float(next(ticks)))  # whatever is timed takes one second
    assert rate.products_per_s > 0
    assert rate.bytes_per_s > 0
    assert 0 < rate.operation_s < 1
    assert "thread" in rate.reason
    assert estimate(config_for("tiny", layers=2), 1, 1, rate).step_s == pytest.approx(1.0, rel=0.5)


def test_what_does_not_fit_is_refused_with_numbers_and_advice():
    found = estimate(SMALL, 8)
    assert fits(found, found.memory_bytes) is None
    reason = fits(found, found.memory_bytes - 1)
    assert in_words(found.memory_bytes) in reason
    assert f"{found.parameters:,} weights" in reason
    assert "--batch" in reason
    assert "--nodes" in fits(found, found.memory_bytes * 2, nodes_here=2)  # and the process that starts them
    large = estimate(config_for(None, width=768, layers=4, sequence=16), 1)
    assert "a smaller width or fewer layers" in fits(large, 10**9)


def test_free_memory_is_that_of_the_system_or_of_the_container(tmp_path):
    assert memory.available_bytes({}, lambda: 100, tmp_path) == 100
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("10\n")
    assert memory.available_bytes({}, lambda: 100, tmp_path) == 100
    (tmp_path / "memory.max").write_text("50\n")
    assert memory.available_bytes({}, lambda: 100, tmp_path) == 40
    assert memory.available_bytes({}, lambda: 30, tmp_path) == 30
    assert memory.available_bytes({memory.AVAILABLE: "7"}, lambda: 100, tmp_path) == 7
    with pytest.raises(ConfigError, match="whole number"):
        memory.available_bytes({memory.AVAILABLE: "much"})


@pytest.mark.parametrize("nodes", [1, 2])
def test_training_is_refused_before_anything_is_taken(tmp_path, monkeypatch, capsys, nodes):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("A daisy. " * 2_000)
    needed = estimate(config_for(None, width=768, layers=2, sequence=256), 4, nodes).memory_bytes
    monkeypatch.setenv(memory.AVAILABLE, str(needed - 1))
    built = []
    monkeypatch.setattr("daisychain.tasks.spikewhale.SpikeWhale", built.append)
    size = ["--width", "768", "--layers", "2", "--sequence", "256", "--batch", "4", "--nodes", str(nodes)]
    assert run(["train", "--task", "spikewhale", "--data", "text.txt", *size]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("error: this run does not fit")
    assert in_words(needed) in said
    assert not built
    assert not (tmp_path / "runs").exists()


def test_sizes_in_words_and_parts_that_add_up() -> None:
    assert [in_words(size) for size in (6e8, 1.44e9, 17.2e9, 99.6e9, 470e9)] == [
        "600 MB",
        "1.4 GB",
        "17 GB",
        "100 GB",
        "470 GB",
    ]
    found = estimate(SMALL, 8)
    said = sum(float(each) for each in re.findall(r"([0-9]+) MB", found.why))
    assert abs(said - found.memory_bytes / 1e6) < 2
    assert "a sample leaves" in estimate(SMALL, 1).why
