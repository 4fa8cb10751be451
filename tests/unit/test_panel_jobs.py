"""Trainers that outlive the panel: started once, found again, stopped gently and by force, never two on a machine."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import psutil
import pytest

from daisychain.base import limits
from daisychain.base.clock import SystemClock
from daisychain.base.errors import ConfigError, DaisyError, RunFolderError
from daisychain.cluster.storage.node_lock import owner_of, take_node_lock
from daisychain.cluster.storage.run_folder import read_config
from daisychain.panel.jobs import Job, Jobs
from daisychain.panel.request import JobRequest

from .panel_help import make_jobs, wait_for

RUN = JobRequest(name="first")
SHORT = replace(RUN, steps=1)
HANGS = replace(RUN, seed=666)
FAILS = replace(RUN, seed=13)


@pytest.fixture
def started(tmp_path):
    """Ends whatever trainer a test leaves behind."""
    yield
    for path in tmp_path.glob("*/*/job.json"):
        pid = json.loads(path.read_text())["pid"]
        if psutil.pid_exists(pid) and any("fake_trainer" in word for word in _words(pid)):
            os.kill(pid, signal.SIGKILL)


pytestmark = pytest.mark.usefixtures("started")


def _words(pid: int) -> list[str]:
    try:
        return psutil.Process(pid).cmdline()
    except psutil.Error:
        return []


def _at_work(jobs: Jobs, job: Job) -> None:
    wait_for("the trainer to begin", (jobs.runs / job.name / "status.json").exists)


def test_a_run_starts_and_ends_by_itself(tmp_path) -> None:
    jobs = make_jobs(tmp_path)
    assert jobs.running() is None
    assert jobs.list() == []
    job = jobs.start(SHORT)
    wait_for("the end", lambda: jobs.ending("first"))
    assert jobs.running() is None
    assert (jobs.ending("first").kind, jobs.ending("first").text) == ("finished", "finished after 1 step")
    assert [found.name for found in jobs.list()] == ["first"]
    assert jobs.get("first").request == job.request
    assert jobs.get("other") is None


def test_a_new_panel_finds_the_run_and_can_stop_it(tmp_path) -> None:
    first = make_jobs(tmp_path)
    job = first.start(RUN)
    _at_work(first, job)
    again = make_jobs(tmp_path)  # the first panel is gone
    assert again.running() == job
    assert "first" in again.busy()
    assert again.stop("first") == "first is stopping after this step."
    ending = wait_for("the stop", lambda: again.ending("first"))
    assert (ending.kind, ending.text) == ("stopped", "stopped by a person after step 1")
    assert again.busy() is None
    assert again.stop("first") == "first does not run."


def test_a_second_press_ends_by_force_but_not_at_once(tmp_path) -> None:
    now_s = [1_000.0]
    jobs = make_jobs(tmp_path, now_s=lambda: now_s[0])
    _at_work(jobs, job := jobs.start(HANGS))
    jobs.stop("first")
    assert "by force in 10 s" in jobs.stop("first")
    assert job.alive
    now_s[0] += limits.JOB_STOP_GRACE_S
    reopened = make_jobs(tmp_path, now_s=lambda: now_s[0])  # it is written down that a stop was asked for
    assert "ended by force" in reopened.stop("first")
    assert not job.alive
    assert reopened.ending("first").kind == "lost"


def test_force_reaches_the_nodes_of_a_launcher(tmp_path) -> None:
    """They have sessions of their own, so ending a process group would not."""
    script = tmp_path / "launcher.py"
    script.write_text(
        "import subprocess, sys, pathlib, time, signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "flags = dict(one[2:].split('=', 1) for one in sys.argv[1:] if '=' in one)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
        "folder = pathlib.Path(flags['runs'], flags['name'])\n"
        "(folder / 'new').write_text(str(child.pid))\n"
        "(folder / 'new').rename(folder / 'child')\n"
        "time.sleep(60)\n"
    )
    now_s = [0.0]
    jobs = Jobs(
        tmp_path / "runs",
        node_lock=tmp_path / "node.lock",
        trainer=(sys.executable, str(script)),
        now_s=lambda: now_s[0],
    )
    jobs.start(RUN)
    wait_for("the node", (tmp_path / "runs/first/child").exists)
    pid = int((tmp_path / "runs/first/child").read_text())
    jobs.stop("first")
    now_s[0] += 60.0
    jobs.stop("first")
    wait_for("the node's end", lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie")


def test_a_trainer_that_fails_says_why(tmp_path) -> None:
    jobs = make_jobs(tmp_path)
    jobs.start(FAILS)
    ending = wait_for("the end", lambda: jobs.ending("first"))
    assert (ending.kind, ending.text) == ("failed", "the weather is bad; wait for better.")
    assert jobs.log_tail("first") == ["error: the weather is bad; wait for better."]


def test_a_trainer_that_is_killed_is_lost(tmp_path) -> None:
    jobs = make_jobs(tmp_path)
    _at_work(jobs, job := jobs.start(RUN))
    os.kill(job.pid, signal.SIGKILL)
    ending = wait_for("the end", lambda: jobs.ending("first"))
    assert (ending.kind, "last checkpoint is kept" in ending.text) == ("lost", True)
    (tmp_path / "runs/first/checkpoints/step-00000001.safetensors").unlink()
    assert "nothing is kept" in jobs.ending("first").text
    assert jobs.busy() is None


def test_a_number_that_is_used_again_is_no_trainer(tmp_path) -> None:
    """After a reboot another process has the number that job.json holds."""
    jobs = make_jobs(tmp_path)
    jobs.start(SHORT)
    wait_for("the end", lambda: jobs.ending("first"))
    path = tmp_path / "runs/first/job.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"pid": os.getpid()}))
    assert make_jobs(tmp_path).running() is None
    assert make_jobs(tmp_path).stop("first") == "first does not run."


def test_two_presses_at_once_start_one_run(tmp_path) -> None:
    jobs = make_jobs(tmp_path)
    answers: list[object] = []
    gate = threading.Barrier(8)

    def press(number: int) -> None:
        gate.wait()
        try:
            answers.append(jobs.start(replace(RUN, name=f"press-{number}")))
        except RunFolderError as error:
            answers.append(str(error))

    threads = [threading.Thread(target=press, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = [answer for answer in answers if isinstance(answer, Job)]
    lost = [answer for answer in answers if isinstance(answer, str)]
    assert (len(won), len(lost)) == (1, 7)
    assert all(won[0].name in answer for answer in lost)


def test_two_panels_with_other_folders_start_one_run(tmp_path) -> None:
    """The second looks before the first trainer has the lock, as in a race; the trainers decide it between them."""
    panels = [make_jobs(tmp_path, f"runs-{letter}") for letter in "ab"]
    jobs = [panel.start(replace(RUN, name=name)) for panel, name in zip(panels, ("ann", "bob"), strict=True)]
    first_end = wait_for(
        "one of them to end", lambda: panels[0].ending("ann") or panels[1].ending("bob"), 20.0
    )
    alive = [job for job in jobs if job.alive]
    assert len(alive) == 1
    assert first_end.kind == "failed"
    assert repr(alive[0].name) in first_end.text
    assert str(alive[0].pid) in first_end.text
    other = panels[1] if alive[0].name == "ann" else panels[0]
    with pytest.raises(RunFolderError, match=alive[0].name):
        other.start(replace(RUN, name="again"))
    assert other.running() is None  # it is not of that panel's runs
    assert not (other.runs / "again").exists()


def test_a_run_of_another_panel_with_the_same_runs_is_found(tmp_path) -> None:
    here, there = make_jobs(tmp_path), make_jobs(tmp_path)
    job = there.start(RUN)
    _at_work(there, job)
    assert here.running() == job
    with pytest.raises(RunFolderError, match="first"):
        here.start(replace(RUN, name="second"))


def test_the_lock_is_free_when_its_holder_dies_and_names_it_while_it_lives(tmp_path) -> None:
    lock = tmp_path / "deep/node.lock"
    code = (
        "import sys, time; from pathlib import Path; from daisychain.base.clock import SystemClock;"
        "from daisychain.cluster.storage.node_lock import take_node_lock;"
        f"held = take_node_lock(Path({str(lock)!r}), 'a run', Path('x/a run'), SystemClock(), RANK);"
        "print('held', flush=True); time.sleep(60)"
    )
    for rank in (None, 1):  # a trainer; a node whose launcher died
        command = [sys.executable, "-c", code.replace("RANK", str(rank))]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
            assert holder.stdout.readline() == b"held\n"
            owner = owner_of(lock)
            assert owner is not None
            if rank is None:
                assert (owner.run, owner.pid) == ("a run", holder.pid)
            with pytest.raises(RunFolderError, match="this machine trains"):
                take_node_lock(lock, "b", tmp_path, SystemClock())
            holder.kill()
        assert owner_of(lock) is None
        take_node_lock(lock, "b", tmp_path, SystemClock()).close()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"run": 3}', '{"pid": "x"}', "\0" * 100])
def test_a_lock_with_nonsense_in_it_is_a_lock(tmp_path, content) -> None:
    lock = tmp_path / "node.lock"
    with take_node_lock(lock, "mine", tmp_path, SystemClock()):
        lock.write_text(content)
        assert owner_of(lock) is not None
    assert owner_of(lock) is None


def test_job_files_are_not_trusted(tmp_path) -> None:
    jobs = make_jobs(tmp_path)
    folder = tmp_path / "runs/evil"
    folder.mkdir(parents=True)
    good = {
        "request": JobRequest().as_json(),
        "pid": 1,
        "pid_created_s": 0.0,
        "started_s": 0.0,
        "stop_asked_s": None,
    }
    for wrong in (
        {"pid": 1e400},
        {"pid": None},
        {"pid": "1"} | {"started_s": "x"},
        {"request": {"task": "rm -rf"}},
        {"request": []},
        {"stop_asked_s": []},
        {"pid": -1, "pid_created_s": 0.0},
    ):
        (folder / "job.json").write_text(json.dumps(good | wrong))
        assert jobs.get("evil") is None
        assert jobs.list() == []
    (folder / "job.json").write_text("[" * 50_000)
    assert make_jobs(tmp_path).list() == []
    (folder / "job.json").write_text(json.dumps(good))
    assert jobs.get("evil") is not None
    assert jobs.running() is None


def test_nothing_in_a_run_s_folder_keeps_a_panel_waiting_or_leads_out(tmp_path) -> None:
    folder = tmp_path / "runs/evil"
    folder.mkdir(parents=True)
    for name in ("job.json", "status.json", "config.json"):
        os.mkfifo(folder / name)
    (tmp_path / "secret").write_text("mine")
    (folder / "train.log").symlink_to(tmp_path / "secret")
    jobs = make_jobs(tmp_path)
    assert jobs.list() == []
    assert jobs.ended_run("evil") is not None
    assert read_config(folder) == {}
    assert jobs.log_tail("evil") == []
    (folder / "job.json").unlink()


def test_a_full_disk_leaves_no_trainer_that_nobody_knows(tmp_path, monkeypatch) -> None:
    jobs = make_jobs(tmp_path)
    spawned = []
    monkeypatch.setattr("daisychain.panel.jobs._detached", _noted(spawned))
    monkeypatch.setattr("daisychain.panel.jobs.write_atomic", _full)
    with pytest.raises(RunFolderError, match="No space left"):
        jobs.start(RUN)
    wait_for("its end", lambda: not psutil.pid_exists(spawned[0].pid))
    assert jobs.list() == []


def test_a_full_disk_does_not_keep_a_run_from_being_stopped(tmp_path, monkeypatch) -> None:
    now_s = [1_000.0]
    jobs = make_jobs(tmp_path, now_s=lambda: now_s[0])
    _at_work(jobs, job := jobs.start(HANGS))
    monkeypatch.setattr("daisychain.panel.jobs.write_atomic", _full)
    assert "is stopping" in jobs.stop("first")
    assert jobs.asked_ago_s(jobs.running()) == 0.0
    now_s[0] -= 3_600.0  # and the clock is set back: nobody waits for an hour
    assert "ended by force" in jobs.stop("first")
    assert not job.alive


def test_a_run_whose_folder_was_deleted_can_be_stopped(tmp_path) -> None:
    jobs = make_jobs(tmp_path)
    _at_work(jobs, job := jobs.start(RUN))
    shutil.rmtree(tmp_path / "runs/first")
    for panel in (jobs, make_jobs(tmp_path)):  # a new one knows only what the lock says
        assert panel.running().pid == job.pid
        assert panel.ending("first") is None
    assert "is stopping" in panel.stop("first")
    wait_for("the end", lambda: not job.alive)
    assert "was deleted" in panel.ending("first").text
    (tmp_path / "runs/first").mkdir()  # a trainer makes it anew to save its state
    (tmp_path / "runs/first/status.json").write_text('{"phase": "failed", "text": "saved", "updated_s": 1}')
    assert (panel.ending("first").kind, panel.ending("first").text) == ("failed", "saved")


def _full(*_args, **_options) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def _noted(spawned: list):
    def detached(command, log):
        spawned.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))
        return spawned[-1]

    return detached


def test_a_clock_that_is_set_hides_no_run(tmp_path) -> None:
    """When a process was created is reckoned from the clock: after it was set, a panel reads another time."""
    _at_work(jobs := make_jobs(tmp_path), jobs.start(RUN))
    path = tmp_path / "runs/first/job.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"pid_created_s": values["pid_created_s"] - 3_600.0}))
    again = make_jobs(tmp_path)
    assert again.running().name == "first"
    assert again.ending("first") is None
    path.write_text(json.dumps(values | {"started_s": values["started_s"] + 3_600.0}))  # it was set back
    again.stop("first")
    assert wait_for("the end", lambda: again.ending("first")).kind == "stopped"


def test_what_a_request_may_read(tmp_path) -> None:
    jobs = make_jobs(tmp_path)
    secret = tmp_path / "secret.txt"
    secret.write_text("mine")
    request = JobRequest(task="text", source="file", data=str(secret), steps=1)
    uploads = tmp_path / "runs/.uploads"
    uploads.mkdir(parents=True)
    (uploads / "0123456789abcdef.txt").symlink_to(secret)
    for path in (str(secret), f"{uploads}/../../secret.txt", str(uploads / "0123456789abcdef.txt")):
        with pytest.raises(ConfigError, match=r"upload the file|no file"):
            jobs.start(replace(request, data=path))
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [".uploads"]
    (uploads / "fedcba9876543210.txt").write_text("words")
    job = jobs.start(replace(request, data=str(uploads / "fedcba9876543210.txt")))
    wait_for("the end", lambda: jobs.ending(job.name))
    local = make_jobs(tmp_path, local=True)
    job = local.start(request)
    wait_for("the end", lambda: local.ending(job.name))
    with pytest.raises(ConfigError, match="there is no file"):
        local.start(replace(request, data=str(tmp_path / "none.txt")))


def test_what_is_refused_starts_nothing(tmp_path) -> None:
    jobs = make_jobs(tmp_path)
    with pytest.raises(RunFolderError, match="no checkpoint"):
        jobs.start(JobRequest(resume="nothing"))
    (tmp_path / "runs/taken").mkdir(parents=True)
    with pytest.raises(RunFolderError, match="already"):
        jobs.start(replace(RUN, name="taken"))
    broken = Jobs(tmp_path / "runs", node_lock=tmp_path / "node.lock", trainer=("/no/such/program",))
    with pytest.raises(DaisyError, match="cannot be started"):
        broken.start(replace(RUN, name="never"))
    assert jobs.list() == []
    assert not (tmp_path / "runs/never").exists()


def test_a_run_goes_on_with_more_steps(tmp_path) -> None:
    jobs = make_jobs(tmp_path)
    jobs.start(SHORT)
    wait_for("the end", lambda: jobs.ending("first"))
    job = jobs.start(JobRequest(resume="first", steps=1))
    assert job.name == "first"
    assert "--resume" in json.loads((tmp_path / "runs/first/job.json").read_text())["command"]
    wait_for("the end", lambda: jobs.ending("first"))
