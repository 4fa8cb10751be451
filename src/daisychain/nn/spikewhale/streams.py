"""Hyper-connections: the residual is several streams; what is read, written and exchanged is learned."""

from typing import Protocol, cast

import torch
from torch import nn

from daisychain.nn.spikewhale.config import SpikeWhaleConfig

SINKHORN_ROUNDS = 5
ROUTE_START = 4.0  # of the diagonal before the exponential: a stream begins by keeping nearly all of itself


def sinkhorn(logits: torch.Tensor) -> torch.Tensor:
    """(s, s) → positive, rows and columns sum to 1: columns and rows are scaled in turn, rows last.

    In logarithms, so that no sum becomes 0 however far the logits lie apart.
    """
    for _ in range(SINKHORN_ROUNDS):
        logits = logits.log_softmax(0).log_softmax(1)
    return logits.exp()


class Connection(Protocol):
    """How a layer reads the residual and adds to it."""

    def read(self, residual: torch.Tensor) -> torch.Tensor:
        """What the layer sees: (n, t, width)."""

    def write(self, residual: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The residual after the layer has said `y` (n, t, width)."""


class PlainConnection(nn.Module):
    """One stream, read whole and added to: the residual is (n, t, width)."""

    def read(self, residual: torch.Tensor) -> torch.Tensor:
        return residual

    def write(self, residual: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return residual + y


class HyperConnection(nn.Module):
    """Several streams: the residual is (streams, n, t, width).

    At first all streams are equal, each layer reads one of them, its place modulo their number, and writes to all:
    a plain residual network. Mixing by a doubly stochastic matrix neither adds to the streams' sum nor takes from it.
    """

    def __init__(self, streams: int, place: int) -> None:
        super().__init__()
        self.reads = nn.Parameter(torch.eye(streams)[place % streams].clone())
        self.writes = nn.Parameter(torch.ones(streams))
        self.routes = nn.Parameter(ROUTE_START * torch.eye(streams))

    def read(self, residual: torch.Tensor) -> torch.Tensor:
        return torch.tensordot(self.reads.to(residual.dtype), residual, 1)

    def write(self, residual: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        mixed = torch.tensordot(sinkhorn(self.routes).to(residual.dtype), residual, 1)
        return mixed + self.writes.to(residual.dtype)[:, None, None, None] * y


def connection(config: SpikeWhaleConfig, place: int) -> Connection:
    """The connection of the layer that comes at `place`, counted from 0."""
    made = HyperConnection(config.streams, place) if config.has("hyper_connections") else PlainConnection()
    return cast(Connection, made)


def widen(config: SpikeWhaleConfig, x: torch.Tensor) -> torch.Tensor:
    """The residual that a model begins with, of (n, t, width)."""
    return x.expand(config.streams, *x.shape) if config.has("hyper_connections") else x


def narrow(config: SpikeWhaleConfig, residual: torch.Tensor) -> torch.Tensor:
    """What a model ends with: the mean of the streams, (n, t, width)."""
    return residual.mean(0) if config.has("hyper_connections") else residual
