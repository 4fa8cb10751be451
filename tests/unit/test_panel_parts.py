"""What pages are made of: markup, words, charts, and the parts of a run's and of the fleet's page."""

import html
import math
import random
import re
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from daisychain.agent.view import (
    BLOCKED,
    DEAD,
    REACHABLE,
    SELF,
    SLOW,
    UNKNOWN,
    Cell,
    Finding,
    Matrix,
    NodeView,
    Pool,
)
from daisychain.base import limits
from daisychain.panel import fleet_parts, run_parts, runs_parts, words
from daisychain.panel.charts import comparison_chart, run_chart
from daisychain.panel.live import points_of
from daisychain.panel.markup import Markup, el, figure
from daisychain.panel.picture import RunPicture

from .panel_runs import HASH, event, node, row

STATIC = Path(fleet_parts.__file__).parent / "static"
PARTS = (
    run_parts.head,
    run_parts.facts,
    run_parts.agreement,
    run_parts.nodes,
    run_parts.units,
    run_parts.trouble,
    run_parts.events,
    run_parts.glimpses,
    run_parts.files,
)


def picture(**changes) -> RunPicture:
    base = {
        "path": Path("runs/first"),
        "exists": True,
        "phase": "training",
        "alive": True,
        "step": 40,
        "steps": 300,
        "config": {"task": "digits"},
        "nodes": tuple(node(rank) for rank in range(3)),
        "last": row(40),
    }
    return RunPicture(**{**base, **changes})


class Seen(HTMLParser):
    """Figures by their testid: the value and the text; all tags; and whether every element is closed."""

    def __init__(self, markup: Markup) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[tuple[str, str]] = []
        self.values: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.feed(str(markup))
        assert self.open == [], markup

    def handle_starttag(self, tag, attributes) -> None:
        self.tags.append(tag)
        known = dict(attributes)
        testid = known.get("data-testid", "")
        if testid:
            self.values[testid] = known.get("value", known.get("data-value", ""))
            self.texts[testid] = ""
        if tag not in ("br", "col", "hr", "img", "input"):
            self.open.append((tag, testid))

    def handle_endtag(self, tag) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data) -> None:
        for _, testid in self.open:
            if testid:
                self.texts[testid] += data


