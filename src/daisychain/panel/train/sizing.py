"""What a model will take, found out beside the page: counted and estimated in a thread, the machine measured once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import psutil

from daisychain.base.errors import DaisyError
from daisychain.cluster.estimate import Estimate, Rate, estimate, fits, measure_rate
from daisychain.nn.spikewhale import SpikeWhaleConfig


@dataclass(frozen=True)
class Sizing:
    """`unfit` says why it cannot be trained here, or is None; `steps_s` is all steps together, None while unknown."""

    estimate: Estimate | None = None
    free_bytes: int = 0
    nodes: int = 1
    steps_s: float | None = None
    unfit: str | None = None


class Sizer:
    """One for all pages: the rate of this machine is measured when it is first asked for, and kept.

    It has threads of its own, so that nothing else of the pages ever waits behind it.
    """

    def __init__(self) -> None:
        self._rate: Rate | None = None
        self._reckoning = ThreadPoolExecutor(1, "sizing")
        self._measuring = ThreadPoolExecutor(1, "measuring")
        self._measured: asyncio.Future[None] | None = None

    async def size(
        self, config: SpikeWhaleConfig, batch: int, nodes: int, steps: int, wanted: Callable[[], bool]
    ) -> Sizing | None:
        """Without times as long as there is no rate. None where it is not `wanted` any more when its turn comes."""
        return await asyncio.get_running_loop().run_in_executor(
            self._reckoning, lambda: self._size(config, batch, nodes, steps) if wanted() else None
        )

    @property
    def measured(self) -> bool:
        """Whether it is known how fast this machine is."""
        return self._rate is not None

    async def measure(self) -> bool:
        """Measure the machine, unless that was done. Whether there is a rate now that was not there before.

        Some seconds of work; not while a run goes on, which would lose by it, and spoil it.
        """
        if self._rate is not None:
            return False
        if self._measured is None:
            loop = asyncio.get_running_loop()
            self._measured = loop.run_in_executor(self._measuring, self._measure)
        await asyncio.shield(self._measured)
        return self._rate is not None

    def _size(self, config: SpikeWhaleConfig, batch: int, nodes: int, steps: int) -> Sizing:
        free_bytes = psutil.virtual_memory().available
        try:
            found = estimate(config, batch, nodes, self._rate)
        except DaisyError as error:
            return Sizing(free_bytes=free_bytes, nodes=nodes, unfit=str(error))
        unfit = on_the_page(fits(found, free_bytes, nodes), found)
        total_s = None if found.step_s is None else found.step_s * steps
        return Sizing(found, free_bytes, nodes, total_s, unfit)

    def _measure(self) -> None:
        try:
            self._rate = measure_rate()
        except DaisyError:
            return  # no kernel passes here; a run says so, in its own words


def on_the_page(unfit: str | None, found: Estimate) -> str | None:
    """Why a model does not fit, without what the page shows beside it, and without the flags of a terminal."""
    return unfit and unfit.replace(f" ({found.why})", "").replace(" (--batch)", "").replace("--", "")
