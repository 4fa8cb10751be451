"""What is believed of a run's record when it is read: known fields of the right type, numbers that are numbers.

The shapes are those that docs/CLUSTER.md, "What a run writes", gives. Fields that are not so are left out.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from daisychain.base import limits

EVENT_KINDS = (
    "started", "resumed", "plan", "checkpoint", "glimpse", "data", "lost", "fault", "stopped", "finished", "failed",
    "paused",
)  # fmt: skip
WORKING = ("starting", "training")
PHASES = (*WORKING, "finished", "stopped", "failed", "paused")
Check = Callable[[Any], bool]


def is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 1 << 53


def is_finite(value: Any) -> TypeGuard[float]:
    return type(value) in (int, float) and abs(value) < 1e300 and math.isfinite(value)


def is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= limits.EVENT_TEXT_CHARACTERS


def _is_counts(value: Any) -> bool:
    return _is_list(value) and all(map(is_count, value))


def _is_figures(value: Any) -> bool:
    return _is_list(value) and all(map(is_finite, value))


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= limits.MAX_NODES


def _is_figure_or_none(value: Any) -> bool:
    return value is None or is_finite(value)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_phase(value: Any) -> bool:
    return value in PHASES


def _is_units(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(by, dict) and all(is_text(backend) and is_count(n) for backend, n in by.items())
        for by in value.values()
    )


ROW: Mapping[str, Check] = {
    "step": is_count,
    "steps": is_count,
    "loss": is_finite,
    "samples_per_s": is_finite,
    "node_samples_per_s": _is_figures,
    "shares": _is_counts,
    "step_s": is_finite,
    "left_s": is_finite,
    "tokens_per_s": _is_figure_or_none,
    "split_step": is_count,
    "node_compute_s": _is_figures,
    "node_wait_s": _is_figures,
    "node_transfer_s": _is_figures,
    "unit_invocations": _is_units,
    "state_hash": is_text,
    "replicas_equal": _is_bool,
}
NODE: Mapping[str, Check] = {
    "rank": is_count,
    "host": is_text,
    "pid": is_count,
    "device": is_text,
    "device_reason": is_text,
    "kernel": is_text,
    "kernel_reason": is_text,
    "cores": is_count,
    "memory_bytes": is_count,
    "threads": is_count,
    "link_mb_s": _is_figure_or_none,
    "link_latency_s": _is_figure_or_none,
}
STATUS: Mapping[str, Check] = {
    "phase": _is_phase,
    "pid": is_count,
    "pid_created_s": is_finite,
    "host": is_text,
    "updated_s": is_finite,
    "started_s": is_finite,
    "step": is_count,
    "steps": is_count,
    "nodes": is_count,
    "loss": is_finite,
    "left_s": is_finite,
    "text": is_text,
    "summary": lambda value: isinstance(value, dict),
}


def known(content: Any, fields: Mapping[str, Check]) -> dict[str, Any]:
    """Those of `fields` that an object has as they should be."""
    if not isinstance(content, dict):
        return {}
    return {name: content[name] for name, fits in fields.items() if name in content and fits(content[name])}


def clean_event(content: Mapping[str, Any]) -> dict[str, Any] | None:
    """An event with its four fields, texts cut, its others as they are; None for what is no event."""
    text, kind = content.get("text"), content.get("kind")
    if kind not in EVENT_KINDS or not isinstance(text, str):
        return None
    if not is_count(content.get("step")) or not is_finite(content.get("time_s")):
        return None
    metrics = content.get("metrics")
    event = {**content, "text": text[: limits.EVENT_TEXT_CHARACTERS]}
    if "sample" in content:
        sample = content["sample"]
        event["sample"] = sample[: limits.EVENT_TEXT_CHARACTERS] if isinstance(sample, str) else ""
    if "metrics" in content:
        numbers = metrics.items() if isinstance(metrics, dict) else ()
        event["metrics"] = {name: value for name, value in numbers if is_finite(value)}
    return event


def parsed(line: bytes) -> dict[str, Any]:
    """The object on a line; empty where there is none."""
    try:
        return as_object(json.loads(line))
    except (ValueError, RecursionError):
        return {}


def as_object(content: Any) -> dict[str, Any]:
    return content if isinstance(content, dict) else {}
