"""What a node is: told at the join, and kept in nodes.json for whoever looks at the run."""

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import psutil
import torch

from daisychain import kernels
from daisychain.cluster.fleet.links import Link


def facts_of_this_node(rank: int, device: torch.device, device_reason: str) -> dict[str, Any]:
    """The machine and what this process uses of it."""
    registry = kernels.default(device.type)
    verified = bool(registry.shapes)  # of products that the trial of the task has met
    return {
        "rank": rank,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "device": str(device),
        "device_reason": device_reason,
        "kernel": registry.name if verified else "none",
        "kernel_reason": registry.choice if verified else "the task has no verified products",
        "cores": _cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "threads": torch.get_num_threads(),
    }


def with_links(facts: Sequence[Mapping[str, Any]], links: Sequence[Link]) -> list[dict[str, Any]]:
    """Each node's facts, and its link as measured; none in a run of one node."""
    measured: Sequence[Link | None] = links if len(links) == len(facts) else [None] * len(facts)
    return [
        {
            **node,
            "link_mb_s": round(link.rate_mb_s, 3) if link else None,
            "link_latency_s": round(link.latency_s, 6) if link else None,
        }
        for node, link in zip(facts, measured, strict=True)
    ]


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
