"""`daisychain verify` and `daisychain units train`: the proof that everything else stands on."""

import json
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.table import Table

from daisychain.base import limits
from daisychain.cli.show import console
from daisychain.kernels import Kernels, Verdict
from daisychain.units import Certificate, verify_units
from daisychain.units.training import train_units

app = typer.Typer(help="The trained 8-bit units.", no_args_is_help=True)


@app.callback()
def _units() -> None:
    """The trained 8-bit units."""


@app.command("train")
def train(
    out: Annotated[Path, typer.Option(help="Folder for the weights.")] = Path("units"),
    seed: Annotated[int, typer.Option(help="Seed of the first attempt.")] = limits.DEFAULT_SEED,
) -> None:
    """Train the nets for multiply, requantise and ReLU from scratch; saved only if right on their whole domains."""
    nets = train_units(out, seed)
    for certificate in verify_units(nets):
        if certificate.path == "batched":
            print(f"{certificate.unit}: {certificate.right}/{certificate.total}")


def verify(
    as_json: Annotated[bool, typer.Option("--json", help="End with one JSON object.")] = False,
) -> None:
    """Check every unit on its complete domain and every kernel backend bit for bit; exit code 1 if a check fails."""
    torch.set_num_threads(1)
    certificates = verify_units()
    kernels = Kernels()
    verdicts = [kernels.prove(name) for name in kernels.backends]
    timed = kernels.time([v.name for v in verdicts if v.admitted and not kernels.backends[v.name].for_proof])
    ratios = {v.name: v.ratio for v in timed}
    _show(certificates, verdicts, ratios)
    right = all(c.complete for c in certificates) and any(v.admitted for v in verdicts)
    if as_json:
        print(json.dumps({"ok": right, **_as_json(certificates, verdicts, ratios)}), flush=True)
    raise typer.Exit(0 if right else 1)


def _show(certificates: list[Certificate], verdicts: list[Verdict], ratios: dict[str, float | None]) -> None:
    units = Table(
        "unit", "path", "right", title="units, on their complete domains", box=None, title_justify="left"
    )
    for c in certificates:
        units.add_row(c.unit, c.path, f"{c.right:,}/{c.total:,}")
    backends = Table(
        "backend", "verdict", "time ÷ float32, one thread", box=None, title="kernels", title_justify="left"
    )
    for v in verdicts:
        ratio = ratios.get(v.name)
        speed = "for proof, not timed" if ratio is None and v.admitted else f"{ratio:.2f}" if ratio else ""
        backends.add_row(v.name, v.reason, speed)
    console.print(units)
    console.print(backends)


def _as_json(
    certificates: list[Certificate], verdicts: list[Verdict], ratios: dict[str, float | None]
) -> dict[str, Any]:
    return {
        "units": [{"unit": c.unit, "path": c.path, "right": c.right, "total": c.total} for c in certificates],
        "backends": [
            {
                "backend": v.name,
                "admitted": v.admitted,
                "reason": v.reason,
                "ratio_to_float32": ratios.get(v.name),
            }
            for v in verdicts
        ],
    }
