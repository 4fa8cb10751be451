"""The parts of a run's view as markup, each from the run's picture alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daisychain.base import limits
from daisychain.cluster.storage.cleaning import is_finite
from daisychain.panel import words
from daisychain.panel.markup import Markup, el, figure, join
from daisychain.panel.picture import Row, RunPicture

TROUBLE = ("lost", "fault", "failed", "paused")
SPLIT = (
    ("compute", "node_compute_s", "forward and backward on the node's own samples"),
    ("wait", "node_wait_s", "waiting for the slowest node to finish computing"),
    ("transfer", "node_transfer_s", "sending gradients and records, and adding them up"),
)


def tip(text: str, words_: str) -> Markup:
    """A term that explains itself when it is pointed at, tapped or focused."""
    return el("span", text, class_="tip", tabindex="0", data_tip=words_)


def phase_badge(phase: str) -> Markup:
    text, tone = words.phase(phase)
    return el("span", text, class_=f"badge {tone}", data_testid="phase")


def head(picture: RunPicture, *, name: bool = True) -> Markup:
    """Phase, what the run says of itself, and how far it is."""
    parts: list[Any] = []
    if name:
        link = el("a", picture.name, href=f"/runs/{picture.name}", data_testid="run-name")
        task = (picture.config or {}).get("task")
        about = el("span", task, class_="hint") if isinstance(task, str) else None
        parts.append(el("div", el("h2", link), about, class_="run-title"))
    if not picture.exists:
        text = "This run's folder is not there: it has not begun yet, or it was deleted."
        return join([el("div", *parts, el("span", "Not there", class_="badge calm", data_testid="phase"),
                        class_="head"), el("p", text, class_="lead", data_testid="status")])  # fmt: skip
    parts.append(phase_badge(picture.phase))
    done = picture.step / picture.steps if picture.steps else 0.0
    bar = el("progress", max="1", value=f"{min(1.0, done):.4f}", aria_label="Steps done")
    said = picture.text or _phase_words(picture)
    status = el("p", said, class_="lead", data_testid="status") if said else None
    return join([el("div", *parts, class_="head"), status, bar])


def nameless_head(picture: RunPicture) -> Markup:
    """The head where the page has the name already."""
    return head(picture, name=False)


def _phase_words(picture: RunPicture) -> str:
    if picture.phase == "lost":
        return (
            f"The run ended without a word after step {words.whole(picture.step)}: "
            "its process was killed, or its machine went down. It can go on from its last checkpoint."
        )
    return "The nodes meet and prove their kernels." if picture.phase == "starting" else ""


def facts(picture: RunPicture) -> Markup:
    """The run's figures."""
    last = picture.last or {}
    tokens = last.get("tokens_per_s")
    cells = [_fact("Step", figure("step", _step(picture), picture.step))]
    cells.append(_fact("Loss", figure("loss", words.loss(last.get("loss")), last.get("loss")), LOSS))
    cells += [_fact(label, shown, tip_) for label, shown, tip_ in _learnt(picture)]
    if tokens is not None:
        cells.append(_fact("Tokens a second", figure("tokens-per-s", words.short(tokens), tokens)))
    rate = last.get("samples_per_s")
    shown = words.NONE if rate is None else words.short(rate)
    cells.append(_fact("Samples a second", figure("samples-per-s", shown, rate)))
    step_s = last.get("step_s")
    cells.append(
        _fact("A step takes", figure("step-s", words.NONE if step_s is None else words.span(step_s), step_s))
    )
    if picture.phase == "training":
        left_s = last.get("left_s")
        cells.append(_fact("Time left", figure("left-s", words.duration(left_s), left_s)))
    return el("dl", *cells, class_="facts")


def _step(picture: RunPicture) -> Markup:
    of = el("small", f" of {words.whole(picture.steps)}") if picture.steps else None
    return join([words.whole(picture.step), of])


def _fact(label: str, shown: Markup, explained: str = "") -> Markup:
    return el("div", el("dt", tip(label, explained) if explained else label), el("dd", shown))


LOSS = (
    "how wrong the model was on the samples of the newest step. It jumps from step to step, and should fall."
)
LEARNT = {
    "perplexity": ("Perplexity", "on unseen text: how many tokens it still hesitates between. Less is better."),
    "bits_per_byte": ("Bits a byte", "of text that it never trains on: how far it could compress it. Less is better."),
    "accuracy": ("Accuracy", "on data that it never trains on"),
}  # fmt: skip


def _learnt(picture: RunPicture) -> list[tuple[str, Markup, str]]:
    """What held-out data said last: at the end, or at the newest glimpse."""
    metrics: Mapping[str, Any] = {}
    for event in reversed(picture.glimpses):
        if isinstance(event.get("metrics"), Mapping):
            metrics = event["metrics"]
            break
    final = (picture.summary or {}).get("metrics")
    metrics = final if final and isinstance(final, Mapping) else metrics  # a run that was stopped has none
    found = []
    for name, (label, explained) in LEARNT.items():
        value = metrics.get(name)
        if is_finite(value):
            shown = f"{100 * value:.1f}%" if name == "accuracy" else words.short(value)
            found.append((label, figure(name.replace("_", "-"), shown, value), explained))
    return found


