"""The agent of one node: reports to the dashboard, dials the others, and answers their dials, until it is ended."""

import asyncio
import contextlib
import secrets
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import psutil

from daisychain.agent import machine, probe
from daisychain.agent.answer import Answer
from daisychain.agent.post import Dashboard, UnansweredError, post_report
from daisychain.agent.prober import Prober
from daisychain.agent.reading import one_line
from daisychain.agent.report import Report, message_text
from daisychain.agent.survey import Survey, survey_in_process
from daisychain.base import limits
from daisychain.base.errors import ConfigError, FleetError
from daisychain.base.log import say
from daisychain.cluster.fleet.network import Choice, choose_address, port_owner

T = TypeVar("T")
#: The request has its own limit; a look-up of the dashboard's name comes before it.
THREAD_LIMIT_S = 3 * limits.AGENT_REPORT_LIMIT_S


@dataclass(frozen=True)
class AgentSettings:
    """What an agent is started with. `probe_port` None is the usual port, or a free one where that is taken."""

    dashboard: Dashboard
    token: str | None = None
    name: str | None = None  # the host's unless given
    address: str | None = None  # by the route to the dashboard unless given
    probe_port: int | None = None
    prove: bool = True  # False where only the links matter, as in tests; the report says so


class Agent:
    """One agent. `run` returns never, or raises ConfigError where trying again is of no use."""

    def __init__(
        self,
        settings: AgentSettings,
        survey: Callable[[], Awaitable[Survey]] = survey_in_process,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._survey_machine = survey
        self._clock = clock
        self._instance = secrets.token_hex(8)
        self._sequence = 0
        self._survey = Survey()
        self._answering = probe.ProbeServer(self._instance)
        self._prober = Prober(clock)
        self._choice: Choice | None = None  # the address that is given to the others
        self._server: asyncio.Server | None = None
        self._address = ""  # on which that listens
        self._said = ""

    async def run(self) -> None:
        """Report, dial and answer. Raises ConfigError."""
        tasks = [
            asyncio.create_task(job())
            for job in (self._report_always, self._look_at_machine, self._prober.run)
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._close_port()

    async def _look_at_machine(self) -> None:
        if not self._settings.prove:
            self._survey = Survey(backend_reason="not proven: it was started so")
            return
        self._survey = await self._survey_machine()
        say(f"this machine: device {self._survey.device or 'none'}, kernel {self._survey.backend_reason}")

    async def _report_always(self) -> None:
        wait_s = limits.AGENT_REPORT_EVERY_S
        while True:
            try:
                self._take(await self._report())
                wait_s = limits.AGENT_REPORT_EVERY_S
            except UnansweredError as error:
                url = self._settings.dashboard.url
                self._say_once(f"no report to {url} yet: {error}; trying again until it works")
                wait_s = min(limits.AGENT_RETRY_MAX_S, 2 * wait_s)
                self._choice = None  # the network may have changed
            await asyncio.sleep(wait_s)

    async def _report(self) -> Answer:
        """One report. Raises UnansweredError and ConfigError."""
        await self._open_port()
        body = message_text(self._own_report(), self._prober.unsent())
        settings = self._settings
        answer = await in_thread(lambda: post_report(settings.dashboard, settings.token, body))
        self._prober.sent()
        return answer

    def _take(self, answer: Answer) -> None:
        assert self._choice is not None
        self._answering.secret = answer.secret
        self._prober.update(answer)
        self._say_once(
            f"reporting to {self._settings.dashboard.url} as {self._name}; the other nodes are told "
            f"{self._choice} (port {self._port})"
        )

    def _own_report(self) -> Report:
        assert self._choice is not None
        self._sequence += 1
        memory = psutil.virtual_memory()
        return Report(
            name=self._name,
            host=machine.host_name(),
            instance=self._instance,
            sequence=self._sequence,
            version=machine.version(),
            time_s=time.time(),
            address=self._choice.address,
            address_reason=one_line(self._choice.reason),
            probe_port=self._port,
            cores=machine.cores(),
            memory_bytes=memory.total,
            memory_free_bytes=memory.available,
            proof=self._survey.proof,
            device=self._survey.device,
            device_reason=self._survey.device_reason,
            backend=self._survey.backend,
            backend_reason=self._survey.backend_reason,
            load=machine.load(),
            busy_fraction=machine.busy_fraction(),
            temperature_c=machine.temperature_c(),
            interface=one_line(self._choice.interface, limits.AGENT_NAME_CHARACTERS),
            link_mbit_s=machine.link_mbit_s(self._choice.interface),
        )

    @property
    def _name(self) -> str:
        return self._settings.name or machine.host_name()

    # The address that others dial, and the port on it

    async def _open_port(self) -> None:
        """Choose the address unless that is done, and listen there. Raises UnansweredError and ConfigError."""
        if self._choice is not None:
            return
        dashboard = self._settings.dashboard
        try:
            choice = await in_thread(
                lambda: choose_address(dashboard.host, dashboard.port, address=self._settings.address)
            )
        except FleetError:
            raise UnansweredError(f"this machine knows no way to {dashboard.host}") from None
        if self._server is None or self._address != choice.address:
            self._close_port()
            self._server = await self._listen(choice.address)
            self._address = choice.address
        self._choice = choice

    async def _listen(self, address: str) -> asyncio.Server:
        wanted = self._settings.probe_port
        port = limits.AGENT_PROBE_PORT if wanted is None else wanted
        try:
            return await probe.listen(address, port, self._answering.serve)
        except OSError as error:
            owner = port_owner(port)
            reason = (
                f"is in use by {owner}"
                if owner
                else f"cannot be opened on {address} ({error.strerror or error})"
            )
            if wanted is not None:
                raise ConfigError(f"port {port} {reason}: choose another --probe-port") from None
        try:
            server = await probe.listen(address, 0, self._answering.serve)
        except OSError as error:
            raise UnansweredError(f"no port can be opened on {address} ({error.strerror or error})") from None
        say(f"port {port} {reason}: the other nodes are told {_port_of(server)} instead")
        return server

    def _close_port(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    @property
    def _port(self) -> int:
        assert self._server is not None
        return _port_of(self._server)

    def _say_once(self, text: str) -> None:
        """Say what has changed; a state that lasts is said once."""
        if text != self._said:
            self._said = text
            say(text)


def _port_of(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


async def in_thread(work: Callable[[], T], limit_s: float = THREAD_LIMIT_S) -> T:
    """The result of blocking work, done in a thread that does not keep the process from ending.

    Raises UnansweredError after `limit_s`: a look-up of a name cannot be told to hurry.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(act: Callable[[Any], None], value: Any) -> None:
        if not done.done():
            act(value)

    def body() -> None:
        act: Callable[[Any], None]
        value: Any
        try:
            act, value = done.set_result, work()
        except Exception as error:  # handed to whoever waits
            act, value = done.set_exception, error
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, act, value)

    threading.Thread(target=body, name="report", daemon=True).start()
    try:
        return await asyncio.wait_for(done, limit_s)
    except asyncio.TimeoutError:
        raise UnansweredError("no answer in time") from None
