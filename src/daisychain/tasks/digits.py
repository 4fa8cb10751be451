"""Handwritten digits by a perceptron: the default task."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
import torch.nn.functional as F

from daisychain.base.log import say
from daisychain.data import CLASSES, PIXELS, TableSource, data_hash, load_digits, read_digits
from daisychain.tasks.builtin import (
    LANGUAGE_MODEL,
    PerceptronSpec,
    hidden_sizes,
    outputs,
    perceptron_from_json,
    refuse_options,
    task_name,
)
from daisychain.tasks.task import Loss, SampleIds, Task, TaskOptions

HIDDEN = (128, 64)
LABEL_SMOOTHING = (
    0.1  # 1.5 points of held-out accuracy after 300 steps: without it, few images are learned by heart
)


class DigitsTask(Task):
    """Images of 8 × 8 pixels → ten classes. A batch is (images float32 (n, 64), labels int64 (n,))."""

    name = "digits"
    metric = "accuracy"
    usage = "predict {model} examples/digits.csv"
    seed = 0
    learning_rate = 5e-3

    def __init__(self, options: TaskOptions) -> None:
        self.name = task_name("digits", options)
        refuse_options(self.name, options, "data", "target", "sequence", *LANGUAGE_MODEL)
        self.spec = PerceptronSpec(
            (PIXELS, *hidden_sizes(options, HIDDEN), CLASSES), options.arithmetic, options.backward
        )
        self.seed = options.seed
        self.digits = load_digits(options.seed)
        self.sample_count = len(self.digits.train)
        self._data_hash = data_hash(self.digits.images, self.digits.train)
        self.notes = (
            f"digits: {len(self.digits.labels)} images, {len(self.digits.held_out)} of them held out",
        )

    def build_model(self) -> torch.nn.Module:
        return self.spec.build(self.seed)

    def sample(self, ids: SampleIds) -> tuple[torch.Tensor, torch.Tensor]:
        rows = self.digits.train[ids]
        return torch.from_numpy(self.digits.images[rows]), torch.from_numpy(self.digits.labels[rows])

    def loss(self, model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> Loss:
        images, labels = batch
        return F.cross_entropy(model(images), labels, label_smoothing=LABEL_SMOOTHING)

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        rows = self.digits.held_out
        logits = outputs(model, torch.from_numpy(self.digits.images[rows]))
        labels = torch.from_numpy(self.digits.labels[rows])
        return {
            "accuracy": float((logits.argmax(1) == labels).double().mean()),
            "log_loss": float(F.cross_entropy(logits, labels)),
        }

    def predict(self, model: torch.nn.Module, table: TableSource) -> list[dict[str, str | float | int]]:
        """`prediction` and `probability` of each row of pixel_0 … pixel_63 (0 to 16); says how many of a column
        `label` are right."""
        images, labels = read_digits(table)
        probability, digit = outputs(model, torch.from_numpy(images)).softmax(1).max(1)
        if labels is not None:
            right = int((digit.numpy() == labels).sum())
            say(f"{right} of {len(labels)} labels are right, accuracy {right / len(labels):.4f}")
        return [
            {"prediction": d, "probability": p}
            for d, p in zip(digit.tolist(), probability.tolist(), strict=True)
        ]

    def description(self) -> Mapping[str, Any]:
        return {"model": asdict(self.spec), "data": self._data_hash}

    @classmethod
    def restore(cls, description: Mapping[str, Any]) -> "DigitsTask":
        task = cls.__new__(cls)  # without the training data
        task.spec = perceptron_from_json(description, PIXELS, CLASSES)
        return task