def agreement(picture: RunPicture) -> Markup:
    """Whether every node has the same model, to the last bit: as compared before the newest step, or at the end."""
    last = picture.last or {}
    ends = (picture.summary or {}).get("state_hashes")
    hashes = [each for each in ends if isinstance(each, str)] if isinstance(ends, Sequence) else []
    nodes_ = len(hashes) or len(last.get("shares") or ())
    digest = hashes[0] if hashes else str(last.get("state_hash") or "")
    if not nodes_ or not digest:
        return el("p", el("span", "No weights compared yet", class_="badge calm"), class_="row agreement")
    equal = len(set(hashes)) == 1 if hashes else bool(last.get("replicas_equal", True))
    text = f"identical on {nodes_} of {nodes_}" if equal else "not the same on every node"
    badge = el("span", text, class_=f"badge {'good' if equal else 'bad'}", data_testid="replicas")
    explained = (
        "Before every step the nodes compare a hash over all weights. One bit of difference stops the run."
    )
    code = el("code", f"{digest[:8]}…", data_testid="state-hash", title=digest, data_value=digest)
    return el("p", badge, code, tip("what is this?", explained), class_="row agreement")


def nodes(picture: RunPicture) -> Markup:
    """The plan and where each node's time goes: one item a node."""
    last = picture.last or {}
    shares: Sequence[int] = last.get("shares") or ()
    count = max(len(shares), len(picture.nodes))
    if not count:
        return el("p", "The nodes appear here as soon as they have met.", class_="hint")
    known = {node.get("rank"): node for node in picture.nodes}
    longest = max((sum(_split_of(last, rank)) for rank in range(count)), default=0.0)
    lost = lost_ranks(picture)
    items = [_node(rank, known.get(rank, {}), last, longest, rank in lost) for rank in range(count)]
    keys = el(
        "p",
        *(el("span", tip(name, about), class_=f"key {name}") for name, _, about in SPLIT),
        class_="keys hint",
    )
    split_step = last.get("split_step")
    when = el("span", f"of step {words.whole(split_step)}", class_="hint") if split_step else None
    return join([el("ul", *items, class_="run-nodes"), el("div", keys, when, class_="row")])


def lost_ranks(picture: RunPicture) -> set[int]:
    """The nodes that the run's record calls lost since it last began."""
    found: set[int] = set()
    for event in picture.events:
        if event.get("kind") in ("started", "resumed"):
            found.clear()
        ranks = event.get("nodes") if event.get("kind") == "lost" else None
        if isinstance(ranks, Sequence) and not isinstance(ranks, str):
            found.update(rank for rank in ranks if isinstance(rank, int))
    return found


def _split_of(last: Row, rank: int) -> list[float]:
    columns = [last.get(column) or () for _, column, _ in SPLIT]
    return [column[rank] if rank < len(column) else 0.0 for column in columns]


def _node(rank: int, node: Row, last: Row, longest_s: float, lost: bool) -> Markup:
    shares = last.get("shares") or ()
    speeds = last.get("node_samples_per_s") or ()
    share = shares[rank] if rank < len(shares) else None
    speed = speeds[rank] if rank < len(speeds) else None
    name = el("span", f"node {rank}", el("small", node.get("host") or ""), class_="node-name")
    state = el("span", "lost", class_="badge bad", data_testid=f"node-{rank}-lost") if lost else None
    plan: list[Markup] = []
    if share is not None:
        weight = figure(f"node-{rank}-weight", words.share(share, sum(shares)), share / max(1, sum(shares)))
        batch = figure(f"node-{rank}-batch", words.many(share, "sample"), share)
        plan += [el("span", el("strong", weight), " of each batch", class_="plain"), batch]
    if speed is not None:
        plan.append(
            el("span", figure(f"node-{rank}-speed", words.short(speed), speed), " samples/s while computing")
        )
    return el(
        "li",
        el("div", name, state, _device(rank, node), class_="node-head"),
        el("div", *plan, class_="node-plan"),
        _bar(rank, _split_of(last, rank), longest_s),
        class_="lost" if lost else None,
    )


def _device(rank: int, node: Row) -> Markup | None:
    parts = []
    if node.get("device"):
        parts.append(el("span", tip(node["device"], node.get("device_reason") or "the device that computes"),
                        data_testid=f"node-{rank}-device"))  # fmt: skip
    if node.get("kernel"):
        parts.append(el("span", tip(node["kernel"], node.get("kernel_reason") or "the kernel that multiplies"),
                        data_testid=f"node-{rank}-kernel"))  # fmt: skip
    return el("span", *parts, class_="node-device") if parts else None


