"""The gradient as one flat vector, summed over the fleet bucket by bucket while backward goes on."""

import numpy as np
import torch

from daisychain.base import limits
from daisychain.base.errors import NonFiniteError, TaskError
from daisychain.cluster.fleet import Fleet, Pending
from daisychain.cluster.replica import Replica
from daisychain.numerics.blocks import F32


def bucket_starts(edges: list[int], bucket_bytes: int) -> list[int]:
    """Places of `edges` at which buckets begin, last bucket first: whole parameters, at least `bucket_bytes` each.

    Backward meets the last parameters first, so buckets are filled and sent from the end.
    """
    starts, end = [], len(edges) - 1
    for i in range(len(edges) - 2, -1, -1):
        if i == 0 or (edges[end] - edges[i]) * 4 >= bucket_bytes:
            starts.append(i)
            end = i
    return starts


class FlatGradient:
    """Sums over samples of the gradient, one flat float32 vector, for one step after another.

    `begin`, then backward, then `finish`, then `wait`. Buckets go into the fleet's sums in the same order on every
    node, whatever happens: after a fault the rest goes out as zeros, so that the nodes stay in step.
    """

    def __init__(self, replica: Replica, fleet: Fleet, bucket_bytes: int = limits.BUCKET_BYTES) -> None:
        self._fleet = fleet
        self._replica = replica
        self._names = list(replica.trainable)
        self._parameters = list(replica.trainable.values())
        self._sums = torch.zeros(replica.edges[-1])
        on_cpu = replica.device == self._sums.device
        self._own = self._sums if on_cpu else torch.zeros(replica.edges[-1], device=replica.device)
        self._views = replica.views(self._own)
        starts = bucket_starts(replica.edges, bucket_bytes)
        self._buckets = list(
            zip(starts, [len(self._names), *starts[:-1]], strict=True)
        )  # parameters [first, last)
        self._bucket_of = {i: k for k, (first, last) in enumerate(self._buckets) for i in range(first, last)}
        self._missing: list[int] = []
        self._pending: list[Pending] = []
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(lambda _, i=i: self._arrived(i))
            for i, parameter in enumerate(self._parameters)
        ]

    @property
    def sums(self) -> F32:
        """NumPy view of the flat vector; after `wait`, the sum over every sample of the step."""
        return np.asarray(self._sums.numpy())

    def begin(self) -> None:
        """Set the gradient to zero and wait for a backward."""
        self._own.zero_()
        for parameter, view in zip(self._parameters, self._views, strict=True):
            parameter.grad = view
        self._missing = [last - first for first, last in self._buckets]
        self._pending = []

    def finish(self, fault: bool) -> None:
        """Send what backward has not sent: unused parameters as zeros, after a `fault` everything.

        Raises NonFiniteError, everything sent, if a bucket held NaN or infinity.
        """
        error: NonFiniteError | None = None
        while len(self._pending) < len(self._buckets):
            if not fault:
                try:
                    self._send_next()
                    continue
                except NonFiniteError as found:
                    fault, error = True, found
            self._send_zeros()
        if error:
            raise error

    def wait(self) -> None:
        """Return when the sums are there."""
        for pending in self._pending:
            pending.wait()

    def check_sums(self) -> None:
        """Raise NonFiniteError if a sum is not finite. The sums are equal on every node, so all of them decide so."""
        if not bool(torch.isfinite(self._sums.sum())):
            self._name_non_finite(self._sums, 0, len(self._names), "sums over the nodes")

    def close(self) -> None:
        """Let go of the model."""
        for hook in self._hooks:
            hook.remove()

    def _arrived(self, parameter: int) -> None:
        bucket = self._bucket_of[parameter]
        self._claim(parameter)
        if bucket < len(self._pending):
            raise TaskError(
                f"the gradient of {self._names[parameter]} arrived twice in one step; "
                "use activation checkpointing with use_reentrant=False and one backward a step."
            )
        self._missing[bucket] -= 1
        while len(self._pending) < len(self._buckets) and self._missing[len(self._pending)] == 0:
            self._send_next()

    def _claim(self, i: int) -> None:
        """A task that calls `zero_grad` makes autograd lay a gradient elsewhere: bring it into the flat vector."""
        parameter, view = self._parameters[i], self._views[i]
        if parameter.grad is not None and parameter.grad.data_ptr() != view.data_ptr():
            view.copy_(parameter.grad)
            parameter.grad = view

    def _send_next(self) -> None:
        first, last = self._buckets[len(self._pending)]
        a, b = self._replica.edges[first], self._replica.edges[last]
        own, sums = self._own[a:b], self._sums[a:b]
        # A sum is NaN or infinite if any term is; only then is it worth to look at each.
        if not bool(torch.isfinite(own.sum())):
            self._name_non_finite(self._own, first, last, "gradients")
        if sums.data_ptr() != own.data_ptr():
            sums.copy_(own)
        self._pending.append(self._fleet.start_sum(sums))

    def _send_zeros(self) -> None:
        first, last = self._buckets[len(self._pending)]
        sums = self._sums[self._replica.edges[first] : self._replica.edges[last]]
        self._pending.append(self._fleet.start_sum(sums.zero_()))

    def _name_non_finite(self, flat: torch.Tensor, first: int, last: int, what: str) -> None:
        for i in range(first, last):
            values = flat[self._replica.edges[i] : self._replica.edges[i + 1]]
            bad = int((~torch.isfinite(values)).sum())
            if bad:
                raise NonFiniteError(
                    f"{bad} of {values.numel()} {what} of {self._names[i]} are NaN or infinite"
                )