def test_text_becomes_text_wherever_it_stands() -> None:
    evil = "\"'><script>alert(1)</script>&amp;"
    markup = el("p", evil, [evil, None, 3], title=evil, class_="x", hidden=True, open=False)
    seen = Seen(markup)
    assert seen.tags == ["p"]
    assert (
        markup
        == f'<p title="{html.escape(evil).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")}" class="x" hidden>'
        + (html.escape(evil).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") * 2 + "3</p>")
    )
    assert el("br") == "<br>"
    assert figure("loss", "0.5", 0.5) == '<data value="0.5" data-testid="loss">0.5</data>'


def test_hostile_names_never_become_elements() -> None:
    evil = '"><img src=x onerror=alert(1)>'
    hostile = picture(
        path=Path("runs") / evil,
        text=evil,
        config={"task": evil},
        nodes=({**node(0), "host": evil, "device": evil, "device_reason": evil, "kernel": evil},),
        last=row(40, unit_invocations={evil: {evil: 3}}, state_hash=evil),
        events=(event("plan", 3, evil), event("failed", 3, evil), event(evil, 1, evil)),
        glimpses=(event("glimpse", 3, evil, metrics={"perplexity": 3.0}),),
        checkpoints=((Path(evil), 3, 4),),
        phase=evil,
        alive=False,
    )
    for part in PARTS:
        assert "img" not in Seen(part(hostile)).tags, part


def test_every_figure_of_a_run_carries_its_value() -> None:
    seen = Seen(Markup("").join(part(picture()) for part in PARTS))
    last = row(40)
    assert float(seen.values["loss"]) == last["loss"]
    assert seen.texts["loss"] == "1.6429"
    assert seen.texts["step"] == "40 of 300"
    assert float(seen.values["left-s"]) == last["left_s"]
    for rank in range(3):
        assert float(seen.values[f"node-{rank}-compute"]) == last["node_compute_s"][rank]
        assert float(seen.values[f"node-{rank}-wait"]) == last["node_wait_s"][rank]
        assert float(seen.values[f"node-{rank}-transfer"]) == last["node_transfer_s"][rank]
        assert float(seen.values[f"node-{rank}-batch"]) == last["shares"][rank]
    assert seen.texts["node-0-weight"] == "41%"
    assert seen.texts["node-1-compute"] == "3.2 ms"
    assert seen.texts["unit-multiply-sgemm"] == "1,372,160"
    assert seen.texts["unit-multiply-int_mm"] == "0"
    assert (seen.texts["replicas"], seen.texts["state-hash"]) == ("identical on 3 of 3", "39beaab9…")


def test_bars_are_on_one_scale() -> None:
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", str(run_parts.nodes(picture())))]
    sums = [sum(widths[i : i + 3]) for i in range(0, 9, 3)]
    assert max(sums) == pytest.approx(100, abs=0.05)
    assert all(width >= 0 for width in widths)


def test_a_hash_that_differs_is_said() -> None:
    seen = Seen(run_parts.agreement(picture(last=row(40, replicas_equal=False))))
    assert seen.texts["replicas"] == "not the same on every node"
    ends = {"state_hashes": [HASH, HASH[::-1], HASH]}
    assert Seen(run_parts.agreement(picture(summary=ends))).texts["replicas"] == "not the same on every node"
    ends = {"state_hashes": ["a" * 64] * 3}
    assert Seen(run_parts.agreement(picture(summary=ends))).texts["state-hash"] == "aaaaaaaa…"


def test_a_lost_node_is_marked_until_the_run_goes_on() -> None:
    events = [event("started", 0, "start"), event("lost", 40, "node 2 on host-2 is gone", nodes=[2])]
    ended = picture(events=tuple(events), alive=False, phase="failed")
    seen = Seen(Markup("").join([run_parts.nodes(ended), run_parts.trouble(ended)]))
    assert seen.texts["trouble"] == "node 2 on host-2 is gone"
    assert [rank for rank in range(3) if f"node-{rank}-lost" in seen.texts] == [2]
    resumed = picture(events=(*events, event("resumed", 40, "goes on")))
    assert run_parts.trouble(resumed) == ""
    assert "lost" not in str(run_parts.nodes(resumed))


def test_pictures_of_almost_nothing_are_fine() -> None:
    empty = RunPicture(Path("runs/none"))
    odd = picture(
        last={"step": 3},
        nodes=({},),
        summary={"metrics": "?", "state_hashes": 3},
        events=({},),
        glimpses=({},),
    )
    for shown in (empty, odd, picture(last=None, nodes=(), steps=0)):
        for part in PARTS:
            Seen(part(shown))


def test_figures_beyond_every_number_are_left_out() -> None:
    end = {"metrics": {"perplexity": 10**400, "accuracy": float("nan")}}
    assert not {"perplexity", "accuracy"} & {*Seen(run_parts.facts(picture(summary=end))).values}


def test_held_out_figures_come_from_the_newest_glimpse_or_the_end() -> None:
    glimpses = tuple(event("glimpse", step, "Once", metrics={"perplexity": 90.0 - step}) for step in (10, 20))
    assert float(Seen(run_parts.facts(picture(glimpses=glimpses))).values["perplexity"]) == 70.0
    end = {"metrics": {"accuracy": 0.986, "perplexity": True}}
    stopped = Seen(run_parts.facts(picture(glimpses=glimpses, summary={"metrics": {}})))
    assert float(stopped.values["perplexity"]) == 70.0
    seen = Seen(run_parts.facts(picture(glimpses=glimpses, summary=end)))
    assert seen.texts["accuracy"] == "98.6%"
    assert "perplexity" not in seen.texts


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (words.size(0), "0 B"),
        (words.size(999), "999 B"),
        (words.size(208_640), "209 KB"),
        (words.size(12_340_000), "12.3 MB"),
        (words.memory(25_276_059_648), "23.5 GiB"),
        (words.span(0.0), "0 µs"),
        (words.span(0.00088), "880 µs"),
        (words.span(0.0123), "12.3 ms"),
        (words.span(0.9999), "1 s"),
        (words.duration(59.6), "1 min 0 s"),
        (words.duration(12_345), "3 h 25 min"),
        (words.duration(None), words.NONE),
        (words.duration(math.inf), words.NONE),
        (words.short(1_744.25), "1,744"),
        (words.short(5_680_000), "5.68 M"),
        (words.short(0.01234), "0.0123"),
        (words.loss(0.54964), "0.5496"),
        (words.loss(math.nan), words.NONE),
        (words.many(1, "node"), "1 node"),
        (words.share(13, 32), "41%"),
        (words.clock(math.inf), words.NONE),
        (words.phase("training"), ("Training", "good")),
        (words.phase("odd"), ("Odd", "calm")),
    ],
)
def test_words(said, expected) -> None:
    assert said == expected


