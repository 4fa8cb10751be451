"""What every page works with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from daisychain.panel.fleet_shown import FleetShown
from daisychain.panel.watch import Watches

if TYPE_CHECKING:
    from daisychain.agent.view import FleetState
    from daisychain.panel.jobs import Jobs


@dataclass(frozen=True)
class PanelContext:
    """`runs` is the folder of all runs; `local` says that only this machine can open the pages."""

    runs: Path
    fleet: FleetState
    jobs: Jobs
    watch: Watches
    local: bool = True
    fleet_shown: FleetShown = field(default_factory=FleetShown)
    url: str = ""  # of these pages, for the commands they show
    has_token: bool = False  # whether who opens the pages has to know one
