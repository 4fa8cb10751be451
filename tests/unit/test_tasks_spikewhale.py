"""The SpikeWhale task: options become a model and a text, it learns, writes, and comes back from a description."""

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from daisychain.base import limits
from daisychain.base.errors import CheckpointError, ConfigError
from daisychain.data.tokenizer import load_tokenizer
from daisychain.nn.spikewhale import PARTS, SpikeWhaleConfig
from daisychain.tasks import TaskOptions, load_task, restore_task
from daisychain.tasks.spikewhale import SpikeWhaleTask, model_config, text_choice

from .train_help import train

SMALL: dict[str, Any] = {"width": 32, "layers": 1, "sequence": 16}


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "daisies.txt"
    path.write_text("One daisy, two daisies, three daisies in a chain. " * 100, encoding="utf-8")
    return path


@pytest.fixture
def task(text) -> SpikeWhaleTask:
    return load_task("spikewhale", TaskOptions(data=text, **SMALL), quiet=True)


def test_it_learns_and_its_metrics_are_those_of_the_held_out_windows(task):
    task.batch_samples = 8
    model, losses = train(task, 12)
    metrics = task.evaluate(model)
    assert losses[-1] < losses[0] - 2
    assert metrics["held_out_loss"] < math.log(limits.VOCABULARY) - 2
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["held_out_loss"]))

    windows = torch.from_numpy(task.tokens.held_out())
    with torch.no_grad():
        logits = model(windows[:, :-1]).double()
    nats = torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()).item()
    assert metrics["held_out_loss"] == pytest.approx(nats, rel=1e-5)
    bytes_predicted = sum(len(load_tokenizer().decode(row[1:]).encode()) for row in windows.tolist())
    bits = nats * windows[:, 1:].numel() / math.log(2)
    assert metrics["bits_per_byte"] == pytest.approx(bits / bytes_predicted, rel=1e-3)


def test_an_evaluation_looks_at_a_bounded_number_of_windows(task, monkeypatch):
    model = task.build_model().eval()
    seen = []
    loss = model.loss
    monkeypatch.setattr(model, "loss", lambda windows: (seen.append(len(windows)), loss(windows))[1])
    monkeypatch.setattr(limits, "EVALUATION_TOKENS", 3 * task.config.sequence + 1)
    task.evaluate(model)
    assert sum(seen) == 3
    seen.clear()
    monkeypatch.setattr(limits, "EVALUATION_TOKENS", 1)
    task.evaluate(model)
    assert sum(seen) == 1


