"""Reading a run once for all who look at it, and the files of a run that can be downloaded."""

import asyncio
import json
import random
import time
from pathlib import Path

import pytest

from daisychain.base import limits
from daisychain.base.errors import RunFolderError
from daisychain.cluster.storage.history import RunReader
from daisychain.panel.downloads import find_file
from daisychain.panel.picture import RunPicture
from daisychain.panel.watch import Watches

from .panel_runs import append_rows, row, write_checkpoint, write_run, write_status


async def seen(watches: Watches, path: Path, fits, what: str) -> RunPicture:
    """The first picture that fits."""
    for _ in range(600):
        picture = watches.look(path)
        if picture is not None and fits(picture):
            return picture
        await asyncio.sleep(0.02)
    raise AssertionError(f"waited for {what}")


def test_a_picture_is_what_the_files_say_and_follows_them(tmp_path) -> None:
    run = write_run(tmp_path / "first", 40)

    async def look() -> None:
        watches = Watches()
        picture = await seen(watches, run, lambda p: p.step == 40, "the run")
        assert (picture.phase, picture.alive, picture.steps, picture.text) == (
            "training",
            True,
            300,
            "step 40",
        )
        assert picture.last == row(40)
        assert [node["host"] for node in picture.nodes] == ["host-0", "host-1", "host-2"]
        append_rows(run, range(41, 51))
        write_checkpoint(run, 50)
        later = await seen(watches, run, lambda p: p.step == 50 and p.checkpoints, "more steps")
        assert later.version > picture.version
        assert later.series["step"][-1] == 50
        assert [(path.name, step, count) for path, step, count in later.checkpoints] == [
            ("step-00000050.safetensors", 50, 1_234)
        ]
        assert picture.step == 40  # who still has the old picture has it whole
        (run / "model.safetensors").write_bytes(b"xyz")
        write_status(run, "finished", 50)
        end = await seen(watches, run, lambda p: p.phase == "finished" and p.model_bytes, "the end")
        assert (end.alive, end.model_bytes) == (False, 3)

    asyncio.run(look())


def test_many_viewers_are_one_reader_and_nobody_is_none(tmp_path) -> None:
    run = write_run(tmp_path / "first", 3)
    counts = {"opened": 0, "refreshed": 0}

    class Counting(RunReader):
        def __init__(self, path) -> None:
            counts["opened"] += 1
            super().__init__(path)

        def refresh(self) -> bool:
            counts["refreshed"] += 1
            return super().refresh()

    now_s = [100.0]

    async def look() -> None:
        watches = Watches(Counting, lambda: now_s[0])
        await seen(watches, run, lambda p: p.step == 3, "the run")
        for _ in range(500):
            watches.look(run)
        assert counts["opened"] == 1
        task = watches._task
        now_s[0] += limits.WATCH_IDLE_S + 1
        await asyncio.wait_for(task, 5)  # the reading ends with the looking
        before = counts["refreshed"]
        await asyncio.sleep(0.2)
        assert counts["refreshed"] == before
        append_rows(run, [4])
        await seen(watches, run, lambda p: p.step == 4, "the run, looked at again")
        assert counts["opened"] == 1

    asyncio.run(look())


