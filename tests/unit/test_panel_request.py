"""What a form may ask a trainer for: all of it typed and bounded, and none of it able to be more than one argument."""

import json
import random
import secrets

import pytest

from daisychain.base import limits
from daisychain.base.errors import DaisyError
from daisychain.nn.spikewhale import PARTS, PRESETS
from daisychain.panel.request import CHECKS, JobRequest, recalled

HOSTILE = (
    float("nan"),
    float("inf"),
    -float("inf"),
    -1,
    -0.5,
    1e308,
    10**400,
    -(10**5_000),
    True,
    None,
    "",
    "8",
    "; rm -rf /",
    "$(touch x)",
    "--save=/etc/passwd",
    "../../etc/passwd",
    "a/../../b",
    "a\0b",
    "a\nb",
    "x" * 100_000,
    "\ud800",
    [],
    ["engram", 3],
    [["engram"]],
    {},
    {"a": 1},
    object(),
    b"bytes",
)


def flags(request: JobRequest) -> dict[str, str]:
    return dict(argument[2:].split("=", 1) for argument in request.arguments())


def test_the_command_of_a_spikewhale() -> None:
    request = JobRequest(width=64, layers=3, heads=4, sequence=96, without=("refinement", "engram"), steps=7)
    said = flags(request)
    assert (said["task"], said["width"], said["layers"], said["heads"]) == ("spikewhale", "64", "3", "4")
    assert said["without"] == ",".join(part for part in PARTS if part in ("engram", "refinement"))
    assert float(said["lr"]) == request.learning_rate
    assert "dataset" not in said
    assert "data" not in said
    assert flags(JobRequest(arithmetic="float"))["task"] == "spikewhale-float"


def test_the_commands_of_other_tasks_say_no_more_than_they_take() -> None:
    digits = flags(JobRequest(task="digits", source="file", data="/x"))
    table = flags(JobRequest(task="table", source="file", data="/x.csv", target="a b, c"))
    assert "data" not in digits
    assert "width" not in digits
    assert (table["data"], table["target"]) == ("/x.csv", "a b, c")
    hub = flags(JobRequest(source="dataset", dataset="me/my-data", split="train", column="text"))
    assert (hub["dataset"], hub["split"], hub["on-data-failure"]) == ("me/my-data", "train", "stop")


def test_a_run_that_goes_on_keeps_its_own_settings() -> None:
    assert JobRequest(resume="old", steps=90, nodes=2).arguments() == [
        "--resume",
        "--name=old",
        "--steps=90",
        "--nodes=2",
    ]


@pytest.mark.parametrize(
    "values",
    [
        {"width": 33},
        {"width": 800},
        {"width": 64.5},
        {"steps": 0},
        {"steps": limits.PANEL_MAX_STEPS + 1},
        {"learning_rate": 0},
        {"learning_rate": float("nan")},
        {"nodes": 65},
        {"task": "my.module:Class"},
        {"task": "spikewhale-float"},
        {"preset": "enormous"},
        {"source": "dataset"},
        {"source": "dataset", "dataset": "no-owner"},
        {"source": "dataset", "dataset": "../secret/x"},
        {"source": "dataset", "dataset": "https://example.org/x"},
        {"source": "dataset", "dataset": "a/b", "task": "text"},
        {"source": "file"},
        {"task": "table", "source": "file", "data": "/x.csv"},
        {"name": "../x"},
        {"name": "con"},
        {"name": "-x"},
        {"resume": "a/b"},
        {"unknown": 1},
        {"__class__": 1},
        {5: 1},
    ],
)
def test_what_cannot_be_asked_for(values) -> None:
    with pytest.raises(DaisyError) as caught:
        JobRequest.of(values)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("values", [None, 3, "x", [("task", "digits")]])
def test_settings_are_an_object(values) -> None:
    with pytest.raises(DaisyError, match="must be an object"):
        JobRequest.of(values)


def test_whatever_comes_over_a_socket_is_refused_or_is_a_safe_command() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    accepted = 0
    for _ in range(3_000):
        values = {
            chance.choice([*CHECKS, "extra"]): chance.choice(
                [*HOSTILE, *PRESETS, "digits", 32, 64, ["engram"]]
            )
            for _ in range(chance.randrange(1, 4))
        }
        try:
            request = JobRequest.of(values)
        except DaisyError:
            continue
        accepted += 1
        for argument in request.arguments():
            assert argument.startswith("--"), values
            assert argument.isprintable(), values
            assert len(argument) < 1_100, values
        assert JobRequest.of(json.loads(json.dumps(request.as_json()))) == request
    assert accepted > 50


def test_what_a_page_remembers_is_used_as_far_as_it_can_be() -> None:
    kept = recalled(
        {"width": 64, "layers": "many", "learning_rate": float("nan"), "extra": 1, "without": ["engram"]}
    )
    assert (kept["width"], kept["layers"], kept["without"]) == (64, JobRequest.layers, ("engram",))
    assert kept["learning_rate"] == JobRequest.learning_rate
    assert "extra" not in kept
    assert recalled("nonsense") == recalled({})
    assert JobRequest.of(recalled({})) == JobRequest()
    for name in CHECKS:
        for value in HOSTILE:
            recalled({name: value})
