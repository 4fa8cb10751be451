"""The control panel's page: one person's view of it, from settings over a run to its end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from nicegui import ui

from daisychain.base import limits
from daisychain.base.errors import DaisyError
from daisychain.cluster.storage.history import list_runs
from daisychain.cluster.storage.run_folder import read_config
from daisychain.panel.context import PanelContext
from daisychain.panel.frame import frame
from daisychain.panel.jobs import Job, Jobs
from daisychain.panel.request import JobRequest
from daisychain.panel.train import state as machine
from daisychain.panel.train.draft import COOKIE, Draft
from daisychain.panel.train.field import Field
from daisychain.panel.train.running import EndedScreen, RunScreen
from daisychain.panel.train.settings import SettingsScreen
from daisychain.panel.train.sizing import Sizer
from daisychain.panel.train.state import Screen, Sight, State
from daisychain.panel.train.writing import Writer

COOKIE_DAYS = 365


class TrainPage:
    """Holds the state and the draft; screens draw them and call back. One for every open page."""

    def __init__(self, context: PanelContext, sizer: Sizer, writer: Writer) -> None:
        self.context = context
        self.jobs: Jobs = context.jobs
        self.sizer = sizer
        self.writer = writer
        self.state = State()
        self.job: Job | None = None
        self.unfit: str | None = None
        self.most_nodes = max(2, min(limits.PANEL_MAX_NODES, os.cpu_count() or 1))
        self._client = ui.context.client
        request = self._client.request
        cookie = request.cookies.get(COOKIE, "") if request else ""
        self.draft = Draft.of_cookie(cookie, local=context.local)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._screen: SettingsScreen | RunScreen | EndedScreen | None = None

    async def build(self) -> None:
        """Show what there is to show, and follow it."""
        self.state = machine.look(await self._first(), await self._see())
        with frame(self.context, "Train", here="/train"):
            self._place = ui.element("div").classes("stack")
            self.render()
            ui.timer(limits.VIEW_EVERY_S, self._look, immediate=False)

    async def _first(self) -> State:
        """The settings; or the end of the run that the address names with `?run=`."""
        request = self._client.request
        name = request.query_params.get("run") if request else None
        ending = await asyncio.to_thread(self.jobs.ended_run, name) if name else None
        if name is None or ending is None:
            return State()
        self.job = self.jobs.get(name)
        return State(screen=Screen.ENDED, run=name, ending=ending)

    def render(self) -> None:
        """Draw the screen of the state anew."""
        self._place.clear()
        with self._place:
            screen, run = self.state.screen, self.state.run
            if screen is Screen.RUN and run:
                self._screen = RunScreen(self, run)
            elif screen is Screen.ENDED and run:
                self._screen = EndedScreen(self, run)
            else:
                self._screen = SettingsScreen(self)

    def keep_settings(self) -> None:
        """Let the browser remember them."""
        value = self.draft.as_cookie()
        age_s = COOKIE_DAYS * 86_400 if value else 0
        self._client.run_javascript(
            f"document.cookie = '{COOKIE}={value}; path=/train; max-age={age_s}; SameSite=Strict'"
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the page, until it is done."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # What a person does

    async def start(self) -> None:
        """Start what the settings say."""
        try:
            request = self.draft.request()
        except DaisyError as error:
            self._move(machine.refused(self.state, str(error)))
            return
        if not machine.start_trouble(self.state, self.unfit, None):
            await self.begin(request)

    async def begin(self, request: JobRequest) -> None:
        """Start a trainer, or say why not."""
        if self.state.starting:
            return
        self._move(machine.start_pressed(self.state))
        try:
            self.job = await asyncio.to_thread(self.jobs.start, request)
        except (DaisyError, OSError) as error:
            self._move(machine.refused(self.state, str(error)))
            return
        self._move(machine.started(self.state, self.job.name))

    async def go_on(self, name: str, steps: str, field: Field) -> None:
        """Go on with a run up to a step."""
        _, done = self.steps_of(name)
        if int(steps) <= done:
            field.tell(error=f"{done:,} steps are done; give more, up to which it goes on.")
            return
        try:
            nodes = self._nodes_of(name)
            request = JobRequest(resume=name, steps=int(steps), nodes=min(nodes, self.most_nodes))
        except DaisyError as error:
            field.tell(error=str(error))
            return
        await self.begin(request)

    async def stop(self) -> None:
        """Ask the run that is shown to stop; by force where that was asked before."""
        if self.state.run is None:
            return
        try:
            text = await asyncio.to_thread(self.jobs.stop, self.state.run)
        except DaisyError as error:
            text = str(error)
        self._move(replace(self.state, notice=text))
        await self._look()

    def back(self) -> None:
        """To the settings, with those of the run, if a form made them."""
        if self.job is not None and self.job.name == self.state.run:
            self.draft.take(self.job.request)
        self._move(machine.back(self.state))

    def show(self) -> None:
        """To the run that goes on."""
        self._move(machine.show(self.state))

    # What is known of runs

    def task_of(self, name: str) -> str:
        """The task of a run, without `-float`; empty where it is not known."""
        task = read_config(self.context.runs / name).get("task")
        return task.removesuffix("-float") if isinstance(task, str) else ""

    def steps_of(self, name: str) -> tuple[int, int]:
        """Steps of a run in all, and done."""
        for run in list_runs(self.context.runs):
            if run.name == name:
                return run.steps, run.step
        return 0, 0

    def _nodes_of(self, name: str) -> int:
        return next((max(1, run.nodes) for run in list_runs(self.context.runs) if run.name == name), 1)

    async def _look(self) -> None:
        shown = self.state.run
        sight = await self._see()
        if self.state.run != shown:  # a person was quicker, and what was seen is of another run
            sight = replace(sight, ending=None)
        self._move(machine.look(self.state, sight))

    async def _see(self) -> Sight:
        """What runs on this machine now; the disk is asked in a thread."""
        shown = self.state.run

        def see() -> tuple[Job | None, Sight]:
            job = self.jobs.running()
            asked = None
            if job is not None and job.stop_asked_s is not None:
                asked = self.jobs.asked_ago_s(job)
            ending = self.jobs.ending(shown) if shown and (job is None or job.name != shown) else None
            busy = self.jobs.busy()
            return job, Sight(job.name if job else None, asked, busy, ending)

        job, sight = await asyncio.to_thread(see)
        if job is not None:
            self.job = job
        return sight

    def _move(self, state: State) -> None:
        """To another state: drawn anew where it is another screen, brought up to date where it is not."""
        before, self.state = self.state, state
        if (before.screen, before.run) != (state.screen, state.run):
            self.render()
        elif self._screen is not None:
            self._screen.refresh()
