"""Does 8-bit arithmetic cost quality? The built-in tasks in float and in INT8 with either backward, over seeds.

    python benchmarks/accuracy.py [--seeds 5] [--steps 300]

Prints one JSON line a task: for each arithmetic the final training loss (mean of the last 50 steps) and the held-out
metric of every seed. One node, one thread; the table is scikit-learn's breast cancer data, written to CSV.
"""

import argparse
import csv
import statistics
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_breast_cancer

from daisychain.cluster.config import TrainConfig
from daisychain.cluster.fleet import SoloFleet
from daisychain.cluster.trainer import Trainer
from daisychain.tasks import TaskOptions, load_task
from timing import print_result

ARITHMETIC = {
    "float": ("float", "float"),
    "int8, float backward": ("int8", "float"),
    "int8, int8 backward": ("int8", "int8"),
}


def train(name: str, options: TaskOptions, steps: int) -> tuple[float, float]:
    """Mean loss of the last 50 steps, and the held-out metric."""
    task = load_task(name, options, quiet=True)
    losses: list[float] = []
    config = TrainConfig(
        steps=steps,
        batch_samples=task.batch_samples,
        learning_rate=task.learning_rate,
        warmup_steps=task.warmup_steps,
        seed=options.seed,
        arithmetic=options.arithmetic,
    )
    trainer = Trainer(task, name, SoloFleet(), config, report=lambda report: losses.append(report.loss))
    metrics = trainer.run().metrics
    return statistics.fmean(losses[-50:]), metrics[task.metric]


def write_table(path: Path) -> Path:
    """Breast cancer: 569 rows of 30 numbers, and whether malignant or benign."""
    data = load_breast_cancer()
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*data.feature_names, "diagnosis"])
        for row, target in zip(data.data, data.target, strict=True):
            writer.writerow([*row, data.target_names[target]])
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        table = write_table(Path(folder) / "cancer.csv")
        for name, data, target in (
            ("digits", None, None),
            ("table", table, "diagnosis"),
            ("text", None, None),
        ):
            results = {
                label: [
                    train(name, TaskOptions(data, target, seed, arithmetic, backward), arguments.steps)  # type: ignore[arg-type]
                    for seed in range(arguments.seeds)
                ]
                for label, (arithmetic, backward) in ARITHMETIC.items()
            }
            print_result(
                f"quality of {name} after {arguments.steps} steps",
                loss={label: [round(loss, 4) for loss, _ in runs] for label, runs in results.items()},
                held_out={label: [round(metric, 4) for _, metric in runs] for label, runs in results.items()},
                mean_held_out={
                    label: round(statistics.fmean(metric for _, metric in runs), 4)
                    for label, runs in results.items()
                },
            )


if __name__ == "__main__":
    main()
