"""One node's run from a request to its summary: folder, resume point, trial of the task, join, training."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from daisychain.base.errors import CheckpointError, RunFolderError
from daisychain.base.log import say
from daisychain.cluster.config import Summary, TrainConfig
from daisychain.cluster.device import Device
from daisychain.cluster.fleet import FINISHED, Fleet, SoloFleet
from daisychain.cluster.fleet.gloo import GlooFleet
from daisychain.cluster.fleet.links import measure_links
from daisychain.cluster.fleet.settings import NodeSettings
from daisychain.cluster.stop import stop_on_signal
from daisychain.cluster.storage import checkpoint
from daisychain.cluster.storage.journal import Journal
from daisychain.cluster.storage.progress import Report
from daisychain.cluster.storage.run_folder import RUNS, RunFolder, check_name, newest_run
from daisychain.cluster.trainer import Trainer
from daisychain.cluster.trial import try_kernels
from daisychain.tasks import Task, TaskOptions


@dataclass(frozen=True)
class RunRequest:
    """What is to be trained, where it is kept, and which node of which cluster this is (None: the only one)."""

    task_name: str
    options: TaskOptions
    config: TrainConfig
    device: Device
    cluster: NodeSettings | None = None
    runs: Path = RUNS
    name: str | None = None  # of the run's folder
    resume: bool = False
    status_file: Path | None = None

    @property
    def leads(self) -> bool:
        """Whether this node keeps the run."""
        return self.cluster is None or self.cluster.rank == 0

    @property
    def share_samples(self) -> int:
        """What an equal share of a step is."""
        return max(1, self.config.batch_samples // (self.cluster.world_size if self.cluster else 1))


def run_node(task: Task, request: RunRequest, report: Report) -> Summary:
    """Train as one node, in the main thread; Ctrl-C asks for an end after the step. Raises DaisyError."""
    with open_folder(request) if request.leads else nullcontext() as folder:
        journal = Journal(folder.path if folder else None, request.status_file if request.leads else None)
        with journal.failing():
            return _run_in(folder, journal, task, request, report)


def _run_in(
    folder: RunFolder | None, journal: Journal, task: Task, request: RunRequest, report: Report
) -> Summary:
    journal.starting("trying the kernels")
    resume_from = resume_point(folder) if folder and request.resume else None
    say(f"device: {request.device}; {torch.get_num_threads()} threads")
    try_kernels(task, request.share_samples, request.device.device)
    nodes = request.cluster.world_size if request.cluster else 1
    journal.starting(f"waiting for all {nodes} nodes" if nodes > 1 else "making the model")
    with stop_on_signal() as stop, _joined(request.cluster, stop) as fleet:
        return Trainer(
            task,
            request.task_name,
            fleet,
            request.config,
            folder=folder,
            runs=request.runs,
            options={
                **asdict(request.options),
                "data": request.options.data and str(request.options.data),
            },
            resume_from=resume_from,
            device=request.device.device,
            device_reason=request.device.reason,
            stop=stop,
            report=report,
            links=measure_links(fleet),
            journal=journal,
        ).run()


def open_folder(request: RunRequest) -> RunFolder:
    """The folder of a new run, or of the one to go on with. Raises RunFolderError."""
    if not request.resume:
        return RunFolder.create(request.runs, request.name, request.task_name)
    path = request.runs / check_name(request.name) if request.name else newest_run(request.runs)
    if not path.is_dir():
        raise RunFolderError(f"there is no run {path} to resume; start it without --resume.")
    return RunFolder(path)


def resume_point(folder: RunFolder) -> Path:
    """The newest whole checkpoint. Raises CheckpointError if there is none."""
    newest = checkpoint.newest_whole(folder.checkpoints)
    if newest is None:
        raise CheckpointError(
            f"run {folder.path} has no whole checkpoint to resume; start it anew, with another --name."
        )
    return newest


@contextmanager
def _joined(cluster: NodeSettings | None, stop: threading.Event) -> Iterator[Fleet]:
    """The fleet of the settings, left with the reason when the block ends."""
    fleet = SoloFleet() if cluster is None else GlooFleet.connect(cluster, stop=stop)
    reason = FINISHED
    try:
        yield fleet
    except BaseException as error:
        reason = str(error) or type(error).__name__
        raise
    finally:
        fleet.close(reason)
