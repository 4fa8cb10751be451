"""When local nodes must have ended, and what a node's environment holds."""

import signal
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from daisychain.cluster.fleet.launch import TAIL_LINES, Ending, last_lines, node_environment


@given(st.permutations(range(4)), st.lists(st.sampled_from([0, 0, 2, 3, -9]), min_size=4, max_size=4))
def test_the_first_failure_decides(order: list[int], codes: list[int]) -> None:
    ending = Ending(grace_s=5.0)
    for now_s, rank in enumerate(order):
        ending.saw_exit(rank, codes[rank], float(now_s))
    failures = [codes[rank] for rank in order if codes[rank] != 0]
    expected = failures[0] if failures else 0
    assert ending.exit_code == (137 if expected == -signal.SIGKILL else expected)
    starts = [float(now_s) for now_s, rank in enumerate(order) if codes[rank] != 0 or rank == 0]
    assert not ending.overdue(starts[0] + 4.9)
    assert ending.overdue(starts[0] + 5.0)


def test_nobody_is_hurried_while_the_coordinator_works_and_nobody_failed() -> None:
    ending = Ending(grace_s=5.0)
    ending.saw_exit(1, 0, 0.0)
    assert not ending.overdue(1e9)


def test_cores_are_shared_unless_the_user_chose() -> None:
    assert node_environment(0, 3, 1, {}, cores=8)["OMP_NUM_THREADS"] == "2"
    assert node_environment(0, 3, 1, {}, cores=2)["OMP_NUM_THREADS"] == "1"
    assert node_environment(0, 3, 1, {"OMP_NUM_THREADS": "5"}, cores=2)["OMP_NUM_THREADS"] == "5"
    assert node_environment(2, 3, 1, {"RANK": "0"}, cores=2)["RANK"] == "2"


def test_the_end_of_a_log(tmp_path: Path) -> None:
    path = tmp_path / "node-1.log"
    assert last_lines(path) == []
    path.write_bytes(b"x" * 100_000 + b"\nfirst\n\xff\n" + b"last\n" * TAIL_LINES)
    assert last_lines(path) == ["last"] * TAIL_LINES
    path.write_text("only")
    assert last_lines(path) == ["only"]
