"""Three unlike CPUs train one model and stay the same to the last bit (pytorch 155423, 54684)."""

import pytest
import torch

from .trainer_help import answers_of, start_nodes

UNLIKE = [
    {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"},
    {"ATEN_CPU_CAPABILITY": "avx2", "OMP_NUM_THREADS": "2"},
    {},
]


@pytest.fixture(autouse=True)
def _needs_avx2():
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        pytest.skip("this CPU has no AVX2, so it cannot play three unlike ones")


def test_200_steps_on_three_unlike_cpus_end_in_equal_hashes():
    """Every step compares the hashes of all nodes and stops on a difference, so 200 steps done is 200 times equal."""
    answers = answers_of(start_nodes({"steps": 200}, UNLIKE))
    assert len({answer["capability"] for answer in answers}) >= 2
    assert len({answer["product"] for answer in answers}) >= 2
    for answer in answers:
        assert answer["steps"] == 200, answer
        assert len(answer["hashes"]) == 3
        assert len(set(answer["hashes"])) == 1
        assert answer["loss"][1] < answer["loss"][0]


def test_with_the_optimiser_of_torch_the_same_run_forks_and_is_stopped():
    answers = answers_of(start_nodes({"steps": 200, "optimizer": "torch"}, UNLIKE))
    assert len({answer["message"] for answer in answers}) == 1
    for answer in answers:
        assert answer["error"] == "ReplicaMismatchError", answer
        assert answer["steps"] < 200
