"""The fleet as a page shows it: made once for everybody who looks, and the less often the longer it takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from daisychain.agent.view import FleetState, readiness
from daisychain.base import limits
from daisychain.panel import fleet_parts
from daisychain.panel.markup import Markup


@dataclass(frozen=True)
class FleetMarkup:
    """The parts of the page, and of how many nodes."""

    nodes: int
    banner: Markup
    pool: Markup
    machines: Markup
    matrix: Markup


class FleetShown:
    """Remembers what it made last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due_s = -math.inf
        self._made: FleetMarkup | None = None

    def look(self, fleet: FleetState) -> FleetMarkup | None:
        """The newest there is; None where no node reports."""
        now_s = self._clock()
        if now_s >= self._due_s:
            self._made = _made_of(fleet, now_s)
            took_s = self._clock() - now_s
            wait_s = min(limits.FLEET_VIEW_MOST_S, took_s / limits.FLEET_VIEW_SHARE)
            self._due_s = now_s + max(wait_s, limits.VIEW_EVERY_S / 2)  # a viewer's next look finds another
        return self._made


def _made_of(fleet: FleetState, now_s: float) -> FleetMarkup | None:
    nodes = fleet.nodes(now_s)
    if not nodes:
        return None
    return FleetMarkup(
        len(nodes),
        fleet_parts.banner(readiness(fleet, now_s)),
        fleet_parts.pool(fleet.pool(now_s)),
        fleet_parts.machines(nodes),
        fleet_parts.matrix(fleet.matrix(now_s)),
    )
