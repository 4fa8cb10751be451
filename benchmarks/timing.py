"""Timing sides of a comparison in turns, so that a noisy machine is noisy for all of them."""

import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch


def alternate(
    sides: Mapping[str, Callable[[], object]], rounds: int, round_s: float = 0.15
) -> dict[str, float]:
    """Median seconds a call of each side, over `rounds` rounds of about `round_s` each, alternating."""
    repeats = {}
    for name, call in sides.items():
        call()
        start = time.perf_counter()
        call()
        repeats[name] = max(1, round(round_s / max(time.perf_counter() - start, 1e-6)))
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, call in sides.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            seconds[name].append((time.perf_counter() - start) / repeats[name])
    return {name: statistics.median(times) for name, times in seconds.items()}


def print_result(claim: str, **figures: Any) -> None:
    """One JSON line: the claim, its figures, and what they were measured on."""
    machine = {"processor": platform.processor() or platform.machine(), "torch": torch.__version__}
    print(json.dumps({"claim": claim, **figures, **machine}))
