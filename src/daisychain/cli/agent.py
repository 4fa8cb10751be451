"""`daisychain agent`: what runs on every machine so that the dashboard sees it."""

import os
import sys
from typing import Annotated

import typer

from daisychain.agent.__main__ import MODULE, run_agent, to_environment
from daisychain.agent.post import parse_dashboard
from daisychain.agent.report import is_name
from daisychain.agent.service import AgentSettings
from daisychain.base import limits
from daisychain.base.errors import ConfigError
from daisychain.cluster.fleet.network import choose_address

HERE = f"http://127.0.0.1:{limits.DASHBOARD_PORT}"


def agent(
    dashboard: Annotated[str, typer.Option(help="Address of the dashboard, which need not run yet.")] = HERE,
    token: Annotated[
        str | None, typer.Option(envvar="DAISY_TOKEN", help="The one that the dashboard showed, if it did.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of this node; the machine's unless given.")] = None,
    address: Annotated[
        str | None, typer.Option(help="At which the other nodes reach this one; by the route unless given.")
    ] = None,
    probe_port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65_535, help=f"On which it answers the others; {limits.AGENT_PROBE_PORT} unless given."
        ),
    ] = None,
) -> None:
    """Show this machine on the dashboard, and measure its links, until Ctrl-C."""
    settings = AgentSettings(parse_dashboard(dashboard), _checked_token(token), name, address, probe_port)
    if name is not None and not is_name(name):
        raise ConfigError(
            f"--name is {name!r}: 1 to {limits.AGENT_NAME_CHARACTERS} printable characters are needed"
        )
    if address is not None:
        choose_address(settings.dashboard.host, settings.dashboard.port, address=address)
    if os.name == "posix":  # where a process can become another one
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(sys.executable, [sys.executable, "-m", MODULE], {**os.environ, **to_environment(settings)})
    run_agent(settings)


def _checked_token(token: str | None) -> str | None:
    if token is not None and not (token.isascii() and token.isprintable() and token == token.strip()):
        raise ConfigError("the token holds characters that no token has: copy it again from the dashboard")
    return token or None
