"""What this machine is and how busy it is, without torch."""

import os
import socket
from functools import lru_cache
from importlib import metadata

import psutil

from daisychain.agent.reading import one_line
from daisychain.base import limits

#: The sensors of processors, as the drivers of different makers call them; the hottest counts.
PROCESSOR_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal", "soc_thermal", "acpitz")


def host_name() -> str:
    return one_line(socket.gethostname(), limits.AGENT_NAME_CHARACTERS) or "node"


@lru_cache
def version() -> str:
    return metadata.version("daisychain")


def cores() -> int:
    """Physical cores, or as many as this process may use where that is fewer."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count() or 1
    return max(1, min(usable, psutil.cpu_count(logical=False) or usable))


def temperature_c() -> float | None:
    """Of the hottest processor sensor, where the system shows one."""
    if not hasattr(psutil, "sensors_temperatures"):  # only on Linux and FreeBSD
        return None
    try:
        sensors = psutil.sensors_temperatures()
    except (OSError, ValueError):  # a driver's files may hold anything
        return None
    found = [
        entry.current
        for name in PROCESSOR_SENSORS
        for entry in sensors.get(name, [])
        if entry.current is not None and 0 < entry.current < 150  # others are a driver's nonsense
    ]
    return max(found, default=None)


def link_mbit_s(interface: str) -> float | None:
    """What the network card says it can do; many Wi-Fi cards and virtual ones say nothing."""
    stats = psutil.net_if_stats().get(interface)
    return float(stats.speed) if stats and stats.speed > 0 else None


def load() -> float:
    return max(0.0, float(psutil.getloadavg()[0]))


def busy_fraction() -> float:
    """Of all cores, since it was last asked."""
    return min(1.0, max(0.0, float(psutil.cpu_percent(interval=None)) / 100))
