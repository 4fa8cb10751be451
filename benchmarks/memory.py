"""What training takes of memory, measured, against what cluster/estimate.py said before.

Each size trains for a few steps in a process of its own, whose largest resident size the system keeps.
Prints one JSON line: for each size the estimate and the measured bytes, and the estimate over the measured.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from daisychain.cluster.estimate import estimate
from daisychain.nn.spikewhale import config_for

#: name → (options of the model, samples a step, nodes)
SIZES: Mapping[str, tuple[dict[str, Any], int, int]] = {
    "tiny": ({"preset": "tiny"}, 16, 1),
    "tiny, two nodes": ({"preset": "tiny"}, 16, 2),
    "tiny, float": ({"preset": "tiny", "arithmetic": "float"}, 16, 1),
    "small": ({"preset": "small"}, 4, 1),
    "small, two nodes": ({"preset": "small"}, 4, 2),
    "width 320": ({"width": 320, "layers": 6, "sequence": 256}, 4, 1),
    "width 320, parts off": (
        {"width": 320, "layers": 6, "sequence": 256, "without": "hyper_connections,engram"}, 4, 1
    ),
    "hidden maximum": ({"width": 768, "layers": 16, "sequence": 512}, 1, 1),
    "hidden maximum, batch 4": ({"width": 768, "layers": 16, "sequence": 512}, 4, 1),
}  # fmt: skip


def measured_bytes(options: Mapping[str, Any], batch: int, nodes: int, steps: int) -> int:
    """The largest resident size of the one process, or of the largest of the nodes."""
    flags = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "daisychain.cli.main", "train", "--task", "spikewhale", *flags]
    command += ["--batch", str(batch), "--nodes", str(nodes), "--steps", str(steps)]
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert process.stderr
        said = process.stderr.read().decode(errors="replace")
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with {status}:\n{said}")
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def row(name: str, steps: int) -> dict[str, float | str]:
    options, batch, nodes = SIZES[name]
    shape = {key: value for key, value in options.items() if key != "without"}
    config = config_for(shape.pop("preset", None), **shape)
    if "without" in options:
        config = config.without(*options["without"].split(","))
    found = estimate(config, batch, nodes)
    peak = measured_bytes(options, batch, nodes, steps)
    return {
        "size": name,
        "parameters": found.parameters,
        "estimate_mb": round(found.memory_bytes / 1e6),
        "measured_mb": round(peak / 1e6),
        "ratio": round(found.memory_bytes / peak, 3),
        **{f"{part}_mb": round(size / 1e6) for part, size in found.parts.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--only", nargs="*", choices=[*SIZES], help="names of sizes; all unless given")
    arguments = parser.parse_args()
    print(json.dumps([row(name, arguments.steps) for name in arguments.only or SIZES]))


if __name__ == "__main__":
    main()
