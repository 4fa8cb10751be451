"""The application: every page, the files they need, the agents' door, and who may come in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from fastapi import FastAPI
from nicegui import ui
from starlette.requests import Request
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from daisychain.agent.routes import routes as agent_routes
from daisychain.base import limits
from daisychain.cluster.storage.cleaning import WORKING
from daisychain.cluster.storage.history import list_runs
from daisychain.panel import pages, theme, train
from daisychain.panel.access import Access
from daisychain.panel.context import PanelContext
from daisychain.panel.downloads import download_route
from daisychain.panel.guard import Guard


def create_app(context: PanelContext, access: Access) -> ASGIApp:
    """Everything behind the guard. NiceGUI's pages belong to the process, so there is one application a process."""

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(_keep_links_quiet(context))
        yield
        watching.cancel()

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.mount(theme.ROUTE, StaticFiles(directory=theme.STATIC))
    app.router.routes.extend(agent_routes(context.fleet))
    app.router.routes.append(download_route(context.runs))
    _add_pages(context)
    train.add_pages(app, context)
    ui.run_with(
        app,
        title="DaisyChain",
        favicon=theme.STATIC / "daisy.svg",
        dark=None,  # as the system has it; theme.js takes over
        language="en-US",
        tailwind=False,
        reconnect_timeout=limits.PANEL_RECONNECT_S,
        message_history_length=100,
        show_welcome_message=False,
    )
    return Guard(app, access, train.body_limit)


def _add_pages(context: PanelContext) -> None:
    @ui.page("/")
    def fleet() -> None:
        pages.fleet_page(context)

    @ui.page("/runs")
    def runs() -> None:
        pages.runs_page(context)

    @ui.page("/runs/{name}")
    def run(name: str) -> None:
        pages.run_page(context, name)

    @ui.page("/compare")
    def compare(request: Request) -> None:
        query = request.query_params
        names = [*query.getlist("run"), *(name for name in query.get("runs", "").split(",") if name)]
        pages.compare_page(context, names)


async def _keep_links_quiet(context: PanelContext) -> None:
    """While a run goes on, agents measure no bandwidth: that would take from the run."""
    while True:
        runs = await asyncio.to_thread(list_runs, context.runs)
        context.fleet.quiet = any(run.phase in WORKING for run in runs)
        await asyncio.sleep(limits.QUIET_LOOK_EVERY_S)
