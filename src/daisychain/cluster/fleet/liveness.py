"""Who is alive, who left and why: a pure judge of beats. `watch.py` brings the beats, the clock is passed in."""

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from daisychain.base import limits
from daisychain.base.clock import Clock
from daisychain.cluster.fleet import FINISHED


@dataclass(frozen=True)
class Beat:
    """What a node publishes again and again: proof of life, progress and, at its end, a parting word."""

    count: int
    operations: int = 0  # operations begun
    word: str = ""  # why it left; empty while it works
    lost: Mapping[int, str] = field(default_factory=dict)  # the nodes that it left because of, with reasons

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: bytes) -> "Beat":
        fields = json.loads(text)
        lost = {int(rank): str(reason) for rank, reason in fields["lost"].items()}
        return cls(int(fields["count"]), int(fields["operations"]), str(fields["word"]), lost)


@dataclass(frozen=True)
class Verdict:
    """Nodes without which no operation can end, each with the reason."""

    reasons: Mapping[int, str]


class Liveness:
    """Judges the other nodes of a roster. Node `host` keeps the beats: if it is gone, nothing more is heard.

    Times are seconds of one clock that counts only while this node itself runs (`AwakeClock`).
    """

    def __init__(self, rank: int, roster: Iterable[int], lost_after_s: float, now_s: float) -> None:
        self._rank = rank
        self._peers = [peer for peer in roster if peer != rank]
        self._host = min(roster, default=rank)
        self._lost_after_s = lost_after_s
        self._heard_s = now_s
        self._beats = {peer: Beat(-1) for peer in self._peers}
        self._moved_s = dict.fromkeys(self._peers, now_s)
        self._word_s: dict[int, float] = {}
        self._refused: set[int] = set()
        self._host_gone = False

    def hear(self, beats: Mapping[int, Beat], now_s: float) -> None:
        """One whole round of beats has been read."""
        self._heard_s = now_s
        for peer in self._peers:
            if beats[peer].count != self._beats[peer].count:
                self._moved_s[peer] = now_s
            if beats[peer].word:
                self._word_s.setdefault(peer, now_s)
            self._beats[peer] = beats[peer]

    def host_gone(self) -> None:
        """The connection to the node that keeps the beats is broken."""
        self._host_gone = True

    def refused(self, peers: Iterable[int]) -> None:
        """These nodes' machines answered that nobody listens any more: the process has ended."""
        self._refused.update(peers)

    def working(self, now_s: float) -> list[int]:
        """The other nodes that are neither lost nor have said a parting word."""
        gone = self._blamed() | self._silent(now_s).keys() | self._word_s.keys()
        return [peer for peer in self._peers if peer not in gone]

    def behind(self, operations: int) -> dict[int, int]:
        """Nodes that have begun fewer operations, and how many fewer."""
        return {
            peer: operations - beat.operations
            for peer, beat in self._beats.items()
            if beat.operations < operations
        }

    def verdict(self, now_s: float, at_last: bool = False) -> Verdict | None:
        """Whom an operation waits for in vain, or None. `at_last`: it has failed, and no better reason came."""
        silent = self._silent(now_s)
        blamed = self._blamed()
        if self._rank in blamed:
            return Verdict({self._rank: f"the others went on without it: {blamed[self._rank]}"})
        if silent or blamed:
            return Verdict(blamed | silent)
        # A node with an error of its own may be a moment ahead of us in an operation that still succeeds.
        ended = {
            peer: f"it ended: {self._beats[peer].word}"
            for peer, said_s in self._word_s.items()
            if at_last or now_s - said_s >= self._patience_s(peer)
        }
        return Verdict(ended) if ended else None

    def _patience_s(self, peer: int) -> float:
        finished = self._beats[peer].word == FINISHED
        return self._lost_after_s if finished else min(limits.WORD_GRACE_S, self._lost_after_s)

    def _blamed(self) -> dict[int, str]:
        return {node: reason for beat in self._beats.values() for node, reason in beat.lost.items()}

    def _silent(self, now_s: float) -> dict[int, str]:
        host_ended = self._host_gone or self._host in self._refused
        # The others are heard through the host: without it nothing is known of them, not even why they left.
        if host_ended or now_s - self._moved_s.get(self._host, now_s) >= self._lost_after_s:
            wordless = not self._beats[self._host].word
            return {self._host: self._reason(host_ended)} if wordless else {}
        return {
            peer: self._reason(peer in self._refused)
            for peer, beat in self._beats.items()
            if not beat.word
            and (peer in self._refused or self._heard_s - self._moved_s[peer] >= self._lost_after_s)
        }

    def _reason(self, ended: bool) -> str:
        if ended:
            return "its process ended without a word (killed or crashed)"
        return f"no sign of life for {self._lost_after_s:g} s: it froze, or its machine or network is down"


class AwakeClock:
    """Seconds while this process ran. Frozen or asleep itself, it must not take the others for silent."""

    def __init__(self, clock: Clock, longest_tick_s: float) -> None:
        self._clock = clock
        self._longest_tick_s = longest_tick_s
        self._last_s = clock.now_s()
        self._awake_s = 0.0
        self._lock = threading.Lock()

    def now_s(self) -> float:
        """Right as long as somebody asks at least every `longest_tick_s`; a longer pause counts as that."""
        with self._lock:
            now_s = self._clock.now_s()
            self._awake_s += min(now_s - self._last_s, self._longest_tick_s)
            self._last_s = now_s
            return self._awake_s
