"""The control panel: choose a model and a text, train, watch, stop, and let the model write."""

from __future__ import annotations

from fastapi import FastAPI
from nicegui import ui
from starlette.staticfiles import StaticFiles

from daisychain.panel.context import PanelContext
from daisychain.panel.train.page import TrainPage
from daisychain.panel.train.routes import STYLE_ROUTE, STYLES, body_limit, upload_route
from daisychain.panel.train.sizing import Sizer
from daisychain.panel.train.writing import Writer

__all__ = ["add_pages", "body_limit"]


def add_pages(app: FastAPI, context: PanelContext) -> None:
    """The page /train, and what it needs."""
    sizer, writer = Sizer(), Writer()
    app.router.routes.append(upload_route(context.jobs.uploads))
    app.mount(STYLE_ROUTE, StaticFiles(directory=STYLES))

    @ui.page("/train")
    async def train() -> None:
        ui.add_head_html(f'<link rel="stylesheet" href="{STYLE_ROUTE}/train.css">')
        await TrainPage(context, sizer, writer).build()
