"""A real node dies or freezes in the middle of a run: the others say so, and the first of them saves."""

import os
import signal

import pytest

from daisychain.cluster.storage import checkpoint

from .trainer_help import answers_of, start_nodes


@pytest.mark.skipif(os.name == "nt", reason="these signals are POSIX")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("rank", [0, 1])
def test_the_survivors_name_the_lost_node_and_the_last_common_state_is_saved(rank, number, tmp_path):
    nodes = start_nodes(
        {"steps": 100_000, "folder": str(tmp_path / "run"), "end": [rank, 25, number]}, [{}, {}, {}]
    )
    answers = answers_of(nodes, without=rank)
    assert len(answers) == 2
    for answer in answers:
        assert answer["error"] == "PeerLostError", answer
        assert f"node {rank}" in answer["message"]
        assert answer["steps"] == 25
    newest = checkpoint.newest_whole(tmp_path / "run" / "checkpoints")
    assert checkpoint.read_meta(newest).step == 25
