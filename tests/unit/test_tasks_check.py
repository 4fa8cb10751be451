"""The trial of a task: each mistake is named, with what was returned and what is wanted."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from daisychain.base.errors import DataError, TaskError
from daisychain.tasks import Task, check_settings, check_task, evaluate, loss_sum_and_count, predict


class Fine(Task):
    name = "fine"
    sample_count = 5

    def build_model(self) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))

    def sample(self, ids: Any) -> Any:
        return torch.arange(2 * len(ids), dtype=torch.float32).reshape(-1, 2)

    def loss(self, model: torch.nn.Module, batch: Any) -> Any:
        return model(batch).square().mean()


def task(**changes: Any) -> Task:
    made = Fine()
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def losing(function: Callable[[torch.Tensor], Any]) -> Task:
    return task(loss=lambda model, batch: function(model(batch).square()))


def boom(*_: Any) -> Any:
    raise RuntimeError("mat1 and mat2\nshapes cannot be multiplied")


def test_good_tasks_pass_and_the_generator_is_left_alone() -> None:
    state = torch.random.get_rng_state()
    check_task(Fine())
    check_task(losing(lambda y: (y.sum(), y.numel())))
    check_task(losing(lambda y: (y.sum(), np.int64(y.numel()))))
    check_task(losing(lambda y: y.mean().reshape(1)))
    assert torch.equal(state, torch.random.get_rng_state())


def test_one_sample_is_enough() -> None:
    made = task(sample_count=1, build_model=lambda: torch.nn.Linear(2, 1))
    check_task(made)


BAD: dict[str, tuple[Task, str]] = {
    "no module": (task(build_model=lambda: None), "build_model returned NoneType None; it must be a torch.nn.Module"),
    "class": (task(build_model=lambda: torch.nn.Linear), "build_model returned type"),
    "frozen": (
        task(build_model=lambda: torch.nn.Linear(2, 3).requires_grad_(False)), "no parameters that require a gradient"
    ),
    "build raises": (task(build_model=boom), r"build_model\(\) failed: RuntimeError: mat1 and mat2 shapes"),
    "sample raises": (task(sample=boom), r"sample\(\[0, 1\]\) failed: RuntimeError"),
    "loss raises": (task(loss=boom), r"loss\(model, batch\) failed: RuntimeError.*test_tasks_check.py"),
    "wrong shape": (task(sample=lambda ids: torch.ones(2, 9)), r"loss\(model, batch\) failed: RuntimeError"),
    "vector": (losing(lambda y: y.mean(1)), r"a torch.float32 tensor of shape \(2,\); it must be a scalar"),
    "float": (losing(lambda y: y.mean().item()), "loss returned float"),
    "none": (losing(lambda y: None), "loss returned NoneType None"),
    "integer tensor": (losing(lambda y: torch.tensor(3)), "loss returned a torch.int64 tensor"),
    "detached": (losing(lambda y: y.mean().detach()), "without a gradient"),
    "detached sum": (losing(lambda y: (y.sum().detach(), 2)), "without a gradient"),
    "three": (losing(lambda y: (y.sum(), 2, 3)), r"\(a torch.float32 tensor of shape \(\), int 2, int 3\)"),
    "count 0": (losing(lambda y: (y.sum(), 0)), "a sum over 0 items"),
    "count −3": (losing(lambda y: (y.sum(), -3)), "a sum over -3 items"),
    "count 1.5": (losing(lambda y: (y.sum(), 1.5)), r"loss returned \(.*float 1.5\); it must be"),
    "count None": (losing(lambda y: (y.sum(), None)), r"loss returned \(.*NoneType None\); it must be"),
    "NaN": (losing(lambda y: (y * float("nan")).mean()), "is nan; look for bad data"),
    "infinite": (losing(lambda y: (y.sum() / 0, 2)), "is (inf|nan); look for bad data"),
    "learning rate 0": (task(learning_rate=0), "learning_rate is int 0"),
    "learning rate NaN": (task(learning_rate=float("nan")), "learning_rate is float nan"),
    "learning rate text": (task(learning_rate="x"), "learning_rate is str 'x'"),
    "batch 0": (task(batch_samples=0), "batch_samples is int 0"),
    "warm-up text": (task(warmup_steps="x"), "warmup_steps is str 'x'"),
    "batch 2.5": (task(batch_samples=2.5), "batch_samples is float 2.5"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_mistake_is_named_on_one_line(name: str) -> None:
    made, words = BAD[name]

    def check() -> None:
        check_settings(made, made.name)
        check_task(made)

    with pytest.raises(TaskError, match=words) as caught:
        check()
    assert str(caught.value).startswith("task 'fine'")
    assert "\n" not in str(caught.value)


def test_errors_of_ours_keep_their_kind() -> None:
    def refuse(ids: Any) -> Any:
        raise DataError("row 3 is broken")

    with pytest.raises(DataError, match="row 3"):
        check_task(task(sample=refuse))


def test_loss_as_sum_and_count() -> None:
    mean = torch.tensor(1.5, requires_grad=True)
    total, count = loss_sum_and_count(mean, 4)
    assert (total.item(), count) == (6.0, 4)
    total, count = loss_sum_and_count((mean, 7), 4)
    assert (total.item(), count) == (1.5, 7)


def test_the_trial_can_be_as_large_as_a_share() -> None:
    def sample(ids: Any) -> Any:
        if len(ids) > 2:
            raise RuntimeError("row 3 has no picture")
        return torch.ones(len(ids), 2)

    check_task(task(sample=sample))
    with pytest.raises(TaskError, match=r"sample\(0 … 3\) failed: RuntimeError: row 3 has no picture"):
        check_task(task(sample=sample), samples=4)


def test_metrics_become_numbers() -> None:
    made = task(evaluate=lambda model: {"accuracy": torch.tensor(0.5), "right": 3, "share": np.float32(0.25)})
    metrics = evaluate(made, torch.nn.Linear(1, 1))
    assert metrics == {"accuracy": 0.5, "right": 3.0, "share": 0.25}
    assert {type(value) for value in metrics.values()} == {float}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (boom, r"evaluate\(model\) failed: RuntimeError: mat1 and mat2 shapes"),
        (lambda model: 0.5, "evaluate returned float 0.5; it must be a dictionary"),
        (lambda model: {"a": float("nan")}, "float nan as 'a'; it must be a finite number"),
        (lambda model: {"a": torch.ones(2)}, r"a torch.float32 tensor of shape \(2,\) as 'a'"),
        (lambda model: {"a": None}, "NoneType None as 'a'"),
    ],
)
def test_metrics_that_are_none_are_named(answer: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        evaluate(task(evaluate=answer), torch.nn.Linear(1, 1))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (boom, r"predict\(model, table\) failed: RuntimeError: mat1 and mat2 shapes"),
        (lambda model, table: None, "predict returned NoneType None; it must be a list of dictionaries"),
        (lambda model, table: [1], "predict returned list"),
        (lambda model, table: [{"a": 1}, {"b": 1}], "rows with different names"),
    ],
)
def test_answers_that_are_none_are_named(answer: Callable[..., Any], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        predict(task(predict=answer), torch.nn.Linear(1, 1), "rows.csv")
