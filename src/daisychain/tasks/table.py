"""Classification or regression on any CSV or Parquet file by a perceptron."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from daisychain.base.errors import ConfigError
from daisychain.base.log import say
from daisychain.data import (
    ClassTarget,
    NumberTarget,
    TableSchema,
    TableSource,
    as_table,
    data_hash,
    load_table,
    schema_from_json,
)
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

HIDDEN = (64, 32)


class TableTask(Task):
    """Rows of a table → a class or a number. A batch is (features float32 (n, f), targets (n,)).

    Targets are int64 classes, or float32 numbers that are standardised.
    """

    name = "table"
    learning_rate = 1e-3
    seed = 0

    def __init__(self, options: TaskOptions) -> None:
        self.name = task_name("table", options)
        refuse_options(self.name, options, "sequence", *LANGUAGE_MODEL)
        if options.data is None or options.target is None:
            raise ConfigError(
                f"task {self.name} needs a CSV or Parquet file and the column to predict: --data FILE --target COLUMN."
            )
        self.table = load_table(options.data, options.target, options.seed)
        self.schema, self.notes = self.table.schema, self.table.notes
        self.sample_count = len(self.table.train)
        self.metric = "accuracy" if isinstance(self.schema.target, ClassTarget) else "r2"
        self.seed = options.seed
        self._data_hash = data_hash(self.table.features, self.table.targets, self.table.train)
        self.spec = PerceptronSpec(
            (self.schema.features, *hidden_sizes(options, HIDDEN), output_size(self.schema)),
            options.arithmetic,
            options.backward,
        )

    def build_model(self) -> torch.nn.Module:
        return self.spec.build(self.seed)

    def sample(self, ids: SampleIds) -> tuple[torch.Tensor, torch.Tensor]:
        return self._rows(self.table.train[ids])

    def _rows(self, rows: SampleIds) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.from_numpy(self.table.features[rows]), torch.from_numpy(self.table.targets[rows])

    def loss(self, model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> Loss:
        features, targets = batch
        answers = model(features)
        if isinstance(self.schema.target, ClassTarget):
            return F.cross_entropy(answers, targets)
        return F.mse_loss(answers[:, 0], targets)

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        """accuracy and log_loss; or r2 and rmse, the latter in the target's own unit."""
        features, targets = self._rows(self.table.held_out)
        answers = outputs(model, features)
        if isinstance(self.schema.target, NumberTarget):
            return regression_metrics(answers[:, 0], targets, self.schema.target)
        return {
            "accuracy": float((answers.argmax(1) == targets).double().mean()),
            "log_loss": float(F.cross_entropy(answers, targets)),
        }

    def predict(self, model: torch.nn.Module, table: TableSource) -> list[dict[str, str | float | int]]:
        """`prediction` of each row, for a class with its `probability`; says how good it is if the rows have the
        target. Raises DataError for rows that do not fit the schema."""
        rows = as_table(table, self.schema.texts)
        answers = outputs(model, torch.from_numpy(self.schema.encode(rows)))
        target = self.schema.target
        if target.name in rows.column_names:
            self._say_quality(answers, rows[target.name])
        if isinstance(target, NumberTarget):
            numbers = answers[:, 0].double() * target.deviation + target.mean
            return [{"prediction": number} for number in numbers.tolist()]
        probability, chosen = answers.softmax(1).max(1)
        return [
            {"prediction": target.classes[c], "probability": p}
            for c, p in zip(chosen.tolist(), probability.tolist(), strict=True)
        ]

    def _say_quality(self, answers: torch.Tensor, column: Any) -> None:
        target = self.schema.target
        actual = torch.from_numpy(target.encode(column))
        if isinstance(target, NumberTarget):
            known = torch.isfinite(actual)
            metrics = regression_metrics(answers[known, 0], actual[known], target) if known.any() else {}
        else:
            known = actual >= 0
            right = (answers.argmax(1) == actual)[known].double()
            metrics = {"accuracy": float(right.mean())} if known.any() else {}
        figures = (
            ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()) or "none to compare with"
        )
        say(f"{int(known.sum())} rows have a known {target.name!r}: {figures}")

    def description(self) -> Mapping[str, Any]:
        return {
            "model": asdict(self.spec),
            "schema": self.schema.to_json(),
            "data": self._data_hash,
        }

    @classmethod
    def restore(cls, description: Mapping[str, Any]) -> "TableTask":
        task = cls.__new__(cls)  # without the training data
        task.schema = schema_from_json(description.get("schema", {}))
        task.spec = perceptron_from_json(description, task.schema.features, output_size(task.schema))
        return task


def output_size(schema: TableSchema) -> int:
    return len(schema.target.classes) if isinstance(schema.target, ClassTarget) else 1


def regression_metrics(
    answers: torch.Tensor, targets: torch.Tensor, target: NumberTarget
) -> dict[str, float]:
    """r2, and rmse in the target's own unit, of standardised answers and targets (n,)."""
    square = float(((answers.double() - targets.double()) ** 2).mean())
    spread = float(targets.double().var(correction=0))
    return {
        "r2": 1 - square / spread if spread else float(square == 0),
        "rmse": float(np.sqrt(square) * target.deviation),
    }