def test_charts_are_given_what_a_screen_can_show() -> None:
    series = {
        "step": [1, 2, 3],
        "loss": [2.3456789, math.pi, 99.0],
        "samples_per_s": [1.0, 2.0, 3.0],
        "trained_s": [0.1, 0.2, 0.30001],
    }
    data = run_chart(series, 300)
    assert (data["xs"], points_of(data)) == ([[1, 2, 3]], 6)
    assert data["panes"][0]["lines"][0]["y"] == [2.3457, 3.1416, 99.0]
    assert points_of(run_chart(None, 0)) == 0
    both = comparison_chart(
        [("a", series), ("b", {"step": [1], "loss": [1.0], "trained_s": [9.0]})], "trained_s"
    )
    assert both["most"] == 9.0
    assert [line["name"] for line in both["panes"][0]["lines"]] == ["a", "b"]
    assert points_of(both) == 4


def test_the_axis_ends_not_far_beyond_the_curve() -> None:
    ends = [
        run_chart({"step": [step], "loss": [1.0]}, 300)["most"]
        for step in (1, 10, 75, 76, 150, 151, 299, 300, 400)
    ]
    assert ends == [2, 19, 75, 150, 150, 300, 300, 300, 400]
    assert run_chart(None, 300)["most"] == 300


def test_random_runs_give_markup_that_closes() -> None:
    seed = time.time_ns()
    print(f"seed {seed}")
    draw = random.Random(seed)
    for _ in range(200):
        nodes = draw.randrange(5)
        floats = [draw.choice([0.0, 1e-9, 3.5, 1e12]) for _ in range(draw.randrange(6))]
        last = row(draw.randrange(10**6), shares=[draw.randrange(9) for _ in range(nodes)], node_compute_s=floats,
                   node_samples_per_s=floats, unit_invocations=draw.choice([None, {}, {"relu": {}}]))  # fmt: skip
        shown = picture(last=last, nodes=tuple(node(rank) for rank in range(draw.randrange(5))))
        for part in PARTS:
            Seen(part(shown))


# The fleet


def machine(name: str, **changes) -> NodeView:
    from daisychain.agent.view import Report

    fields = {"name": name, "host": name, "instance": "a" * 16, "sequence": 1, "version": "1", "time_s": 0.0,
              "address": "192.168.1.20", "address_reason": "the route", "probe_port": 29_570, "cores": 4,
              "memory_bytes": 8 << 30, "memory_free_bytes": 5 << 30, "proof": "ready", "device": "cpu",
              "backend": "sgemm", "temperature_c": 61.0}  # fmt: skip
    silent_s = changes.pop("silent_s", 0.5)
    return NodeView(
        Report(**{**fields, **changes}),
        silent_s=silent_s,
        unreported_s=silent_s,
        dead=silent_s > 3,
        clock_off_s=0.0,
    )


