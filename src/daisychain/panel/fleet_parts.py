"""The parts of the fleet's page as markup, each from the fleet's state alone. Pure."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from daisychain.agent.view import BAD, OK, Cell, Finding, Matrix, NodeView, Pool
from daisychain.base import limits
from daisychain.panel import words
from daisychain.panel.markup import Markup, el, figure, join
from daisychain.panel.run_parts import tip

TONES = {OK: "good", "warn": "warn", BAD: "bad"}
#: What a cell shows: a sign, a word, and the tone of its colour. Never colour alone.
CELLS = {
    "reachable": ("✓", "open", "good"),
    "slow": ("◔", "slow", "warn"),
    "blocked": ("✕", "blocked", "bad"),
    "dead": ("☾", "silent", "bad"),
    "unknown": ("?", "unknown", "calm"),
    "self": ("·", "itself", "none"),
}


def banner(findings: Sequence[Finding]) -> Markup:
    """Whether the fleet is ready, in words, and what is missing."""
    first, rest = findings[0], findings[1:]
    parts = [el("p", el("strong", first.text), data_testid="readiness")]
    if rest:
        items = (el("li", finding.text, class_=TONES[finding.level]) for finding in rest)
        parts.append(el("ul", *items, data_testid="findings"))
    return el("div", *parts, class_=f"notice {TONES[first.level]}", role="status")


def invitation(url: str, token: bool) -> Markup:
    """What to do where no agent reports."""
    command = f"daisychain agent --dashboard {url}" + (" --token TOKEN" if token else "")
    about = "The token is in the link that was printed where these pages were started. " if token else ""
    return join([
        el("p", "No machine reports here yet. Start an agent on each, and it appears within seconds:", class_="lead"),
        el("pre", el("code", command)),
        el("p", about, "Runs can be watched and started on this machine without an agent.", class_="hint"),
    ])  # fmt: skip


def pool(state: Pool) -> Markup:
    """What all machines have together."""
    cells = [
        ("Nodes", figure("pool-nodes", words.whole(state.nodes), state.nodes)),
        ("Cores", figure("pool-cores", words.whole(state.cores), state.cores)),
        ("Memory", figure("pool-memory", words.memory(state.memory_bytes), state.memory_bytes)),
        ("Free", figure("pool-free", words.memory(state.memory_free_bytes), state.memory_free_bytes)),
    ]
    return el("dl", *(el("div", el("dt", name), el("dd", shown)) for name, shown in cells), class_="facts")


def machines(nodes: Sequence[NodeView]) -> Markup:
    """One item a machine."""
    return el("ul", *map(_machine, nodes), class_="machines")


def _machine(node: NodeView) -> Markup:
    report = node.report
    lamp = el("span", class_="lamp down" if node.dead else "lamp", aria_hidden="true")
    state = (
        el("span", f"silent for {words.duration(node.silent_s)}", class_="badge bad")
        if node.dead
        else el("span", "here", class_="badge good")
    )
    facts = [
        _computes(node),
        f"{words.many(report.cores, 'core')}, {words.whole(100 * report.busy_fraction)}% busy",
    ]
    free, of = words.memory(report.memory_free_bytes), words.memory(report.memory_bytes)
    facts.append(f"{free.removesuffix(' GiB')} of {of} free")
    if report.temperature_c is not None:
        facts.append(f"{report.temperature_c:.0f} °C")
    if report.link_mbit_s:
        speed = f"{report.interface or 'link'} {words.short(report.link_mbit_s)} Mbit/s"
        facts.append(tip(speed, "what the network card says it can do; what it does is in the table of ways"))
    return el(
        "li",
        el("div", lamp, el("span", report.name, class_="name"), state, class_="machine-head"),
        el("ul", *(el("li", fact) for fact in facts), class_="about"),
        el("p", tip(report.address, report.address_reason or "its address"), class_="hint"),
        class_="dead" if node.dead else None,
        data_key=report.name,
        data_testid=f"machine-{report.name}",
    )


def _computes(node: NodeView) -> Markup | str:
    report = node.report
    if report.proof == "proving":
        return "proving its kernels …"
    if report.device is None:
        return tip("cannot compute", report.backend_reason or report.device_reason)
    device = tip(report.device, report.device_reason or "the device that computes")
    return join([device, " · ", tip(report.backend or "no kernel", report.backend_reason or "the kernel")])


def matrix(state: Matrix) -> Markup:
    """Every way between two machines, each direction for itself."""
    header = el(
        "tr", el("td", el("small", "from ↓ to →")), *(el("th", name, scope="col") for name in state.names)
    )
    rows = [
        el("tr", el("th", name, scope="row"), *map(_cell, cells, [name] * len(cells), state.names))
        for name, cells in zip(state.names, state.rows, strict=True)
    ]
    table = el("table", el("thead", header), el("tbody", *rows), class_="matrix")
    keys = (
        el("span", el("b", sign), " ", word, class_=f"cell-key {tone}")
        for state_, (sign, word, tone) in CELLS.items()
        if state_ != "self"
    )
    return join([el("div", table, class_="scroll", tabindex="0", role="region", aria_label="Ways between machines"),
                 el("p", *keys, class_="keys hint")])  # fmt: skip


def _cell(cell: Cell, source: str, target: str) -> Markup:
    return _way(cell.state, cell.words, cell.latency_s, cell.bandwidth_mb_s, source, target)


@functools.lru_cache(2 * limits.FLEET_NODES**2)  # of thousands of ways few change from one look to the next
def _way(
    state: str, about: str, latency_s: float | None, bandwidth_mb_s: float | None, source: str, target: str
) -> Markup:
    sign, word, tone = CELLS.get(state, CELLS["unknown"])
    if tone == "none":
        return el("td", el("span", sign, aria_hidden="true"), class_="self")
    figures = []
    if latency_s is not None:
        figures.append(words.span(latency_s))
    if bandwidth_mb_s is not None:
        figures.append(f"{words.short(bandwidth_mb_s)} MB/s")
    shown = el("button", el("b", sign), " ", word, *(el("small", text) for text in figures), type="button",
               class_=f"cell {tone}", data_tip=about, aria_label=about)  # fmt: skip
    return el("td", shown, data_testid=f"way-{source}-{target}", data_state=state)
