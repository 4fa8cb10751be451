"""One real node of a test: trains a small model over gloo and prints one JSON line about how it ended.

Its one argument is JSON: `optimizer` (daisy or torch), `folder` (of the run, for the first node), `steps`, `task`
(digits for the verified one), and `end`: [rank, step, signal], what the node does to itself: then it writes the time
into the file `killed` first.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from trainer_help import NormTask

from daisychain.base.errors import DaisyError
from daisychain.cluster.config import TrainConfig
from daisychain.cluster.fleet.gloo import GlooFleet
from daisychain.cluster.fleet.links import measure_links
from daisychain.cluster.fleet.settings import cluster_from_environment
from daisychain.cluster.fleet.watch import FleetLimits
from daisychain.cluster.storage.run_folder import RunFolder
from daisychain.cluster.trainer import Trainer
from daisychain.kernels.optimizer import make_optimizer
from daisychain.tasks import TaskOptions, load_task


class TorchAdamW:
    """The optimiser that forks: torch's own, on the same flat weights."""

    def __init__(self, name, size):
        self.size = size

    def step(self, weights, gradient, rate):
        if not hasattr(self, "adam"):
            self.parameter = torch.from_numpy(weights).requires_grad_(True)
            self.adam = torch.optim.AdamW([self.parameter], lr=rate, foreach=False, fused=False)
        self.parameter.grad = torch.from_numpy(gradient)
        self.adam.step()

    def arrays(self):
        return {}

    def numbers(self):
        return {}

    def load(self, arrays, numbers):
        pass


def main() -> None:
    spec = json.loads(sys.argv[1])
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    fleet = GlooFleet.connect(
        cluster_from_environment(os.environ), FleetLimits(lost_after_s=2.0, heartbeat_s=0.1)
    )
    rank, at_step, number = spec.get("end", (None, None, None))

    def end(task: NormTask, step: int) -> None:
        if (fleet.rank, step) == (rank, at_step):
            if "killed" in spec:
                Path(spec["killed"]).write_text(str(time.time()))
            os.kill(os.getpid(), number)

    verified = spec.get("task") == "digits"
    task = load_task("digits", TaskOptions(), quiet=True) if verified else NormTask(spoil=end)
    config = TrainConfig(
        steps=spec["steps"],
        batch_samples=48,
        learning_rate=0.003,
        arithmetic="int8" if verified else "float",
        checkpoint_every_steps=10,
    )
    folder = RunFolder(Path(spec["folder"])) if fleet.rank == 0 and "folder" in spec else None
    optimizer = TorchAdamW if spec.get("optimizer") == "torch" else make_optimizer
    links = measure_links(fleet)
    trainer = Trainer(task, task.name, fleet, config, folder=folder, optimizer=optimizer, links=links)
    # What this CPU makes of a plain product: unlike bits show that the nodes are unlike.
    sample = torch.from_numpy(np.random.default_rng(0).random((64, 64), np.float32))
    answer = {
        "capability": torch.backends.cpu.get_cpu_capability(),
        "product": float((sample @ sample).double().sum() + torch.sqrt(sample).double().sum()),
    }
    started_s = time.monotonic()
    try:
        summary = trainer.run()
        answer |= {"hashes": summary.state_hashes, "steps": summary.steps}
        answer |= {"loss": [summary.loss_first, summary.loss_last], "units": summary.unit_invocations}
    except DaisyError as error:
        answer |= {"error": type(error).__name__, "message": str(error), "steps": trainer.step}
    print(json.dumps(answer | {"seconds": time.monotonic() - started_s}), flush=True)
    fleet.close()
    os._exit(0)


if __name__ == "__main__":
    main()
