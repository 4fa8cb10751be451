"""The fleet as pages see it: the state, its cells, and what the banner says. All pure."""

from daisychain.agent.fleet import FleetState, Matrix, NodeView, Pool
from daisychain.agent.links import BLOCKED, DEAD, REACHABLE, SELF, SLOW, STATES, UNKNOWN, Cell
from daisychain.agent.readiness import BAD, OK, WARN, Finding, readiness
from daisychain.agent.report import Probe, Report

__all__ = [
    "BAD", "BLOCKED", "DEAD", "OK", "REACHABLE", "SELF", "SLOW", "STATES", "UNKNOWN", "WARN",
    "Cell", "Finding", "FleetState", "Matrix", "NodeView", "Pool", "Probe", "Report", "readiness",
]  # fmt: skip
