"""What an agent sends: a report about its machine, and what it found when it dialled the others.

Everything is read with suspicion: a field that is absent, of another type, too large or not printable makes the
whole message a ReportError that names it.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from daisychain.agent.reading import Reader, one_line, read_object
from daisychain.base import limits
from daisychain.base.errors import ReportError

PROTOCOL = 1  # a change here asks for the same version of DaisyChain on every machine
PROVING, READY, FAILED = "proving", "ready", "failed"  # how far the proof of a node's kernels is
PROOFS = (PROVING, READY, FAILED)
#: How a dial ended: the agent there proved who it is; or nothing listens, nothing answers, there is no way, something
#: else answers, or the connection was cut short.
REACHED, REFUSED, NO_ANSWER, NO_ROUTE, STRANGER, CUT = (
    "reached", "refused", "no_answer", "no_route", "stranger", "cut"
)  # fmt: skip
OUTCOMES = (REACHED, REFUSED, NO_ANSWER, NO_ROUTE, STRANGER, CUT)


@dataclass(frozen=True)
class Report:
    """One node, as it says it is. `instance` is new at every start of an agent, `sequence` at every report."""

    name: str
    host: str
    instance: str
    sequence: int
    version: str  # of DaisyChain
    time_s: float  # Unix time of the node's own clock
    address: str  # at which the other nodes shall dial it
    address_reason: str
    probe_port: int
    cores: int
    memory_bytes: int
    memory_free_bytes: int
    proof: str = PROVING
    device: str | None = None  # None while it is being proven, and where that failed
    device_reason: str = ""
    backend: str | None = None
    backend_reason: str = ""
    load: float = 0.0  # processes that want to run, averaged over a minute
    busy_fraction: float = 0.0  # of the cores, since the last report
    temperature_c: float | None = None
    interface: str = ""
    link_mbit_s: float | None = None  # what the network card says it can do

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(fields: object) -> "Report":
        """Raises ReportError."""
        read = Reader(fields, "report")
        return Report(
            name=read.text("name", limits.AGENT_NAME_CHARACTERS),
            host=read.text("host", limits.AGENT_NAME_CHARACTERS),
            instance=read.hexadecimal("instance"),
            sequence=int(read.number("sequence", 0, 1 << 53, whole=True)),
            version=read.text("version", limits.AGENT_NAME_CHARACTERS),
            time_s=read.number("time_s", 0),
            address=read.address("address"),
            address_reason=read.text("address_reason", empty=True),
            probe_port=int(read.number("probe_port", 1, 65_535, whole=True)),
            cores=int(read.number("cores", 1, 1 << 16, whole=True)),
            memory_bytes=int(read.number("memory_bytes", 1, whole=True)),
            memory_free_bytes=int(read.number("memory_free_bytes", 0, whole=True)),
            proof=read.choice("proof", PROOFS),
            device=read.optional("device", lambda name: read.text(name, limits.AGENT_NAME_CHARACTERS)),
            device_reason=read.text("device_reason", empty=True),
            backend=read.optional("backend", lambda name: read.text(name, limits.AGENT_NAME_CHARACTERS)),
            backend_reason=read.text("backend_reason", empty=True),
            load=read.number("load", 0),
            busy_fraction=read.number("busy_fraction", 0, 1),
            temperature_c=read.optional("temperature_c", lambda name: read.number(name, -100, 1_000)),
            interface=read.text("interface", limits.AGENT_NAME_CHARACTERS, empty=True),
            link_mbit_s=read.optional("link_mbit_s", lambda name: read.number(name, 0)),
        )


@dataclass(frozen=True)
class Probe:
    """One dial of another agent. `age_s` is how long ago it ended when the message was sent: no clock is compared."""

    to: str  # the other's name …
    instance: str  # … and which start of it was meant
    age_s: float
    outcome: str
    latency_s: float | None = None  # there and back, the best of several
    bandwidth_mb_s: float | None = None  # from here to there; None where it was not measured

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(fields: object) -> "Probe":
        """Raises ReportError."""
        read = Reader(fields, "probe")
        return Probe(
            to=read.text("to", limits.AGENT_NAME_CHARACTERS),
            instance=read.hexadecimal("instance"),
            age_s=read.number("age_s", 0, 1e6),
            outcome=read.choice("outcome", OUTCOMES),
            latency_s=read.optional("latency_s", lambda name: read.number(name, 0, 1e6)),
            bandwidth_mb_s=read.optional("bandwidth_mb_s", lambda name: read.number(name, 0)),
        )


def message_text(report: Report, probes: Sequence[Probe]) -> bytes:
    """What is posted: one JSON object."""
    body = {"protocol": PROTOCOL, "report": report.to_json(), "probes": [probe.to_json() for probe in probes]}
    return json.dumps(body, allow_nan=False, separators=(",", ":")).encode()


def read_message(text: bytes) -> tuple[Report, list[Probe]]:
    """A posted message. Raises ReportError; of the reason `protocol` where only the version does not fit."""
    fields = read_object(text, "a message", limits.AGENT_REPORT_BYTES)
    if fields.get("protocol") != PROTOCOL:
        raise ReportError(
            f"the agent speaks protocol {fields.get('protocol')!r:.40}, this dashboard {PROTOCOL}: "
            "install the same version of DaisyChain on both",
            "protocol",
        )
    probes = fields.get("probes")
    if not isinstance(probes, list) or len(probes) > limits.FLEET_NODES:
        raise ReportError(f"probes is a list of at most {limits.FLEET_NODES} dials")
    return Report.from_json(fields.get("report")), [Probe.from_json(probe) for probe in probes]


def is_name(text: str) -> bool:
    """Whether a node may be called so."""
    return bool(text) and text == one_line(text, limits.AGENT_NAME_CHARACTERS)
