"""`daisychain train`: N nodes on this machine, or one node of a real cluster when its environment is set."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from daisychain import kernels
from daisychain.base import limits
from daisychain.base.clock import SystemClock
from daisychain.base.errors import ConfigError
from daisychain.base.files import write_atomic
from daisychain.base.log import say
from daisychain.cli import show
from daisychain.cluster.config import TrainConfig
from daisychain.cluster.device import choose_device
from daisychain.cluster.fleet.launch import check_local_nodes, launch_local, train_command
from daisychain.cluster.fleet.launched import LAUNCHED, listen_to_launcher
from daisychain.cluster.fleet.settings import cluster_from_environment
from daisychain.cluster.memory import check_memory
from daisychain.cluster.run import RunRequest, open_folder, resume_point, run_node
from daisychain.cluster.storage.node_lock import take_node_lock
from daisychain.cluster.storage.run_folder import RUNS, check_name, newest_run, read_config
from daisychain.cluster.trial import try_quietly
from daisychain.tasks import Task, TaskOptions, load_task
from daisychain.tasks.spikewhale import SpikeWhaleTask


def _panel(name: str) -> Callable[..., Any]:
    """Options that `--help` shows under one heading."""

    def option(
        text: str,
        *names: str,
        env: str | None = None,
        parser: Callable[[str], Any] | None = None,
        eager: bool = False,
    ) -> Any:
        return typer.Option(
            *names, help=text, envvar=env, rich_help_panel=name, parser=parser, is_eager=eager
        )

    return option


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number") from None


def _recall(context: typer.Context, value: bool) -> None:
    """With --resume, make the settings that the run began with the defaults of every flag.

    The callback of a flag that is never given: read last of the eager ones, and before all others.
    """
    if context.params.get("resume"):
        runs, name = Path(context.params["runs"]), context.params.get("name")
        recorded = read_config(runs / check_name(name) if name else newest_run(runs))
        flags = {
            NAMES_OF_SETTINGS.get(key, key): ",".join(map(str, value)) if isinstance(value, list) else value
            for key, value in recorded.items()
            if value is not None
        }
        context.default_map = {**(context.default_map or {}), **flags}


#: Settings of a run that are called otherwise on the command line.
NAMES_OF_SETTINGS = {
    "batch_samples": "batch",
    "learning_rate": "lr",
    "warmup_steps": "warmup",
    "checkpoint_every_steps": "checkpoint_every",
}

_task, _run, _cluster = _panel("Task and model"), _panel("Run"), _panel("Cluster")
_whale = _panel("SpikeWhale (task spikewhale)")


def train(
    context: typer.Context,
    task: Annotated[
        str,
        _task("digits, table, text, spikewhale, one of them with -float, or module:Class.", env="DAISY_TASK"),
    ] = "digits",
    data: Annotated[Path | None, _task("Your own file or folder.")] = None,
    target: Annotated[str | None, _task("The column to predict (table).")] = None,
    arithmetic: Annotated[str, _task("int8, int8x3 or float.")] = "int8",
    backward: Annotated[str, _task("The gradient's products: int8 or float.")] = "int8",
    width: Annotated[int | None, _task("Width of the model.", parser=_whole)] = None,
    layers: Annotated[int | None, _task("Layers of the model.", parser=_whole)] = None,
    sequence: Annotated[
        int | None, _task("Bytes a sample (text), tokens (spikewhale).", parser=_whole)
    ] = None,
    preset: Annotated[str | None, _whale("tiny, small, medium or published; sizes above change it.")] = None,
    heads: Annotated[int | None, _whale("Attention heads.", parser=_whole)] = None,
    without: Annotated[str, _whale("Parts to leave out, with commas: engram,refinement.")] = "",
    dataset: Annotated[str | None, _whale("Text from the Hugging Face hub: owner/name.")] = None,
    dataset_config: Annotated[str | None, _whale("Which configuration of the data set.")] = None,
    split: Annotated[str | None, _whale("Which split of it; train unless given.")] = None,
    column: Annotated[str | None, _whale("The column with the text; found unless given.")] = None,
    on_data_failure: Annotated[
        str | None, _whale("When the hub fails: stop, or go on with the embedded corpus: embedded.")
    ] = None,
    nodes: Annotated[int, _run("Nodes on this machine.", parser=_whole)] = 1,
    steps: Annotated[int, _run("Steps in all.", env="DAISY_STEPS", parser=_whole)] = limits.DEFAULT_STEPS,
    batch: Annotated[
        int | None, _run("Samples a step, by all nodes.", env="DAISY_BASE_BATCH", parser=_whole)
    ] = None,
    lr: Annotated[float | None, _run("Learning rate.", env="DAISY_LR", parser=_number)] = None,
    warmup: Annotated[int | None, _run("Steps over which the rate rises.", parser=_whole)] = None,
    optimizer: Annotated[str, _run("adam or sgd.", env="DAISY_OPTIMIZER")] = "adam",
    seed: Annotated[int, _run("Seed of weights and sample order.", parser=_whole)] = limits.DEFAULT_SEED,
    plan: Annotated[str, _run("Shares: measured (they follow the speeds) or equal.")] = "measured",
    device: Annotated[str, _run("auto, cpu, cuda or cuda:N.")] = "auto",
    name: Annotated[str | None, _run("Name of the run's folder.", eager=True)] = None,
    runs: Annotated[Path, _run("Where run folders are kept.", eager=True)] = RUNS,
    resume: Annotated[
        bool, _run("Go on with the run --name, or with the newest, as it began.", "--resume", eager=True)
    ] = False,
    recall: Annotated[bool, typer.Option("--recall", hidden=True, is_eager=True, callback=_recall)] = False,
    checkpoint_every: Annotated[
        int, _run("Steps between checkpoints.", parser=_whole)
    ] = limits.CHECKPOINT_EVERY_STEPS,
    status_file: Annotated[
        Path | None, _run("JSON file that shows the newest step.", env="DAISY_STATUS_FILE")
    ] = None,
    save: Annotated[Path | None, _run("Where to put the final model too.", env="DAISY_SAVE")] = None,
    as_json: Annotated[bool, _run("End with one JSON object on standard output.", "--json")] = False,
    node_lock: Annotated[
        Path | None,
        typer.Option("--node-lock", hidden=True, help="Held while this trains: one run a machine."),
    ] = None,
    master_addr: Annotated[str | None, _cluster("Address of rank 0 (MASTER_ADDR).")] = None,
    master_port: Annotated[
        int | None, _cluster("Its port, 29560 unless given (MASTER_PORT).", parser=_whole)
    ] = None,
    world_size: Annotated[int | None, _cluster("Number of nodes (WORLD_SIZE).", parser=_whole)] = None,
    rank: Annotated[int | None, _cluster("Which of them this is, from 0 (RANK).", parser=_whole)] = None,
    interface: Annotated[str | None, _cluster("Network interface (GLOO_SOCKET_IFNAME).")] = None,
    address: Annotated[str | None, _cluster("Address of this node; wins over the route.")] = None,
) -> None:
    """Train a model on the nodes of this machine, or as one node of a cluster."""
    listen_to_launcher()
    cluster = cluster_from_environment(
        os.environ,
        master_address=master_addr,
        master_port=master_port,
        world_size=world_size,
        rank=rank,
        interface=interface,
        address=address,
    )
    if node_lock is not None:
        rank = cluster.rank if cluster and os.environ.get(LAUNCHED) == "1" else None
        context.with_resource(
            take_node_lock(node_lock, name or task, runs / (name or ""), SystemClock(), rank)
        )
    if save and (save.is_dir() or not save.absolute().parent.is_dir()):
        raise ConfigError(f"--save {save} is a folder or lies in none; give the path of a file.")
    options = TaskOptions(
        data,
        target,
        seed,
        arithmetic,  # type: ignore[arg-type]
        backward,  # type: ignore[arg-type]
        width,
        layers,
        sequence,
        preset=preset,
        heads=heads,
        without=tuple(part.strip() for part in without.split(",") if part.strip()),
        dataset=dataset,
        dataset_config=dataset_config,
        split=split,
        column=column,
        on_data_failure=on_data_failure,  # type: ignore[arg-type]
    )
    loaded = load_task(task, options, quiet=os.environ.get(LAUNCHED) == "1")
    config = TrainConfig(
        steps=steps,
        batch_samples=loaded.batch_samples if batch is None else batch,
        learning_rate=loaded.learning_rate if lr is None else lr,
        warmup_steps=loaded.warmup_steps if warmup is None else warmup,
        optimizer=optimizer,
        seed=seed,
        arithmetic="float" if task.endswith("-float") else arithmetic,
        checkpoint_every_steps=checkpoint_every,
        plan=plan,  # type: ignore[arg-type]
    )
    request = RunRequest(
        task, options, config, choose_device(device), cluster, runs, name, resume, status_file
    )
    if isinstance(loaded, SpikeWhaleTask) and os.environ.get(LAUNCHED) != "1":
        in_all, here = (nodes, nodes) if cluster is None else (cluster.world_size, 1)
        check_memory(loaded.config, config.batch_samples, in_all, here, request.device.device)
    if cluster is None and nodes != 1:
        raise typer.Exit(_launch(nodes, context.obj[1:], loaded, request))
    with show.Progress(config, quiet=not request.leads) as progress:
        summary = run_node(loaded, request, progress.step)
    if not request.leads:
        say(f"done at step {summary.steps}, state {summary.state_hashes[0][:16]}…")
        return
    kernel = kernels.default(request.device.device.type).name
    show.summary(summary, loaded, kernel)
    if as_json:
        print(json.dumps(show.as_json(summary, loaded, kernel)), flush=True)
    if save and summary.model:
        write_atomic(save, summary.model.read_bytes())


def _launch(nodes: int, arguments: Sequence[str], task: Task, request: RunRequest) -> int:
    """Run the same command as `nodes` children that share one folder; their exit code."""
    check_local_nodes(nodes)
    try_quietly(task, max(1, request.config.batch_samples // nodes), request.device.device)
    with open_folder(request) as folder:
        if request.resume:
            resume_point(folder)
        folder.unlock()  # for the first of them
        command = train_command([*arguments, "--name", folder.path.name])
        return launch_local(nodes, command, folder.path)
