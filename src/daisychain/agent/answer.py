"""What the dashboard answers to a report: the secret by which agents know each other, and whom to dial."""

from dataclasses import asdict, dataclass
from typing import Any

from daisychain.agent.reading import SECRET, Reader, read_object
from daisychain.agent.report import PROTOCOL
from daisychain.base import limits
from daisychain.base.errors import ReportError

MARK = "daisychain dashboard"  # by which an agent knows that it talks to one


@dataclass(frozen=True)
class Peer:
    """Another node's agent: its name, which start of it, and where it listens."""

    name: str
    instance: str
    address: str
    port: int


@dataclass(frozen=True)
class Answer:
    secret: str  # 64 hexadecimal digits
    peers: tuple[Peer, ...] = ()
    measure: str | None = None  # the peer to which bandwidth shall be measured now

    def to_json(self) -> dict[str, Any]:
        return {"service": MARK, "protocol": PROTOCOL, **asdict(self)}


def read_answer(text: bytes) -> Answer:
    """A dashboard's answer. Raises ReportError."""
    fields = read_object(text, "the answer", limits.AGENT_REPORT_BYTES)
    if fields.get("service") != MARK:
        raise ReportError("the answer is not a dashboard's")
    read = Reader(fields, "answer")
    peers = fields.get("peers")
    if not isinstance(peers, list) or len(peers) > limits.FLEET_NODES:
        raise ReportError(f"answer: peers is a list of at most {limits.FLEET_NODES} nodes")
    measure = read.optional("measure", lambda name: read.text(name, limits.AGENT_NAME_CHARACTERS))
    return Answer(read.hexadecimal("secret", SECRET), tuple(_peer(peer) for peer in peers), measure)


def _peer(fields: object) -> Peer:
    read = Reader(fields, "peer")
    return Peer(
        name=read.text("name", limits.AGENT_NAME_CHARACTERS),
        instance=read.hexadecimal("instance"),
        address=read.address("address"),
        port=int(read.number("port", 1, 65_535, whole=True)),
    )
