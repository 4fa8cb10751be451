"""One run a folder, and names that cannot leave it."""

import json
import os
import signal
import subprocess
import sys

import pytest

from daisychain.base.errors import RunFolderError
from daisychain.cluster.storage.run_folder import (
    RunFolder,
    check_name,
    complete_metrics,
    fresh_name,
    newest_run,
    run_id_of,
)

HOLDER = """
import sys, time
from pathlib import Path
from daisychain.cluster.storage.run_folder import RunFolder
folder = RunFolder(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "a\\b",
        "/etc",
        "-x",
        ".hidden",
        "a\0b",
        "a b",
        "con",
        "NUL.txt",
        "x.",
        "é",
        "a" * 101,
        "a\n",
    ],
)
def test_names_that_could_lead_elsewhere_are_refused(name, tmp_path):
    with pytest.raises(RunFolderError, match="cannot be the name"):
        RunFolder.create(tmp_path / "runs", name, "digits")
    assert not (tmp_path / "runs").exists()


def test_fresh_names_are_fit_and_free(tmp_path):
    for task in ("digits", "my.module:Task", "../..", "", "x" * 60):
        name = fresh_name(tmp_path, task)
        assert check_name(name) == name
    first = fresh_name(tmp_path, "digits")
    (tmp_path / first).mkdir()
    assert fresh_name(tmp_path, "digits") != first


def test_two_runs_in_one_folder_are_refused_with_the_owner_named(tmp_path):
    with RunFolder.create(tmp_path, "one", "digits") as folder:
        with pytest.raises(RunFolderError, match=rf"in use by process {os.getpid()} on "):
            RunFolder.create(tmp_path, "one", "digits")
        folder.begin({"seed": 1}, 0)
    with pytest.raises(RunFolderError, match="holds a run already"):
        RunFolder.create(tmp_path, "one", "digits")
    with RunFolder(tmp_path / "one"):  # to resume it is fine
        assert json.loads((tmp_path / "one" / "config.json").read_text()) == {
            "seed": 1,
            "run_id": folder.run_id,
        }


def test_the_lock_dies_with_its_process_and_left_overs_are_swept(tmp_path):
    path = tmp_path / "one"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunFolderError, match=f"process {holder.pid} on"):
            RunFolder(path)
        (path / "checkpoints" / ".step-1.safetensors.1-aa.partial").write_bytes(b"half")
        holder.send_signal(signal.SIGKILL)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    with RunFolder(path) as folder:
        assert list(folder.checkpoints.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot be used"):
        RunFolder.create(tmp_path / "file", "x", "digits")


def test_metrics_of_steps_that_are_done_again_are_dropped(tmp_path):
    with RunFolder.create(tmp_path, "one", "digits") as folder:
        folder.forget_metrics_after(3)
        for step in range(1, 7):
            folder.append_metrics({"step": step, "loss": 0.5})
        with open(folder.path / "metrics.jsonl", "a") as file:
            file.write('{"step": 2, "lo')
        folder.forget_metrics_after(3)
        folder.append_metrics({"step": 4})
        rows = [json.loads(line)["step"] for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
        assert rows == [1, 2, 3, 4]


def test_the_newest_run_is_the_one_that_saved_last(tmp_path):
    with pytest.raises(RunFolderError, match="no run with a checkpoint"):
        newest_run(tmp_path)
    for age, name in enumerate(["b", "a", "c"]):
        checkpoints = tmp_path / name / "checkpoints"
        checkpoints.mkdir(parents=True)
        (checkpoints / "step-00000001.safetensors").write_bytes(b"")
        os.utime(checkpoints / "step-00000001.safetensors", ns=(1, 10**9 * (100 - age)))
    assert newest_run(tmp_path) == tmp_path / "b"


def test_a_run_that_never_began_leaves_its_name_free_and_nothing_behind(tmp_path):
    for _ in range(2):
        with RunFolder.create(tmp_path / "deep" / "runs", "one", "digits") as folder:
            (folder.path / "node-1.log").touch()
        assert list(tmp_path.iterdir()) == []


def test_what_somebody_else_made_stays(tmp_path):
    (tmp_path / "runs").mkdir()
    with RunFolder.create(tmp_path / "runs", "one", "digits") as folder:
        (folder.path / "node-1.log").write_text("why it failed")
    assert (tmp_path / "runs" / "one" / "node-1.log").exists()
    RunFolder.create(tmp_path / "runs", "one", "digits").close()  # and the name is free all the same
    with RunFolder.create(tmp_path / "runs", "two", "digits"):
        pass
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["one"]


def test_a_run_keeps_its_id_and_its_config_when_it_goes_on(tmp_path):
    with RunFolder.create(tmp_path, "one", "digits") as folder:
        folder.begin({"steps": 3}, 0)
    before = (tmp_path / "one" / "config.json").read_text()
    with RunFolder(tmp_path / "one") as again:
        again.begin({"steps": 9}, 3)
        assert again.run_id == folder.run_id == run_id_of(tmp_path / "one")
    assert (tmp_path / "one" / "config.json").read_text() == before
    with RunFolder.create(tmp_path, "two", "digits") as other:
        assert other.run_id != folder.run_id
    for junk in ("", "[]", "7", "{}", '{"run_id": 7}'):
        (tmp_path / "one" / "config.json").write_text(junk)
        assert run_id_of(tmp_path / "one") is None


@pytest.mark.parametrize("there", [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 4, 5]])
def test_a_survivor_completes_the_metrics_of_a_first_node_that_died_before_its_last_row(tmp_path, there):
    file = tmp_path / "metrics.jsonl"
    file.write_text("".join(json.dumps({"step": step}) + "\n" for step in there) + '{"step": 4, "lo')
    complete_metrics(tmp_path, {"step": 4, "loss": 0.5})
    assert [json.loads(line)["step"] for line in file.read_text().splitlines()] == [1, 2, 3, 4]


def test_metrics_that_are_kept_elsewhere_are_not_begun_in_the_middle(tmp_path):
    complete_metrics(tmp_path, {"step": 4})
    assert not [*tmp_path.iterdir()]
