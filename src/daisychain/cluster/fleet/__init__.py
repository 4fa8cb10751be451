"""The nodes of a run, as the trainer sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch  # what only looks at addresses need not load it

FINISHED = "finished"


class Pending(Protocol):
    """A sum under way."""

    def wait(self) -> None:
        """Return when the buffer holds the sum. Raises FleetError or PeerLostError within the limit."""


class Fleet(Protocol):
    """Membership and sums. Every method raises PeerLostError, naming the node, instead of hanging."""

    rank: int
    roster: tuple[int, ...]  # ranks in roster order; fixed here, per step in an elastic engine

    def start_sum(self, buffer: torch.Tensor) -> Pending:
        """Sum a contiguous float32 CPU tensor over the roster, in place. Same calls, same order, on every node."""

    def gather(self, record: bytes) -> list[bytes]:
        """Everybody's record, in roster order. Any length, though short ones are meant."""

    def broadcast(self, buffer: torch.Tensor, source: int) -> None:
        """Copy a contiguous CPU tensor of `source` to every node, in place."""

    def close(self, reason: str = FINISHED) -> None:
        """Leave, and tell the others why. Never raises, never hangs. Later calls do nothing."""


class _Done:
    def wait(self) -> None:
        pass


class SoloFleet:
    """A run of one node: nothing to sum, nobody to wait for."""

    rank: int = 0
    roster: tuple[int, ...] = (0,)

    def start_sum(self, buffer: torch.Tensor) -> Pending:
        return _Done()

    def gather(self, record: bytes) -> list[bytes]:
        return [record]

    def broadcast(self, buffer: torch.Tensor, source: int) -> None:
        pass

    def close(self, reason: str = FINISHED) -> None:
        pass
