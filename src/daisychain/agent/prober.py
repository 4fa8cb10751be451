"""When an agent dials whom: one dial at a time, spread evenly, and a payload only when the dashboard gives the turn."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from daisychain.agent.answer import Answer, Peer
from daisychain.agent.probe import Found, dial
from daisychain.agent.report import Probe
from daisychain.base import limits

LOOK_UP_S = 0.25  # how often it is asked who is due
DRIFT_S = 0.2


@dataclass(frozen=True)
class _Result:
    """What a dial found, and when it ended."""

    peer: Peer
    found: Found
    at_s: float


def dial_every_s(peers: int) -> float:
    """How often each of so many peers is dialled."""
    return max(limits.PROBE_EVERY_S, peers / limits.PROBES_PER_S)


def next_peer(peers: Sequence[Peer], dialled_s: dict[str, float], now_s: float) -> Peer | None:
    """The peer that was dialled longest ago, if that is long enough. `dialled_s` is by instance."""
    if not peers:
        return None
    oldest = min(peers, key=lambda peer: dialled_s.get(peer.instance, float("-inf")))
    since_s = now_s - dialled_s.get(oldest.instance, float("-inf"))
    return oldest if since_s >= dial_every_s(len(peers)) else None


class Prober:
    """Dials the peers that the dashboard names, and keeps what it found until that has been reported."""

    def __init__(
        self,
        clock: Callable[[], float],
        dial: Callable[..., Awaitable[Found]] = dial,
    ) -> None:
        self._clock = clock
        self._dial = dial
        self._changed = asyncio.Event()
        self._answer: Answer | None = None
        self._measure: str | None = None
        self._dialled_s: dict[str, float] = {}
        self._unsent: dict[str, _Result] = {}  # the newest result a peer
        self._sending: dict[str, _Result] = {}

    def update(self, answer: Answer) -> None:
        """The dashboard's newest answer."""
        self._answer = answer
        here = {peer.instance for peer in answer.peers}
        for gone in self._dialled_s.keys() - here:
            del self._dialled_s[gone]
        for name, result in list(self._unsent.items()):
            if result.peer.instance not in here:
                del self._unsent[name]
        self._measure = answer.measure or self._measure
        self._changed.set()

    def unsent(self) -> list[Probe]:
        """What was found since the last report that arrived."""
        now_s = self._clock()
        self._sending = dict(self._unsent)
        return [
            Probe(
                to=result.peer.name,
                instance=result.peer.instance,
                age_s=max(0.0, now_s - result.at_s),
                outcome=result.found.outcome,
                latency_s=result.found.latency_s,
                bandwidth_mb_s=result.found.bandwidth_mb_s,
            )
            for result in self._unsent.values()
        ]

    def sent(self) -> None:
        """What `unsent` gave last has arrived. A result that has come meanwhile is kept."""
        for name, result in self._sending.items():
            if self._unsent.get(name) is result:
                del self._unsent[name]

    async def run(self) -> None:
        """Dial for ever."""
        while True:
            if not await self._dial_next():
                self._changed.clear()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), LOOK_UP_S)

    async def _dial_next(self) -> bool:
        """Dial whoever is due; False if nobody is."""
        answer, now_s = self._answer, self._clock()
        if answer is None:
            return False
        measured = next((peer for peer in answer.peers if peer.name == self._measure), None)
        # Shuffled, so that agents that were started together do not all dial the same one first.
        shuffled = random.sample(answer.peers, len(answer.peers))
        peer = measured or next_peer(shuffled, self._dialled_s, now_s)
        self._measure = None
        if peer is None:
            return False
        found = await self._dial(peer, answer.secret, payload=measured is not None)
        self._unsent[peer.name] = _Result(peer, found, self._clock())
        # A little later or earlier next time, so that agents that were started together drift apart.
        self._dialled_s[peer.instance] = self._clock() + random.uniform(-DRIFT_S, DRIFT_S)
        return True
