"""`daisychain dashboard` and `daisychain panel`: the same pages, opened at the fleet or at the control panel."""

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from daisychain.base import limits
from daisychain.base.errors import ConfigError
from daisychain.cluster.storage.run_folder import RUNS

Host = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is every one, and needs a token.")]
Runs = Annotated[Path, typer.Option(help="The folder of all runs.")]
Token = Annotated[
    str | None,
    typer.Option(envvar="DAISY_TOKEN", help="What other machines must know; drawn if you give none."),
]


def dashboard(
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65_535)] = limits.DASHBOARD_PORT,
    runs: Runs = RUNS,
    token: Token = None,
) -> None:
    """Watch your machines and runs in a browser."""
    _serve(host, port, runs, token, "/")


def panel(
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65_535)] = limits.PANEL_PORT,
    runs: Runs = RUNS,
    token: Token = None,
) -> None:
    """Choose a model and a data set in a browser, and train."""
    _serve(host, port, runs, token, "/train")


def _serve(host: str, port: int, runs: Path, token: str | None, door: str) -> None:
    if importlib.util.find_spec("nicegui") is None:
        raise ConfigError("the pages need nicegui: run pip install 'daisychain[panel]'")
    from daisychain.panel.open import open_panel

    open_panel(host, port, runs, token, door)
