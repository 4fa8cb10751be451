"""A fast and a slow node: shares that follow the speeds against equal shares, in turns.

    python benchmarks/pooling.py [--slowdown 3] [--steps 50] [--rounds 2]

Two processes of one thread each train the text task together; one computes `slowdown` times slower. Prints one JSON
line: the shares at step 20, the pooled rate of each plan over the steps after that, and their ratio.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from timing import print_result

SETTLED_STEPS = 20
LIMIT_S = 300
PORT = 29_660
BATCH_SAMPLES = 128  # so that a step's fixed cost, which is slowed too, weighs little


def run(plan: str, slowdown: float, steps: int, port: int) -> list[dict[str, Any]]:
    """The metrics of one run, a row a step."""
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, "-m", "daisychain.cli.main", "train", "--task", "text", "--plan", plan]
        command += ["--batch", str(BATCH_SAMPLES), "--steps", str(steps), "--runs", runs, "--name", "pooling"]
        cluster = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": "2",
            "OMP_NUM_THREADS": "1",
        }
        nodes = [
            subprocess.Popen(
                command,
                env={**os.environ, **cluster, "RANK": str(rank), "DAISY_TEST_SLOWDOWN": str(factor)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            for rank, factor in enumerate((1.0, slowdown))
        ]
        try:
            for node in nodes:
                _, errors = node.communicate(timeout=LIMIT_S)
                if node.returncode:
                    raise SystemExit(errors.decode())
        finally:
            for node in nodes:
                node.kill()
        lines = (Path(runs) / "pooling" / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--slowdown", type=float, default=3.0)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    rates: dict[str, list[float]] = {"measured": [], "equal": []}
    shares = []
    for number in range(arguments.rounds):
        for place, plan in enumerate(rates):
            rows = run(plan, arguments.slowdown, arguments.steps, PORT + 2 * number + place)
            settled = rows[SETTLED_STEPS:]
            samples = sum(sum(row["shares"]) for row in settled)
            rates[plan].append(samples / sum(row["step_s"] for row in settled))
            if plan == "measured":
                shares.append(settled[0]["shares"])
    medians = {plan: statistics.median(values) for plan, values in rates.items()}
    print_result(
        f"pooling with one node {arguments.slowdown:g} times slower",
        shares_after_20_steps=shares,
        samples_per_s={plan: round(rate, 1) for plan, rate in medians.items()},
        ratio=round(medians["measured"] / medians["equal"], 3),
    )


if __name__ == "__main__":
    main()