def test_a_run_may_come_later_and_go_again(tmp_path) -> None:
    run = tmp_path / "later"

    async def look() -> None:
        watches = Watches()
        absent = await seen(watches, run, lambda p: True, "nothing")
        assert not absent.exists
        write_run(run, 3)
        await seen(watches, run, lambda p: p.exists and p.step == 3, "the run")
        for path in sorted(run.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        run.rmdir()
        gone = await seen(watches, run, lambda p: not p.exists, "its end")
        assert gone.step == 0

    asyncio.run(look())


def test_the_list_follows_the_folder(tmp_path) -> None:
    async def look() -> None:
        watches = Watches()
        assert watches.list_runs(tmp_path) is None
        for wanted in ([], ["a"], ["a", "b"]):
            for name in wanted:
                write_run(tmp_path / name, 1)
            for _ in range(300):
                runs = watches.list_runs(tmp_path)
                if runs is not None and sorted(run.name for run in runs) == wanted:
                    break
                await asyncio.sleep(0.02)
            else:
                raise AssertionError(wanted)

    asyncio.run(look())


def test_a_reader_that_breaks_does_not_end_the_others(tmp_path, capsys) -> None:
    good = write_run(tmp_path / "good", 3)

    def open_reader(path):
        if path.name == "bad":
            raise RuntimeError("no")
        return RunReader(path)

    async def look() -> None:
        watches = Watches(open_reader)
        bad = await seen(watches, tmp_path / "bad", lambda p: True, "the bad one")
        assert "cannot be read" in bad.text
        await seen(watches, good, lambda p: p.step == 3, "the good one")

    asyncio.run(look())
    assert capsys.readouterr().err.count("cannot be read") == 1


def test_looking_at_everything_takes_bounded_memory(tmp_path) -> None:
    async def look() -> None:
        watches = Watches()
        for number in range(3 * limits.WATCH_RUNS):
            watches.look(tmp_path / f"run-{number}")
        assert len(watches._watched) == limits.WATCH_RUNS
        await asyncio.sleep(0)
        watches._task.cancel()

    asyncio.run(look())


def test_a_hundred_thousand_steps_become_few_points(tmp_path) -> None:
    run = tmp_path / "long"
    run.mkdir()
    line = json.dumps(row(1))
    cut = line.index(",")
    with (run / "metrics.jsonl").open("w") as file:
        for step in range(1, 100_001):
            file.write(f'{{"step": {step}{line[cut:]}\n')

    async def look() -> None:
        picture = await seen(Watches(), run, lambda p: p.step == 100_000, "all steps")
        assert len(picture.series["loss"]) <= limits.CHART_POINTS

    asyncio.run(look())


# Downloads


def test_files_of_a_run_are_found_by_name(tmp_path) -> None:
    run = write_run(tmp_path / "first", 3)
    checkpoint = write_checkpoint(run, 50)
    (run / "model.safetensors").write_bytes(b"x")
    assert find_file(tmp_path, "first", checkpoint.name) == checkpoint
    assert find_file(tmp_path, "first", "model.safetensors") == run / "model.safetensors"
    assert find_file(tmp_path, "first", "metrics.jsonl") == run / "metrics.jsonl"


def test_nothing_else_is_found(tmp_path) -> None:
    run = write_run(tmp_path / "runs/first", 3)
    (tmp_path / "runs/secret.txt").write_text("x")
    (run / "lock").write_text("x")
    (run / "checkpoints/secret.safetensors").write_text("x")
    (run / "checkpoints/step-x.safetensors.d").mkdir()
    (run / "model.safetensors").symlink_to(tmp_path / "runs/secret.txt")
    (run / "checkpoints/step-00000001.safetensors").symlink_to(tmp_path / "runs/secret.txt")
    (tmp_path / "runs/linked").symlink_to(run)
    (tmp_path / "runs/second").mkdir()
    (tmp_path / "runs/second/checkpoints").symlink_to(run / "checkpoints")
    names = ["lock", "secret.safetensors", "../secret.txt", "checkpoints/../lock", "..", ".", "", "config.json\0",
             "model.safetensors", "step-00000001.safetensors", "/etc/passwd", "status.json", "step-x.safetensors.d",
             "nodes.json/"]  # fmt: skip
    for name in names:
        for folder in ("first", "second", "linked", "..", ".", "", "first/../first", "/", "absent"):
            with pytest.raises(RunFolderError):
                find_file(tmp_path / "runs", folder, name)


def test_random_names_never_leave_the_run(tmp_path) -> None:
    run = write_run(tmp_path / "runs/first", 3)
    write_checkpoint(run, 50)
    seed = time.time_ns()
    print(f"seed {seed}")
    draw = random.Random(seed)
    parts = [
        "..",
        ".",
        "/",
        "\\",
        "first",
        "checkpoints",
        "step-",
        "00000050",
        ".safetensors",
        "config.json",
        "\0",
        "~",
        "%2e",
        "é",
    ]
    for _ in range(3_000):
        folder, name = ("".join(draw.choices(parts, k=draw.randrange(1, 5))) for _ in range(2))
        try:
            found = find_file(tmp_path / "runs", draw.choice([folder, "first"]), name)
        except RunFolderError:
            continue
        assert found.resolve().is_relative_to(run.resolve())
        assert found.name == name
