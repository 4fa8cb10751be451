"""Numbers, sizes and times as people read them. Pure."""

from __future__ import annotations

import math
import time

NONE = "–"
PHASES = {
    "starting": ("Starting", "calm"),
    "training": ("Training", "good"),
    "finished": ("Finished", "good"),
    "stopped": ("Stopped", "warn"),
    "paused": ("Paused", "warn"),
    "failed": ("Failed", "bad"),
    "lost": ("Lost", "bad"),
}
_SIZES = ("B", "KB", "MB", "GB", "TB")


def whole(value: float) -> str:
    """1,234"""
    return f"{round(value):,}" if math.isfinite(value) else NONE


def short(value: float) -> str:
    """Three digits that count: 0.0123, 4.56, 789, 1,234, 5.68 M"""
    if not math.isfinite(value):
        return NONE
    size = abs(value)
    if size >= 1e9:
        return f"{value / 1e9:.3g} G"
    if size >= 1e6:
        return f"{value / 1e6:.3g} M"
    if size >= 100 or value == int(value):
        return f"{round(value):,}"
    return f"{value:.3g}"


def loss(value: float | None) -> str:
    """Four digits after the point; enough to see it fall."""
    return NONE if value is None or not math.isfinite(value) else f"{value:.4f}"


def many(count: int, one: str) -> str:
    """1 node, 3 nodes"""
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def size(count: float) -> str:
    """12.3 MB, in powers of 1,000."""
    value = float(count)
    for unit in _SIZES[:-1]:
        if value < 999.5:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.3g} {unit}"
        value /= 1_000
    return f"{value:.3g} {_SIZES[-1]}"


def memory(count: float) -> str:
    """23.5 GiB, in powers of 1,024, as memory is sold."""
    gib = count / (1 << 30)
    return f"{gib:.3g} GiB" if gib >= 1 else f"{count / (1 << 20):.0f} MiB"


def duration(time_s: float | None) -> str:
    """34 s, 2 min 5 s, 3 h 20 min"""
    if time_s is None or not math.isfinite(time_s) or time_s < 0:
        return NONE
    total = round(time_s)
    if total < 60:
        return f"{total} s"
    if total < 3_600:
        return f"{total // 60} min {total % 60} s"
    if total < 86_400:
        return f"{total // 3_600} h {total % 3_600 // 60} min"
    return f"{total // 86_400} d {total % 86_400 // 3_600} h"


def span(time_s: float) -> str:
    """A short time: 850 µs, 12.3 ms, 1.25 s"""
    if not math.isfinite(time_s):
        return NONE
    if time_s >= 0.9995:
        return f"{time_s:.3g} s" if time_s < 100 else duration(time_s)
    if time_s >= 0.0009995:
        return f"{time_s * 1e3:.3g} ms"
    return f"{time_s * 1e6:.0f} µs"


def clock(unix_s: float, now_s: float | None = None) -> str:
    """14:05:09 today, Nov 30 14:05 on another day of this machine's calendar."""
    try:
        then = time.localtime(unix_s)
        today = time.localtime(time.time() if now_s is None else now_s)
    except (ValueError, OverflowError, OSError):
        return NONE
    return time.strftime("%H:%M:%S" if then[:3] == today[:3] else "%b %d %H:%M", then)


def share(part: float, of: float) -> str:
    """41%"""
    return f"{100 * part / of:.0f}%" if of > 0 else NONE


def phase(name: str) -> tuple[str, str]:
    """The word for a phase, and its tone: good, calm, warn or bad."""
    return PHASES.get(name, (name.capitalize() or "Unknown", "calm"))
