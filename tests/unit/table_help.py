"""Real tables for tests: scikit-learn's, made as untidy as a user's own."""

import csv
import random
from pathlib import Path
from typing import Any, Literal

from sklearn import datasets

TARGET = "outcome"


def write_real_table(
    path: Path, name: Literal["breast_cancer", "wine", "diabetes"], missing: float = 0.05
) -> None:
    """Write a dataset as CSV: some cells empty, a text column that helps, and a free-text note a row.

    `breast_cancer` and `wine` have text classes in the column `outcome`, `diabetes` has numbers.
    """
    bunch: Any = getattr(datasets, f"load_{name}")()
    chance = random.Random(f"{name} 1")
    names = getattr(bunch, "target_names", None)
    middle = sorted(bunch.data[:, 0])[len(bunch.data) // 2]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*bunch.feature_names, "size", "note", TARGET])
        for number, (values, label) in enumerate(
            zip(bunch.data.tolist(), bunch.target.tolist(), strict=True)
        ):
            size = "large" if values[0] > middle else "small"
            cells = ["" if chance.random() < missing else cell for cell in [*values, size]]
            answer = label if names is None else names[label]
            writer.writerow([*cells, f"note {number}: “{chance.random()}”", answer])
