"""What the tests of text have in common: text to tokenise, and a hub on loopback that the packages believe in."""

import contextlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daisychain.base import limits

TESTS = Path(__file__).parents[1]


def hub_server() -> Any:
    """The module tests/hub_server.py."""
    if "hub_server" not in sys.modules:
        spec = importlib.util.spec_from_file_location("hub_server", TESTS / "hub_server.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules["hub_server"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["hub_server"])
    return sys.modules["hub_server"]


def quick(patch: pytest.MonkeyPatch) -> None:
    """Waits of tests: patience of a moment."""
    patch.setattr(limits, "HUB_RETRY_FIRST_S", 0.01)
    patch.setattr(limits, "HUB_RETRY_MOST_S", 0.05)
    patch.setattr(limits, "HUB_PATIENCE_S", 1.5)
    patch.setattr(limits, "HUB_RETRY_AFTER_MOST_S", 0.1)
    patch.setattr(limits, "STREAM_SLICE_S", 0.005)


def small(patch: pytest.MonkeyPatch) -> None:
    """Pieces and blocks small enough for a data set of 3,000 rows to have many."""
    patch.setattr(limits, "STREAM_PIECE_TOKENS", 20_000)
    patch.setattr(limits, "STREAM_BLOCK_WINDOWS", 64)
    patch.setattr(limits, "STREAM_HELD_OUT_WINDOWS", 16)


@contextlib.contextmanager
def hub(held: dict[str, Any], folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A stand-in that this process takes for the hub; everything that the packages keep is in `folder`."""
    import datasets
    import huggingface_hub.constants as constants

    with hub_server().running(held) as server:
        patch.setattr(constants, "ENDPOINT", server.endpoint)
        template = server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        for name in ("HF_HUB_CACHE", "HF_TOKEN_PATH", "AGENT_HARNESSES_PATH"):
            patch.setattr(constants, name, str(folder / "hf" / name))
        patch.setattr(datasets.config, "HF_ENDPOINT", server.endpoint)
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", folder / "hf/datasets")
        patch.setattr(datasets.config, "DOWNLOADED_DATASETS_PATH", folder / "hf/downloads")
        patch.setenv("DAISY_CACHE", str(folder / "cache"))
        patch.delenv("HF_TOKEN", raising=False)
        yield server


def start(server: Any, folder: Path, script: str, arguments: list[str]) -> subprocess.Popen[str]:
    """A program of its own that takes the stand-in for the hub."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": server.endpoint,
        "HF_HOME": str(folder / "hf"),
        "DAISY_CACHE": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    environment.pop("HF_TOKEN", None)
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