def test_a_glimpse_has_metrics_and_a_text(task):
    model = task.build_model().eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    first, again = task.glimpse(model), task.glimpse(model)
    assert first == again
    assert set(first.metrics) == {"held_out_loss", "perplexity", "bits_per_byte"}
    assert first.text.startswith("The")
    assert len(first.text) > len("The")
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_it_writes_whole_characters_and_the_same_for_a_seed(task):
    model = task.build_model().eval()
    texts = [b"".join(task.generate(model, "One ", 24, 1.0, seed)) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    for piece in task.generate(model, "", 24, 1.0, 3):
        piece.decode()  # each piece is text by itself
    assert b"".join(task.generate(model, b"One ", 5, 0.0, 0)) == b"".join(
        task.generate(model, "One ", 5, 0.0, 9)
    )


@pytest.mark.parametrize(
    ("tokens", "temperature"), [(-1, 1.0), (1.5, 1.0), (True, 1.0), (10**9, 1.0), (1, math.nan), (1, -1.0)]
)
def test_bad_arguments_of_generation_are_refused_at_once(task, tokens, temperature):
    with pytest.raises(ConfigError):
        task.generate(task.build_model().eval(), "x", tokens, temperature, 0)


def test_it_answers_a_table_of_prompts(task):
    answers = task.predict(task.build_model().eval(), pa.table({"prompt": ["One", None]}))
    assert [answer["prompt"] for answer in answers] == ["One", ""]
    assert all(answer["continuation"] for answer in answers)


def test_it_comes_back_from_its_description_without_its_data(task):
    again = restore_task("spikewhale", json.loads(json.dumps(task.description())))
    assert again.config == task.config
    assert not hasattr(again, "tokens")
    model = task.build_model().eval()
    new = again.build_model()
    new.load_state_dict(model.state_dict())
    wanted = list(task.generate(model, "One", 8, 0.5, 4))
    assert list(again.generate(new.eval(), "One", 8, 0.5, 4)) == wanted


def test_a_description_is_never_believed():
    good = asdict(SpikeWhaleConfig())
    for change in (
        {"width": 10**9}, {"width": "32"}, {"layers": True}, {"layers": 0}, {"parts": "engram"}, {"parts": ["x"]},
        {"parts": [["engram"]]}, {"vocabulary": 7}, {"arithmetic": ["int8"]}, {"backward": None}, {"rotary_width": 3},
        {"heads": -1}, {"unknown": 1}, {"streams": 1 << 60}, {"sequence": 1 << 40},
    ):  # fmt: skip
        with pytest.raises(CheckpointError, match="checkpoint's model"):
            restore_task("spikewhale", {"model": good | change})
    for description in ({}, {"model": None}, {"model": []}, {"model": {}}, {"model": {"width": 32}}):
        with pytest.raises(CheckpointError, match="checkpoint's model"):
            restore_task("spikewhale", description)


def test_options_shape_the_model():
    config = model_config(TaskOptions(preset="small", layers=2, without=("engram", "refinement")))
    assert (config.width, config.layers) == (model_config(TaskOptions(preset="small")).width, 2)
    assert set(PARTS) - set(config.parts) == {"engram", "refinement"}
    assert model_config(TaskOptions(heads=3, width=96, sequence=32)).heads == 3
    assert model_config(TaskOptions(arithmetic="float")).arithmetic == "float"
    for bad in (
        {"preset": "huge"}, {"without": ("tail",)}, {"width": 0}, {"layers": 10**6}, {"heads": 0}, {"sequence": -5}
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            model_config(TaskOptions(**bad))


def test_options_choose_the_text(tmp_path):
    assert text_choice(TaskOptions()).dataset is None
    chosen = text_choice(
        TaskOptions(dataset="a/b", dataset_config="c", split="test", column="t", on_data_failure="embedded")
    )
    assert (chosen.dataset, chosen.config, chosen.split, chosen.column, chosen.on_failure) == (
        "a/b", "c", "test", "t", "embedded"
    )  # fmt: skip
    assert text_choice(TaskOptions(dataset="a/b")).split == "train"
    for bad in (
        {"split": "test"}, {"column": "t"}, {"dataset_config": "c"}, {"dataset": "../up"},
        {"dataset": "a/b", "data": tmp_path}, {"dataset": "a/b", "on_data_failure": "panic"},
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            text_choice(TaskOptions(**bad))


@pytest.mark.parametrize("name", ["digits", "text", "table"])
def test_other_tasks_refuse_its_options(name):
    for option, value in (
        ("preset", "tiny"), ("heads", 2), ("without", ("engram",)), ("dataset", "a/b"), ("column", "x"), ("split", "y"),
        ("dataset_config", "c"), ("on_data_failure", "stop"),
    ):  # fmt: skip
        with pytest.raises(
            ConfigError, match=f"--{option.replace('_', '-')} .* means nothing to task {name}"
        ):
            load_task(name, TaskOptions(**{option: value}))


def test_a_sample_is_the_same_whatever_else_is_asked_for(task):
    ids = np.array([3, 0, 3], np.int64)
    batch = task.sample(ids)
    assert batch.shape == (3, task.config.sequence + 1)
    assert torch.equal(batch[0], batch[2])
    assert torch.equal(task.sample(ids[:1])[0], batch[0])
