"""Where a run is kept: checkpoints while it goes on, the last one, the final model."""

from collections.abc import Mapping
from pathlib import Path

from daisychain.base.errors import CheckpointError
from daisychain.base.log import say, warn
from daisychain.cluster.storage import checkpoint
from daisychain.cluster.storage.checkpoint import Array, Meta
from daisychain.cluster.storage.run_folder import RunFolder


class Keeper:
    """Saves states that all nodes had. Without a folder it keeps nothing, unless it has to as a survivor."""

    def __init__(self, folder: RunFolder | None) -> None:
        self._folder = folder
        self.saved: Path | None = None  # the last checkpoint

    def save(self, meta: Meta, model: Mapping[str, Array], optimizer: Mapping[str, Array]) -> None:
        """Save on the way; a full disk costs this checkpoint and no more."""
        if self._folder:
            try:
                self.saved = checkpoint.save_and_prune(self._folder.checkpoints, meta, model, optimizer)
            except OSError as error:
                warn(f"step {meta.step}: no checkpoint ({error.strerror}); make room. The run goes on.")

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

    def save_as_survivor(
        self, lead_folder: Path, meta: Meta, model: Mapping[str, Array], optimizer: Mapping[str, Array]
    ) -> None:
        """Save after a node was lost: into the first node's folder if it is on this machine, else into runs/."""
        folder = (lead_folder if lead_folder.exists() else Path("runs") / lead_folder.name) / "checkpoints"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.saved = checkpoint.save_and_prune(folder, meta, model, optimizer)
            say(f"saved {self.saved}: the last state that all nodes had.")
        except OSError as error:
            warn(f"the state of step {meta.step} could not be saved in {folder}: {error.strerror}.")


def _refused(what: str, folder: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"{what} cannot be written in {folder}: {error.strerror}. Make room and resume the run."
    )
