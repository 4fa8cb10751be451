"""The built-in tasks: they learn, they can be restored, and they predict."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from daisychain.base.errors import CheckpointError, ConfigError, DaisyError, DataError, NonFiniteError
from daisychain.data.columns import as_table
from daisychain.tasks import BUILT_IN, Task, TaskOptions, check_task, load_task, restore_task
from daisychain.tasks.digits import DigitsTask
from daisychain.tasks.table import TableTask
from daisychain.tasks.text import TextTask, pick

from .table_help import TARGET, write_real_table
from .train_help import train

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {"width": 16, "layers": 1}


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def options_for(name: str, folder: Path, **changes: Any) -> TaskOptions:
    if name.startswith("table"):
        write_real_table(folder / "data.csv", "wine")
        changes = {"data": folder / "data.csv", "target": TARGET} | changes
    if name.startswith("text"):
        (folder / "data.txt").write_bytes(b"daisies in a chain, " * 200)
        changes = {"data": folder / "data.txt", "sequence": 16} | changes
    return TaskOptions(**changes)


def restored(task: Task, model: torch.nn.Module) -> tuple[Task, torch.nn.Module]:
    """Task and model as a checkpoint brings them back."""
    again = restore_task(task.name, json.loads(json.dumps(task.description())))
    new = again.build_model()
    new.load_state_dict(model.state_dict())
    return again, new.eval()


@pytest.mark.parametrize(("name", "seed"), [("digits", 0), ("digits", 1), ("digits-float", 2)])
def test_digits_reach_96_percent(name: str, seed: int) -> None:
    task = load_task(name, TaskOptions(seed=seed))
    model, losses = train(task, 300, seed)
    assert losses[-1] < losses[0]
    assert task.evaluate(model)["accuracy"] >= 0.96


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_task_passes_its_check_and_comes_back(name: str, tmp_path: Path) -> None:
    task = load_task(name, options_for(name, tmp_path, **SMALL))
    check_task(task)
    assert task.name == name
    assert task.metric in task.evaluate(task.build_model().eval())
    assert task.notes
    again, model = restored(task, task.build_model())
    assert type(again) is type(task)
    assert again.name == name
    assert {k: v.shape for k, v in model.state_dict().items()} == {
        k: v.shape for k, v in task.build_model().state_dict().items()
    }


@pytest.mark.parametrize("name", ["digits", "table", "text"])
def test_same_seed_same_data_and_weights_and_other_seed_others(name: str, tmp_path: Path) -> None:
    ids = np.array([3, 0, 5])
    tasks = [load_task(name, options_for(name, tmp_path, seed=seed)) for seed in (1, 1, 2)]
    weights = [torch.cat([p.detach().ravel() for p in task.build_model().parameters()]) for task in tasks]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert tasks[0].description() == tasks[1].description()
    assert tasks[0].description()["data"] != tasks[2].description()["data"]
    torch.testing.assert_close(tasks[0].sample(ids), tasks[1].sample(ids), rtol=0, atol=0)


def test_building_a_model_leaves_the_generator_alone(tmp_path: Path) -> None:
    state = torch.random.get_rng_state()
    load_task("text", options_for("text", tmp_path)).build_model()
    assert torch.equal(state, torch.random.get_rng_state())


def test_digits_predict(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    task = load_task("digits")
    again, model = restored(task, train(task, 300)[0])
    rows = again.predict(model, EXAMPLES / "digits.csv")
    assert len(rows) == 20
    assert all(isinstance(row["prediction"], int) and 0 < float(row["probability"]) <= 1 for row in rows)
    labels = as_table(EXAMPLES / "digits.csv")["label"].to_pylist()
    right = sum(row["prediction"] == label for row, label in zip(rows, labels, strict=True))
    assert right >= 18
    assert f"{right} of 20 labels are right" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "arithmetic", "least"),
    [
        ("breast_cancer", "int8", 0.9),
        ("wine", "int8", 0.8),
        ("diabetes", "int8", 0.1),
        ("diabetes", "float", 0.1),
    ],
)
def test_real_tables_are_learned_and_predicted(
    name: Any, arithmetic: Any, least: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "data.csv"
    write_real_table(path, name)
    task = load_task("table", TaskOptions(data=path, target=TARGET, arithmetic=arithmetic))
    model, _ = train(task, 150)
    metrics = task.evaluate(model)
    assert metrics[task.metric] >= least
    again, model = restored(task, model)
    table = as_table(path)
    rows = again.predict(model, path)
    assert f"{table.num_rows} rows have a known '{TARGET}'" in capsys.readouterr().err
    few = again.predict(
        model, table.drop_columns([TARGET]).select(range(table.num_columns - 2, -1, -1)).slice(0, 7)
    )
    assert "known" not in capsys.readouterr().err
    for row, same in zip(few, rows, strict=False):
        assert row["prediction"] == (
            pytest.approx(same["prediction"], rel=1e-4) if name == "diabetes" else same["prediction"]
        )
    answers = table[TARGET].to_pylist()
    if name == "diabetes":
        assert metrics["rmse"] < 77
        error = np.array([float(row["prediction"]) for row in rows]) - answers
        assert np.sqrt((error**2).mean()) < 77
    else:
        assert (
            np.mean([row["prediction"] == answer for row, answer in zip(rows, answers, strict=True)]) >= least
        )


def test_table_predict_reads_text_as_text_and_refuses_what_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("code,size,y\n" + "01,1.5,1\nx,2.5,0\n01,,1\nx,3.5,0\n" * 10)
    task = load_task("table", TaskOptions(data=path, target="y"))
    again, model = restored(task, train(task, 60)[0])
    new = tmp_path / "new.csv"
    new.write_text("size,code\n1.5,01\n3.5,x\n")
    rows = again.predict(model, new)
    assert [row["prediction"] for row in rows] == [1, 0]
    assert rows == again.predict(model, pa.table({"code": ["01", "x"], "size": [1.5, 3.5]}))
    for content, words in {
        "size\n1\n": "'code' is not in the data",
        "code,size\n01,big\n": "'size' must hold numbers",
        "code,size\n01,inf\n": "infinite",
        "code,size\n": "no rows",
    }.items():
        new.write_text(content)
        with pytest.raises(DataError, match=words):
            again.predict(model, new)


def test_table_predict_says_when_no_row_can_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = load_task("table", options_for("table", tmp_path))
    table = as_table(tmp_path / "data.csv").drop_columns([TARGET])
    unknown = table.append_column(TARGET, pa.array(["class_9"] * table.num_rows))
    task.predict(task.build_model(), unknown)
    assert "0 rows have a known 'outcome': none to compare with" in capsys.readouterr().err


def test_text_learns_and_generates(tmp_path: Path) -> None:
    task = load_task("text", options_for("text", tmp_path))
    model, losses = train(task, 60)
    assert losses[-1] < 0.7 * losses[0]
    metrics = task.evaluate(model)
    assert metrics["bits_per_byte"] == pytest.approx(metrics["held_out_loss"] / np.log(2))
    assert metrics["perplexity"] == pytest.approx(np.exp(metrics["held_out_loss"]))
    again, model = restored(task, model)
    assert isinstance(again, TextTask)

    def text(prompt: bytes | str, seed: int, temperature: float = 1.0) -> bytes:
        return b"".join(again.generate(model, prompt, 30, temperature, seed))

    assert len(text("", 0)) == 30
    assert text("daisies", 5) == text(b"daisies", 5)
    assert text("daisies", 5) != text("daisies", 6)
    assert text("daisies", 5, 0) == text("daisies", 6, 0)
    assert text("daisies", 5, 1e-300) == text("daisies", 6, 0)
    assert len(text("a prompt that is longer than the sequence of 16 bytes \udcff", 1)) == 30
    assert list(again.generate(model, "x", 0, 1.0, 0)) == []
    rows = again.predict(model, pa.table({"prompt": ["daisies", None]}))
    assert rows[0]["continuation"] == b"".join(again.generate(model, "daisies", 64, 0, 0)).decode(
        errors="replace"
    )
    assert rows[1]["prompt"] == ""


@pytest.mark.parametrize(
    ("tokens", "temperature"),
    [(-1, 1.0), (2**40, 1.0), (True, 1.0), (1.5, 1.0), (1, -0.1), (1, float("nan")), (1, float("inf"))],
)
def test_generate_refuses_bad_arguments_at_once(tmp_path: Path, tokens: Any, temperature: float) -> None:
    task = load_task("text", options_for("text", tmp_path, **SMALL))
    assert isinstance(task, TextTask)
    with pytest.raises(ConfigError):
        task.generate(task.build_model(), "a", tokens, temperature, 0)


def test_pick_follows_the_likelihood_and_refuses_nan() -> None:
    logits = torch.log(torch.tensor([0.1, 0.6, 0.3], dtype=torch.float64))
    generator = torch.Generator().manual_seed(1)
    counts = np.bincount([pick(logits, 1.0, generator) for _ in range(2_000)], minlength=3) / 2_000
    assert np.allclose(counts, [0.1, 0.6, 0.3], atol=0.05)
    with pytest.raises(NonFiniteError):
        pick(torch.tensor([0.0, float("nan")], dtype=torch.float64), 1.0, generator)


def test_text_loss_is_a_sum_over_bytes(tmp_path: Path) -> None:
    task = load_task("text", options_for("text", tmp_path, **SMALL, arithmetic="float"))
    model = task.build_model()
    whole, count = task.loss(model, task.sample(np.arange(4)))
    parts = [task.loss(model, task.sample(np.array([n]))) for n in range(4)]
    assert count == 4 * 16
    assert whole.item() == pytest.approx(sum(total.item() for total, _ in parts), rel=1e-5)


BAD_OPTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("digits", {"data": Path("x.csv")}, "--data 'x.csv' means nothing to task digits"),
    ("digits-float", {"sequence": 5}, "--sequence '5' means nothing to task digits-float"),
    ("digits", {"width": 0}, "width 0 must be"),
    ("digits", {"layers": 65}, "layers 65 must be"),
    ("digits", {"arithmetic": "int4"}, "arithmetic 'int4'"),
    ("digits", {"backward": "int4"}, "backward 'int4'"),
    ("table", {}, "--data FILE --target COLUMN"),
    ("table", {"data": Path("x.csv")}, "--data FILE --target COLUMN"),
    ("table", {"data": Path("absent.csv"), "target": "y"}, "'absent.csv' does not exist"),
    ("text", {"target": "y"}, "--target 'y' means nothing"),
    ("text", {"data": Path("absent.txt")}, "'absent.txt' does not exist"),
    ("text", {"width": 100_000}, "width 100000 must be"),
    ("text", {"width": -4}, "width"),
    ("text", {"layers": 0}, "layers"),
    ("text", {"sequence": 0}, "sequence"),
    ("text", {"sequence": 5_000}, "sequence 5000 must be"),
    ("text", {"arithmetic": "int4"}, "arithmetic 'int4'"),
]


@pytest.mark.parametrize(("name", "changes", "words"), BAD_OPTIONS)
def test_bad_options_are_refused_on_one_line(name: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises((ConfigError, DataError), match=words) as caught:
        load_task(name, TaskOptions(**changes))
    assert "\n" not in str(caught.value)


def test_table_too_wide_for_exact_products_is_refused() -> None:
    wide = pa.table({f"c{n}": np.arange(10) % 3 for n in range(20)} | {"y": np.arange(10) % 2})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("daisychain.base.limits.ACCUMULATOR_MAX_K", 19)
        with pytest.raises(ConfigError, match="inputs 20 must be"):
            TableTask(TaskOptions(data=wide, target="y"))


MODEL = {"sizes": [64, 8, 10], "arithmetic": "int8", "backward": "int8"}
CONFIG = {
    "vocabulary": 256, "width": 16, "layers": 1, "heads": 4, "sequence": 16, "arithmetic": "int8", "backward": "int8",
}  # fmt: skip
HOSTILE: list[tuple[type[Task], dict[str, Any]]] = [
    *((DigitsTask, {"model": bad}) for bad in (None, [], {}, 5)),
    *(
        (DigitsTask, {"model": MODEL | change})
        for change in (
            {"sizes": []}, {"sizes": [64, 10]}, {"sizes": 5}, {"sizes": [64, 10**12, 10]}, {"sizes": [64, -1, 10]},
            {"sizes": [64, "a", 10]}, {"sizes": [64, 8.5, 10]}, {"sizes": [64.0, 8, 10]}, {"sizes": [63, 8, 10]},
            {"sizes": [64, *[8] * 100, 10]}, {"arithmetic": "x"}, {"backward": None}, {"arithmetic": ["int8"]},
        )
    ),
    *(
        (TextTask, {"model": CONFIG | change})
        for change in (
            {"width": 10**9}, {"width": "16"}, {"layers": 10**9}, {"heads": 0}, {"heads": 3}, {"sequence": 10**12},
            {"vocabulary": 10**9}, {"vocabulary": 16}, {"arithmetic": 1}, {"width": None},
        )
    ),
    (TextTask, {"model": {"width": 16}}),
    (TextTask, {}),
    (TableTask, {}),
    (TableTask, {"schema": None, "model": MODEL}),
    (TableTask, {"schema": {"columns": [], "target": {"name": "y", "classes": [0, 1]}}, "model": MODEL}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "description"), HOSTILE)
def test_hostile_description_is_refused_on_one_line(kind: type[Task], description: dict[str, Any]) -> None:
    with pytest.raises((CheckpointError, DataError)) as caught:
        kind.restore(description)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_base_task_has_no_predictions() -> None:
    with pytest.raises(DaisyError, match="has no predictions"):
        Task().predict(torch.nn.Linear(1, 1), None)