def test_every_way_has_a_sign_a_word_and_a_sentence() -> None:
    states = (SELF, REACHABLE, SLOW, BLOCKED, DEAD, UNKNOWN)
    cells = [Cell(state, f"sentence of {state}", 0.0004, 110.0) for state in states]
    names = tuple("abcdef")
    markup = fleet_parts.matrix(Matrix(names, tuple(tuple(cells) for _ in names)))
    seen = Seen(markup)
    shown = [seen.texts[f"way-a-{name}"] for name in names[1:]]
    words_ = ("✓ open", "◔ slow", "✕ blocked", "☾ silent", "? unknown")
    assert shown == [f"{each}400 µs110 MB/s" for each in words_]
    for state in states[1:]:
        assert f'data-tip="sentence of {state}"' in markup


def test_machines_say_what_they_are_and_that_they_are_silent() -> None:
    seen = Seen(
        fleet_parts.machines(
            [machine("attic"), machine("cellar", silent_s=12.0), machine("new", proof="proving", device=None)]
        )
    )
    assert "61 °C" in seen.texts["machine-attic"]
    assert "5 of 8 GiB free" in seen.texts["machine-attic"]
    assert "silent for 12 s" in seen.texts["machine-cellar"]
    assert "proving its kernels" in seen.texts["machine-new"]
    assert Seen(fleet_parts.pool(Pool(3, 14, 52 << 30, 40 << 30))).texts["pool-memory"] == "52 GiB"


def test_the_banner_has_the_tone_of_what_it_says() -> None:
    banner = fleet_parts.banner([Finding("bad", "1 of 2 nodes ready"), Finding("warn", "node a is hot")])
    assert 'class="notice bad"' in banner
    assert Seen(banner).texts["findings"] == "node a is hot"


def test_the_invitation_names_this_dashboard() -> None:
    assert "daisychain agent --dashboard http://10.0.0.2:8080</code>" in fleet_parts.invitation(
        "http://10.0.0.2:8080", False
    )
    assert "--token TOKEN" in fleet_parts.invitation("http://10.0.0.2:8080", True)


def test_a_long_list_of_runs_is_cut_and_says_so() -> None:
    from daisychain.cluster.storage.history import Listed

    runs = [
        Listed(f"run-{i}", Path(f"runs/run-{i}"), "digits", "finished", "", 3, 3, 1, 0.5, 0.0)
        for i in range(limits.RUNS_SHOWN + 2)
    ]
    markup = runs_parts.run_list(runs)
    assert Seen(markup).tags.count("input") == limits.RUNS_SHOWN
    assert "2 older runs are not listed" in markup


# The look


def _tokens(path: Path) -> dict[str, str]:
    return dict(re.findall(r"(--[a-z-]+): ([^;]+);", path.read_text(encoding="utf-8").split("}")[0]))


def test_pages_have_the_colours_of_the_room() -> None:
    """One product: the two kinds of pages must not drift apart."""
    room = STATIC.parents[1] / "static/ui"
    for ours, theirs in (("tokens.css", "base.css"), ("dark.css", "dark.css")):
        own, other = _tokens(STATIC / ours), _tokens(room / theirs)
        assert {name: value for name, value in own.items() if name in other} == other
        assert set(own) - set(other) == {"--sky", "--sky-faint", "--plum"}


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(a: str, b: str) -> float:
    high, low = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("sheet", ["tokens.css", "dark.css"])
def test_text_can_be_read_on_its_ground(sheet) -> None:
    colour = {**_tokens(STATIC / "tokens.css"), **_tokens(STATIC / sheet)}
    pairs = [(ink, ground) for ink in ("--ink", "--soft") for ground in ("--ground", "--card", "--well")]
    pairs += [(name, f"{name}-faint") for name in ("--leaf", "--warn", "--bad", "--sky")]
    pairs += [(name, "--card") for name in ("--leaf", "--warn", "--bad", "--sky", "--plum")]
    for ink, ground in [*pairs, ("--leaf-ink", "--leaf"), ("--card", "--ink")]:
        assert _contrast(colour[ink], colour[ground]) >= 4.5, (ink, ground)
