"""A device is used only if a real operation ran on it."""

import pytest
import torch

from daisychain.base.errors import ConfigError
from daisychain.cluster.device import Device, choose_device, real_operation


def yes() -> bool:
    return True


def no() -> bool:
    return False


def works(device: torch.device) -> None:
    pass


def dies(device: torch.device) -> None:
    raise RuntimeError("no kernel image is available\nsecond line")


def never(device: torch.device) -> None:
    raise AssertionError("must not be tried")


def test_a_gpu_that_works_is_used() -> None:
    assert choose_device("auto", env={}, available=yes, operation=works).device == torch.device("cuda")
    assert choose_device("cuda:1", env={}, available=yes, operation=works).device == torch.device("cuda:1")


def test_a_gpu_whose_first_operation_dies_is_not_used_and_it_is_said_why() -> None:
    chosen = choose_device("auto", env={}, available=yes, operation=dies)
    assert chosen.device == torch.device("cpu")
    assert "first operation failed (no kernel image is available)" in chosen.reason
    assert "\n" not in str(chosen)
    assert "first operation failed" in choose_device("auto", env={}, available=yes, operation=never).reason


@pytest.mark.parametrize("visible", ["", " ", "-1"])
def test_hidden_gpus_mean_the_cpu(visible: str) -> None:
    chosen = choose_device("auto", env={"CUDA_VISIBLE_DEVICES": visible}, available=yes, operation=works)
    assert chosen.device == torch.device("cpu")
    assert "CUDA_VISIBLE_DEVICES" in chosen.reason


def test_the_cpu_is_never_probed() -> None:
    assert choose_device("cpu", env={}, available=yes, operation=never) == Device(
        torch.device("cpu"), "as wanted"
    )
    assert choose_device("auto", env={}, available=no, operation=never).device == torch.device("cpu")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [("gpu", "'gpu' is unknown"), ("cuda:x", "'cuda:x' is unknown"), ("cuda:", "unknown"), ("", "unknown")],
)
def test_unknown_names_are_refused(wanted: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        choose_device(wanted, env={}, available=yes, operation=works)


def test_a_device_that_was_named_and_does_not_work_is_refused() -> None:
    with pytest.raises(ConfigError, match="no CUDA device; use cpu or auto"):
        choose_device("cuda", env={}, available=no, operation=works)
    with pytest.raises(ConfigError, match="no kernel image"):
        choose_device("cuda:0", env={}, available=yes, operation=dies)
    with pytest.raises(ConfigError, match="hides every GPU"):
        choose_device("cuda", env={"CUDA_VISIBLE_DEVICES": ""}, available=yes, operation=works)


def test_the_real_operation_compares_what_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    real_operation(torch.device("cpu"))
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: self + 1)
    with pytest.raises(RuntimeError, match="came back wrong"):
        real_operation(torch.device("cpu"))
