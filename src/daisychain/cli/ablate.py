"""`daisychain ablate`: what each part of SpikeWhale is worth, in one table."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from daisychain.base import limits
from daisychain.base.errors import ConfigError
from daisychain.cluster.config import TrainConfig
from daisychain.cluster.fleet import SoloFleet
from daisychain.cluster.trainer import Trainer
from daisychain.data.packed import PackedText, open_tokens
from daisychain.data.source import TextChoice
from daisychain.nn.spikewhale import PARTS, config_for
from daisychain.tasks.ablation import BARE, FLOAT, PLAIN, WHOLE, AblationTask, Result, Variant, variants

console = Console(stderr=True, highlight=False)


def ablate(
    steps: Annotated[int, typer.Option(min=1, help="Of each run.")] = limits.DEFAULT_STEPS,
    seeds: Annotated[int, typer.Option(min=1, max=limits.ABLATION_MAX_SEEDS, help="Runs of each model.")] = 1,
    data: Annotated[
        Path | None, typer.Option(help="A text file or folder; the embedded corpus unless given.")
    ] = None,
    preset: Annotated[str, typer.Option(help="Which model: tiny, small, medium or published.")] = "tiny",
    only: Annotated[
        str, typer.Option(help="Some models, with commas: whole,float,plain,bare or names of parts.")
    ] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON object on standard output.")
    ] = False,
) -> None:
    """Train SpikeWhale whole, in float, with each part off and all, and a plain transformer of its size; compare."""
    config = config_for(preset)
    chosen = _chosen(variants(config), only)
    text = open_tokens(TextChoice(path=data), config.sequence, limits.DEFAULT_SEED)
    for note in text.notes:
        console.print(note)
    console.print(
        f"{len(chosen)} models, {seeds} run{'s' * (seeds > 1)} of {steps} steps each; loss in nats a token on "
        f"{len(text.held_out())} windows of {config.sequence} tokens held out"
    )
    results = [_measured(variant, text, steps, seeds) for variant in chosen]
    Console(highlight=False).print(table(results))
    if as_json:
        made = {"steps": steps, "seeds": seeds, "preset": preset, "models": [r.as_json() for r in results]}
        print(json.dumps(made), flush=True)


def _chosen(every: Sequence[Variant], only: str) -> list[Variant]:
    """The variants that a list of short names stands for; the whole is always there to compare with."""
    names = [name.strip() for name in only.split(",") if name.strip()]
    short = {"whole": WHOLE, "float": FLOAT, "plain": PLAIN, "bare": BARE} | {
        part: f"without {part}" for part in PARTS
    }
    for name in names:
        if name not in short:
            raise ConfigError(f"--only {name!r:.60} is not known; use {', '.join(short)}.")
    wanted = {WHOLE, *(short[name] for name in names)}
    return [variant for variant in every if not names or variant.name in wanted]


def _measured(variant: Variant, text: PackedText, steps: int, seeds: int) -> Result:
    """Train a variant once a seed."""
    losses, spent_s, parameters = [], 0.0, 0
    for seed in range(seeds):
        task = AblationTask(variant, text, seed)
        config = TrainConfig(
            steps=steps,
            batch_samples=task.batch_samples,
            learning_rate=task.learning_rate,
            warmup_steps=task.warmup_steps,
            seed=seed,
        )
        trainer = Trainer(task, variant.name, SoloFleet(), config)
        start_s = time.perf_counter()
        losses.append(trainer.run().metrics[task.metric])
        spent_s += time.perf_counter() - start_s
        parameters = trainer.replica.flat.size
        console.print(f"{variant.name}, seed {seed}: {losses[-1]:.4f}")
    return Result(variant.name, parameters, losses, 1_000 * spent_s / (steps * seeds))


def table(results: Sequence[Result]) -> Table:
    """A row a variant; what a part is worth is how much more the model loses without it."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("model", no_wrap=True)
    for heading in ("parameters", "held-out loss", "more than the whole", "ms a step"):
        shown.add_column(heading, justify="right")
    for result in results:
        same = result.name == results[0].name
        shown.add_row(
            result.name,
            f"{result.parameters:,}",
            _with_spread(result.mean, result.spread, ""),
            "" if same else _with_spread(*result.against(results[0]), "+"),
            f"{result.step_ms:.0f}",
        )
    return shown


def _with_spread(mean: float, spread: float | None, sign: str) -> str:
    """`5.2569 ± 0.012`, or without a spread where there was one run."""
    return f"{mean:{sign}.4f}" + ("" if spread is None else f" ± {spread:.4f}")
