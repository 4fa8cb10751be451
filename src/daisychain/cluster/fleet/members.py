"""The nodes that have met, and whether they can dial each other."""

import json
import os
import socket
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from daisychain.cluster.fleet.network import is_loopback

REFUSED = "refused"


@dataclass(frozen=True)
class Member:
    """A node that has joined, and the address and port at which the others reach it."""

    rank: int
    world_size: int
    host: str
    pid: int
    address: str
    port: int
    coordinator: str  # the address at which it reached rank 0; empty for rank 0

    @classmethod
    def here(cls, rank: int, world_size: int, address: str, port: int, coordinator: str) -> "Member":
        return cls(rank, world_size, socket.gethostname(), os.getpid(), address, port, coordinator)

    @classmethod
    def decode(cls, text: bytes) -> "Member":
        return cls(**json.loads(text))

    def encode(self) -> str:
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        return f"node {self.rank} ({self.host}, pid {self.pid})"


def dial_all(members: Iterable[Member], limit_s: float) -> dict[int, str]:
    """Dial each member; those that could not be reached, with the reason."""

    def dial(member: Member) -> tuple[int, str]:
        try:
            socket.create_connection((member.address, member.port), timeout=limit_s).close()
        except OSError as error:
            return member.rank, dial_reason(error)
        return member.rank, ""

    with ThreadPoolExecutor(max_workers=32) as pool:
        return {rank: reason for rank, reason in pool.map(dial, members) if reason}


def refusing(members: Iterable[Member], limit_s: float) -> list[int]:
    """Members whose machine answers that nobody listens on their port: their process has ended."""
    return [rank for rank, reason in dial_all(members, limit_s).items() if reason == REFUSED]


def describe_blocked(members: Mapping[int, Member], reports: Mapping[int, Mapping[int, str]]) -> str:
    """One line that names every blocked direction; empty where everybody reaches everybody."""
    lines = []
    for source, failures in sorted(reports.items()):
        for target, reason in sorted(failures.items()):
            member = members[target]
            back = (
                "the other way is open" if source not in reports[target] else "the other way is blocked too"
            )
            hint = (
                "its process ended, or a firewall refuses"
                if reason == REFUSED and not is_loopback(member.address)
                else f"start node {target} with --address and an address that the others can reach"
                if is_loopback(member.address)
                else f"let a firewall on node {target} or between them admit TCP from node {source}"
            )
            lines.append(
                f"node {source} cannot reach node {target} at {member.address} ({reason}; {back}): {hint}"
            )
    return "; ".join(lines)


def dial_reason(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return REFUSED
    if isinstance(error, TimeoutError):
        return "no answer at all, as behind a firewall or at a wrong address"
    return error.strerror or str(error)