def _bar(rank: int, split: Sequence[float], longest_s: float) -> Markup | None:
    """Compute, wait and transfer of a node's step, on the scale of the longest one's."""
    if longest_s <= 0:
        return None
    parts, said = [], []
    for (name, _, _), part_s in zip(SPLIT, split, strict=True):
        width = 100 * part_s / longest_s
        parts.append(el("span", class_=name, style=f"width:{width:.2f}%"))
        said.append(
            el("span", figure(f"node-{rank}-{name}", words.span(part_s), part_s), class_=f"key {name}")
        )
    bar = el("div", *parts, class_="split", aria_hidden="true")
    return el("div", bar, el("p", *said, class_="split-figures"))


def units(picture: RunPicture) -> Markup:
    """How often each verified unit was used, and on which kernel."""
    table = (picture.last or {}).get("unit_invocations") or {}
    if not table:
        return el(
            "p", "Nothing counted yet. A run in float arithmetic uses none of the 8-bit units.", class_="hint"
        )
    backends = sorted({backend for by in table.values() for backend in by})
    header = el(
        "tr", el("th", "unit", scope="col"), *(el("th", b, scope="col", class_="number") for b in backends)
    )
    rows = [
        el("tr", el("th", unit, scope="row"), *(_count(unit, b, by.get(b, 0)) for b in backends))
        for unit, by in sorted(table.items())
    ]
    about = el("p", "How often each 8-bit unit worked, on which kernel.", class_="hint")
    return join([about, el("div", el("table", el("thead", header), el("tbody", *rows)), class_="scroll")])


def _count(unit: str, backend: str, count: int) -> Markup:
    return el("td", figure(f"unit-{unit}-{backend}", words.whole(count), count), class_="number")


def trouble(picture: RunPicture) -> Markup:
    """What went wrong last, if the run has not gone on since."""
    if picture.alive or picture.phase == "finished":
        return Markup("")
    for event in reversed(picture.events):
        if event.get("kind") in ("started", "resumed"):
            break
        if event.get("kind") in TROUBLE:
            tone = "warn" if event["kind"] == "paused" else "bad"
            return el(
                "p", event.get("text", ""), class_=f"notice {tone}", role="status", data_testid="trouble"
            )
    return Markup("")


def events(picture: RunPicture) -> Markup:
    """What happened, the newest first."""
    shown = [event for event in picture.events if event.get("kind") != "glimpse"][-limits.EVENTS_SHOWN :]
    if not shown:
        return el("p", "What happens to the run stands here: plans, checkpoints, lost nodes.", class_="hint")
    return el(
        "ol",
        *(_event(event) for event in reversed(shown)),
        class_="events",
        tabindex="0",
        aria_label="Events",
    )


def _event(event: Row) -> Markup:
    kind = str(event.get("kind", ""))
    tone = (
        "bad"
        if kind in ("lost", "fault", "failed")
        else "warn"
        if kind in ("paused", "data", "stopped")
        else ""
    )
    step = event.get("step")
    return el(
        "li",
        el("time", words.clock(float(event.get("time_s") or 0))),
        el("span", kind, class_=f"kind {tone}"),
        el("span", event.get("text", ""), el("small", f" step {words.whole(step)}") if step else None),
    )


def glimpses(picture: RunPicture) -> Markup:
    """Samples of what the model writes as it learns, the newest first."""
    shown = [event for event in picture.glimpses if event.get("sample") or event.get("text")]
    if not shown:
        return Markup("")
    items = []
    for event in reversed(shown[-limits.GLIMPSES_SHOWN :]):
        said = [f"step {words.whole(event.get('step') or 0)}"]
        metrics = event.get("metrics")
        if isinstance(metrics, Mapping) and isinstance(metrics.get("perplexity"), (int, float)):
            said.append(f"perplexity {words.short(metrics['perplexity'])}")
        text = event.get("sample") or event.get("text")
        items.append(el("li", el("p", " · ".join(said), class_="hint"), el("blockquote", text)))
    return el("ol", *items, class_="glimpses")


def files(picture: RunPicture) -> Markup:
    """Checkpoints and the model, to download."""
    items = []
    if picture.model_bytes is not None:
        items.append(_file(picture, "model.safetensors", "the trained model", picture.model_bytes))
    for path, step, count in picture.checkpoints:
        items.append(_file(picture, path.name, f"checkpoint after step {words.whole(step)}", count))
    if not items:
        return el(
            "p", "No checkpoint yet. One is written every so often, at a stop and at the end.", class_="hint"
        )
    return el("ul", *items, class_="files")


def _file(picture: RunPicture, name: str, what: str, count: int) -> Markup:
    link = el("a", name, href=f"/runs/{picture.name}/files/{name}", download=True, data_testid=f"file-{name}")
    return el("li", link, el("span", f"{what}, {words.size(count)}", class_="hint"))
