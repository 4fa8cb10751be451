"""A real node dies or freezes in the middle of a run: the others say so, and the first of them saves and records it."""

import os
import signal

import pytest

from daisychain.cluster.storage import checkpoint
from daisychain.cluster.storage.history import RunReader

from .trainer_help import answers_of, start_nodes


@pytest.mark.skipif(os.name == "nt", reason="these signals are POSIX")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("rank", [0, 1])
def test_the_survivors_name_the_lost_node_and_the_last_common_state_is_saved(rank, number, tmp_path):
    killed, run = tmp_path / "killed", tmp_path / "run"
    spec = {"steps": 100_000, "folder": str(run), "end": [rank, 25, number], "killed": str(killed)}
    nodes = start_nodes(spec, [{}, {}, {}])
    answers = answers_of(nodes, without=rank)
    assert len(answers) == 2
    for answer in answers:
        assert answer["error"] == "PeerLostError", answer
        assert f"node {rank}" in answer["message"]
        assert answer["steps"] == 25
    newest = checkpoint.newest_whole(run / "checkpoints")
    assert checkpoint.read_meta(newest).step == 25
    reader = RunReader(run)
    lost, saved, failed = reader.events[-3:]
    assert (lost["kind"], lost["nodes"], lost["step"]) == ("lost", [rank], 25)
    assert f"node {rank} (" in lost["text"]
    if number == signal.SIGKILL:
        assert lost["time_s"] - float(killed.read_text()) < 3.0  # what the dashboard promises
    assert (saved["kind"], saved["path"], saved["bytes"]) == (
        "checkpoint",
        newest.name,
        newest.stat().st_size,
    )
    assert failed["kind"] == reader.phase == reader.status["phase"] == "failed"
    assert "daisychain train --resume --name run" in failed["text"]
    assert (reader.status["step"], reader.status["steps"], reader.status["nodes"]) == (25, 100_000, 3)
    assert reader.steps_done == 25
