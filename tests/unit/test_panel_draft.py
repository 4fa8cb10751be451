"""Settings on their way: what a browser keeps of them, what they take, what a model is asked to write."""

import ast
import asyncio
import base64
import json
import random
import secrets
import sys
import threading

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from daisychain.base import limits
from daisychain.base.errors import ConfigError, DaisyError
from daisychain.cluster.estimate import Estimate, Rate, fits
from daisychain.nn.spikewhale import PARTS, PRESETS
from daisychain.panel.request import TASKS, JobRequest
from daisychain.panel.train import sizing, words
from daisychain.panel.train.draft import STARTS, WHERE, Draft
from daisychain.panel.train.routes import UPLOAD_ROUTE, body_limit, upload_route
from daisychain.panel.train.sizing import Sizer, on_the_page
from daisychain.panel.train.writing import Wish, Writer
from daisychain.panel.uploads import Uploads
from daisychain.tasks.digits import DigitsTask
from daisychain.tasks.spikewhale import SpikeWhaleTask, rate_for
from daisychain.tasks.table import TableTask
from daisychain.tasks.text import TextTask


def test_every_part_place_and_task_is_explained() -> None:
    assert set(words.PARTS) == set(PARTS)
    assert set(words.PRESETS) == set(PRESETS)
    assert set(words.TASKS) == set(TASKS) == set(STARTS)
    assert set(words.PLACES) == set(WHERE)


def test_a_cookie_brings_back_what_was_set() -> None:
    draft = Draft()
    draft.choose_preset("small")
    draft.choose_where("fineweb")
    draft.switch_part("engram", False)
    draft.values["steps"] = 77
    again = Draft.of_cookie(draft.as_cookie())
    assert (again.values, again.where) == (draft.values, "fineweb")
    assert again.request() == draft.request()
    assert again.model() == draft.model()
    assert not again.model().has("engram")
    again.switch_part("engram", True)
    assert again.values["without"] == ()
    assert len(draft.as_cookie()) < 400
    draft.values["data"] = "x" * 5_000
    assert draft.as_cookie() == ""  # rather none than a part


