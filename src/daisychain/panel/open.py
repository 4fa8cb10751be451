"""Put the pages together and serve them."""

from __future__ import annotations

from pathlib import Path

from daisychain.agent.view import FleetState
from daisychain.base.log import say
from daisychain.cluster.fleet.network import is_loopback, open_listener, own_urls
from daisychain.panel.access import Access, choose_access
from daisychain.panel.app import create_app
from daisychain.panel.context import PanelContext
from daisychain.panel.jobs import Jobs
from daisychain.panel.serve import serve
from daisychain.panel.watch import Watches


def open_panel(host: str, port: int, runs: Path, token: str | None, door: str) -> None:
    """Serve the pages until somebody ends it. Raises ConfigError for an address or a token that cannot be used."""
    access = choose_access(is_loopback(host), token)
    with open_listener(host, port) as listener:
        here = _own_url(host, port)
        others = [url for url in own_urls(host, port) if url != here]
        runs = runs.absolute()
        context = PanelContext(
            runs=runs,
            fleet=FleetState(),
            jobs=Jobs(runs, local=access.local),
            watch=Watches(),
            local=access.local,
            url=(others or [here])[0],
            has_token=access.token is not None,
        )
        app = create_app(context, access)
        serve(app, listener, lambda: _say_where(here, others, door, runs, access))
    say("\nThe pages are closed. A run that they started goes on.")


def _own_url(host: str, port: int) -> str:
    """For this machine's own browser."""
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _say_where(here: str, others: list[str], door: str, runs: Path, access: Access) -> None:
    query = f"?token={access.token}" if access.token else ""
    say(f"this machine   {here}{door}{query}")
    for url in others:
        say(f"this network   {url}{door}{query}")
    say(f"runs           {runs}")
    if access.token:
        say(f"agents         daisychain agent --dashboard {(others or [here])[0]} --token {access.token}")
        say(
            "security       plain HTTP: whoever can listen on this network can read the token; use one you trust"
        )
    else:
        say(
            "security       only this machine can open these pages; --host 0.0.0.0 lets others in, with a token"
        )
    say("Ctrl-C closes the pages; runs go on.")
