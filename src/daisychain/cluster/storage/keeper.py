"""Where a run is kept: checkpoints while it goes on, the last one, the final model."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daisychain.base.errors import CheckpointError
from daisychain.base.log import say, warn
from daisychain.cluster.storage import checkpoint
from daisychain.cluster.storage.checkpoint import Array, Meta
from daisychain.cluster.storage.run_folder import RunFolder, complete_metrics, fresh_name, run_id_of


@dataclass(frozen=True)
class LeadFolder:
    """Where the first node keeps the run. Other machines may hold another folder at the same path."""

    path: str
    run_id: str
    host: str

    @classmethod
    def of(cls, folder: RunFolder) -> "LeadFolder":
        return cls(str(folder.path.resolve()), folder.run_id, socket.gethostname())

    def is_here(self) -> bool:
        return run_id_of(Path(self.path)) == self.run_id


class Keeper:
    """Saves states that all nodes had. Without a folder it keeps nothing, unless it has to as a survivor: then, if
    the first node's folder is not on this machine, in a new one in `runs`."""

    def __init__(self, folder: RunFolder | None, runs: Path) -> None:
        self._folder = folder
        self._runs = runs
        self.saved: Path | None = None  # the last checkpoint

    def save(self, meta: Meta, model: Mapping[str, Array], optimizer: Mapping[str, Array]) -> Path | None:
        """Save on the way; a full disk costs this checkpoint, None, and no more."""
        if not self._folder:
            return None
        try:
            self.saved = checkpoint.save_and_prune(self._folder.checkpoints, meta, model, optimizer)
            return self.saved
        except OSError as error:
            warn(f"step {meta.step}: no checkpoint ({error.strerror}); make room. The run goes on.")
            return None

    def save_last(self, meta: Meta, model: Mapping[str, Array], optimizer: Mapping[str, Array]) -> None:
        """Save at the end; CheckpointError if the disk refuses."""
        if self._folder:
            try:
                self.saved = checkpoint.save_and_prune(self._folder.checkpoints, meta, model, optimizer)
            except OSError as error:
                raise _refused("the last checkpoint", self._folder.path, error) from error

    def save_model(self, meta: Meta, model: Mapping[str, Array]) -> Path | None:
        """Save the final model; CheckpointError if the disk refuses."""
        if not self._folder:
            return None
        try:
            checkpoint.save(self._folder.model, meta, model, {})
        except OSError as error:
            raise _refused("the model", self._folder.path, error) from error
        return self._folder.model

    def folder_of_survivor(self, lead: LeadFolder) -> Path:
        """Where a survivor of the first node keeps the run: in the run's own folder if that is on this machine, else
        in a new one."""
        if lead.is_here():
            return Path(lead.path)
        say(f"the run's own folder, {lead.path} on {lead.host}, is not on this machine.")
        return self._runs / fresh_name(self._runs, f"{Path(lead.path).name}-survivor")

    def save_as_survivor(
        self,
        path: Path,
        meta: Meta,
        model: Mapping[str, Array],
        optimizer: Mapping[str, Array],
        row: Mapping[str, Any],
    ) -> Path | None:
        """Save in run folder `path` after a node was lost, and the last step's `row` of metrics if it is missing. A
        disk that refuses is a warning, and None."""
        folder = path / "checkpoints"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.saved = checkpoint.save_and_prune(folder, meta, model, optimizer)
            complete_metrics(path, row)
            return self.saved
        except OSError as error:
            warn(f"the state after {meta.step} steps could not be saved in {folder}: {error.strerror}.")
            return None


def _refused(what: str, folder: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"{what} cannot be written in {folder}: {error.strerror}. Make room and resume the run."
    )