def test_a_cookie_is_not_trusted() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)

    def packed(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    hostile = [
        "",
        "=",
        "a",
        "ü",
        "x" * 10_000,
        packed([]),
        packed(3),
        packed("x"),
        packed({"where": ["hub"]}),
    ]
    hostile += [packed({"source": "file", "where": "fineweb"}), packed({"task": "digits", "where": "hub"})]
    hostile += [packed({"resume": "some-run", "name": "mine", "width": 1e9}), "W" * 2_000]
    hostile += [
        "".join(chr(chance.randrange(33, 127)) for _ in range(chance.randrange(60))) for _ in range(300)
    ]
    for cookie in hostile:
        draft = Draft.of_cookie(cookie)
        assert draft.where in draft.places(), cookie
        assert draft.values["resume"] is None, cookie
        draft.model()
        try:
            draft.request()
        except DaisyError:
            continue


def test_another_task_brings_its_own_beginnings_and_places() -> None:
    draft = Draft()
    draft.choose_where("fineweb")
    draft.choose_task("table")
    assert draft.where == "upload"
    assert draft.values["dataset"] is None
    assert "choose a" in (draft.missing() or "") or "upload" in (draft.missing() or "")
    draft.choose_task("digits")
    assert draft.missing() is None
    assert Draft(local=False).places() == tuple(place for place in WHERE if place != "path")


def test_from_elsewhere_no_path_of_this_machine_is_looked_at() -> None:
    here = Draft({"task": "table", "source": "file", "data": "/etc/passwd"}, "path")
    draft = Draft.of_cookie(here.as_cookie(), local=False)
    assert (draft.where, draft.values["data"]) == ("upload", None)
    draft.take(JobRequest("text", source="file", data="/etc/passwd"))
    assert (draft.where, draft.values["data"]) == ("embedded", None)


def test_a_file_that_was_brought_stays_one_after_its_run() -> None:
    request = JobRequest("text", source="file", data="/runs/.uploads/0123456789abcdef.txt")
    draft = Draft(local=False)
    draft.take(request)
    assert (draft.where, draft.request()) == ("upload", request)


def test_tasks_begin_as_in_a_terminal() -> None:
    tasks = {"spikewhale": SpikeWhaleTask, "text": TextTask, "table": TableTask, "digits": DigitsTask}
    for name, task in tasks.items():
        draft = Draft()
        draft.choose_task(name)
        chosen = draft.values
        rate = rate_for(chosen["width"]) if name == "spikewhale" else task.learning_rate
        assert (chosen["learning_rate"], chosen["batch"], chosen["warmup"]) == (
            rate,
            task.batch_samples,
            task.warmup_steps,
        )
    assert Draft().values["warmup"] == SpikeWhaleTask.warmup_steps
    assert Draft().values["learning_rate"] == rate_for(32)


def test_the_rate_goes_with_the_width_until_somebody_sets_it() -> None:
    draft = Draft()
    draft.choose_width(64)
    assert draft.values["learning_rate"] == 0.005
    draft.choose_preset("medium")
    assert draft.values["learning_rate"] == 0.001
    draft.values["learning_rate"] = 0.02
    draft.choose_preset("tiny")
    assert draft.values["learning_rate"] == 0.02


def test_every_preset_fits_the_sliders() -> None:
    for name in PRESETS:
        draft = Draft()
        draft.choose_preset(name)
        draft.request()
        assert draft.model().sequence <= limits.PANEL_SEQUENCES[1]
        assert draft.preset_shown() == name
    draft.values["width"] = 704
    assert draft.preset_shown() == ""


def test_a_run_gives_its_settings_back() -> None:
    draft = Draft()
    draft.values |= {"width": 96, "without": ("engram",)}
    again = Draft()
    again.take(draft.request())
    assert again.values == draft.values


def test_what_does_not_fit_is_said_in_the_words_of_the_page() -> None:
    found = Estimate(1, 5 * 10**9, None, {"activations": 2}, "4 GB for this, 1 GB for that")
    said = on_the_page(fits(found, 10**9, 2), found) or ""
    assert said.startswith("2 nodes with 5 GB each would take")
    assert said.endswith(
        "are free here; use fewer nodes here, fewer samples a step, a shorter sequence, or fewer layers."
    )
    assert on_the_page(None, found) is None


def test_while_the_machine_is_measured_models_are_reckoned(monkeypatch) -> None:
    """Many changes wait for one measurement, and nothing waits behind it."""
    gate, measured = threading.Event(), []

    def slow() -> Rate:
        measured.append(1)
        assert gate.wait(20)
        return Rate(1e9, 1e9, 1e-6)

    monkeypatch.setattr(sizing, "measure_rate", slow)

    async def many() -> None:
        sizer, config = Sizer(), Draft().model()
        waiting = [asyncio.create_task(sizer.measure()) for _ in range(20)]
        first = await asyncio.wait_for(sizer.size(config, 2, 1, 10, lambda: True), 20)
        assert first is not None
        assert first.estimate is not None
        assert (first.steps_s, first.unfit) == (None, None)
        assert await sizer.size(config, 2, 1, 10, lambda: False) is None
        gate.set()
        assert all(await asyncio.gather(*waiting))
        second = await sizer.size(config, 2, 1, 10, lambda: True)
        assert second is not None
        assert second.steps_s == pytest.approx(10 * second.estimate.step_s)
        assert not await sizer.measure()

    asyncio.run(many())
    assert measured == [1]


WRITER = """
import sys, time
print([a for a in sys.argv[1:]], flush=True)
if "--seed=1" in sys.argv: time.sleep(60)
if "--seed=2" in sys.argv:
    while True: print("x" * 1000)
if "--seed=3" in sys.argv: sys.exit("error: the model is broken.")
"""


def writer(tmp_path, limit_s: float = 20.0) -> Writer:
    script = tmp_path / "writer.py"
    script.write_text(WRITER)
    return Writer((sys.executable, str(script)), limit_s)


def test_a_prompt_is_one_argument_and_what_is_written_comes_back(tmp_path) -> None:
    shown: list[str] = []
    prompt = '--tokens=9"; touch x\n$(id) é'
    said = asyncio.run(writer(tmp_path).write(tmp_path / "-m.safetensors", Wish(prompt), shown.append))
    assert said == ""
    arguments = ast.literal_eval("".join(shown))
    assert arguments[0] == f"--prompt={prompt}"
    assert arguments[-2:] == ["--", str((tmp_path / "-m.safetensors").resolve())]


@pytest.mark.parametrize(
    ("seed", "limit_s", "said"),
    [(1, 0.5, "stopped after"), (2, 20.0, "as long as"), (3, 20.0, "the model is broken.")],
)
def test_a_writer_is_limited(tmp_path, seed, limit_s, said) -> None:
    shown: list[str] = []
    answer = asyncio.run(writer(tmp_path, limit_s).write(tmp_path / "m", Wish("a", seed=seed), shown.append))
    assert said in answer
    assert len("".join(shown)) <= limits.PROMPT_OUTPUT_BYTES


def test_one_text_at_a_time_and_cancelling_ends_it(tmp_path) -> None:
    async def two() -> None:
        one, begun = writer(tmp_path), asyncio.Event()
        task = asyncio.create_task(one.write(tmp_path / "m", Wish("a", seed=1), lambda _: begun.set()))
        await asyncio.wait_for(begun.wait(), 20)
        with pytest.raises(ConfigError, match="another text"):
            await one.write(tmp_path / "m", Wish("b"), lambda _: None)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await one.write(tmp_path / "m", Wish("c"), lambda _: None) == ""

    asyncio.run(two())


@pytest.mark.parametrize(
    "wish",
    [
        {"prompt": 3},
        {"prompt": "x" * 5_000},
        {"prompt": "a\0"},
        {"prompt": "\ud800"},
        {"prompt": "a", "tokens": 0},
        {"prompt": "a", "tokens": 10**9},
        {"prompt": "a", "temperature": float("nan")},
        {"prompt": "a", "temperature": -1},
        {"prompt": "a", "seed": "x"},
    ],
)
def test_what_cannot_be_wished_for(wish) -> None:
    with pytest.raises(ConfigError):
        Wish(**wish)


def test_uploads_over_http(tmp_path, monkeypatch) -> None:
    uploads = Uploads(tmp_path / ".uploads")
    client = TestClient(Starlette(routes=[upload_route(uploads)]))
    kept = client.post(f"{UPLOAD_ROUTE}?kind=csv&name=../x.csv", content=b"a,b\n1,2\n")
    assert (kept.status_code, kept.json()) == (200, {"file": uploads.list()[0].path.name})
    assert uploads.list()[0].shown == "x.csv"
    refused = client.post(f"{UPLOAD_ROUTE}?kind=csv&name=x", content=b"\0")
    assert (refused.status_code, "no text" in refused.json()["error"]) == (400, True)
    monkeypatch.setattr(limits, "UPLOAD_MAX_BYTES", 1_000)
    large = client.post(f"{UPLOAD_ROUTE}?kind=text&name=x", content=b"a" * 1_001)
    assert large.status_code == 413
    assert client.get(UPLOAD_ROUTE).status_code == 405
    assert len(uploads.list()) == 1
    assert body_limit(UPLOAD_ROUTE) > limits.UPLOAD_MAX_BYTES
    assert body_limit("/train") == body_limit(f"{UPLOAD_ROUTE}/x") == limits.PANEL_BODY_BYTES
