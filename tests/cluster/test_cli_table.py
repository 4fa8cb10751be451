"""`--task table` on two real data sets with missing values and text columns, as files on disk."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location(
    "table_help", Path(__file__).parents[1] / "unit" / "table_help.py"
)
table_help = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(table_help)


@pytest.mark.parametrize(
    ("data", "metric", "least"), [("breast_cancer", "accuracy", 0.93), ("diabetes", "r2", 0.15)]
)
def test_a_real_table_with_holes_and_words(tmp_path, data, metric, least):
    table_help.write_real_table(tmp_path / "data.csv", data)
    text = (tmp_path / "data.csv").read_text()
    assert ",," in text
    command = [sys.executable, "-m", "daisychain.cli.main", "train", "--task", "table", "--data", "data.csv"]
    command += ["--target", "outcome", "--nodes", "2", "--json"]
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, check=False, timeout=110, env={**os.environ}
    )
    assert run.returncode == 0, run.stderr.decode()
    result = json.loads(run.stdout.decode().splitlines()[-1])
    assert result["metric_name"] == metric
    assert result["metric"] >= least
    predict = [sys.executable, "-m", "daisychain.cli.main", "predict", result["model"], "data.csv"]
    run = subprocess.run(
        predict, cwd=tmp_path, capture_output=True, check=False, timeout=60, env={**os.environ}
    )
    assert run.returncode == 0, run.stderr.decode()
    assert len(run.stdout.decode().splitlines()) == len(text.splitlines())
