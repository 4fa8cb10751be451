"""When a run ends by an error: the last state that all nodes had is saved, and the run's folder says what happened.

The first node does both in its own folder. If it is the one that is lost, the first survivor does, in that folder if
it is on its machine. Nothing here hides the error that ended the run.
"""

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from daisychain.base.errors import DataError, DataLostError, PeerLostError, ReplicaMismatchError, StoppedError
from daisychain.base.log import say, warn
from daisychain.cluster.storage.checkpoint import Array, Meta
from daisychain.cluster.storage.journal import Journal
from daisychain.cluster.storage.keeper import Keeper, LeadFolder
from daisychain.cluster.storage.run_folder import RUNS


@dataclass(frozen=True)
class LastState:
    """What every node had before the step that failed, and the row of metrics of the step before that."""

    meta: Meta
    model: Mapping[str, Array]
    optimizer: Mapping[str, Array]
    buffers: Collection[str]  # names in `model` that may hold infinity, such as a mask
    row: Mapping[str, Any]

    def is_finite(self) -> bool:
        """Whether it can be trained on: a checkpoint of numbers that ran away would be refused."""
        arrays = [array for name, array in self.model.items() if name not in self.buffers]
        arrays += self.optimizer.values()
        return all(bool(np.isfinite(array).all()) for array in arrays if array.dtype.kind == "f")


@dataclass(frozen=True)
class Ended:
    """Where and how a run ended, as one node knows it."""

    error: Exception
    rank: int
    roster: Sequence[int]
    step: int  # steps done
    compared_step: int  # before it all nodes were last seen to be equal
    state: LastState | None  # None where there is nothing new that is worth keeping


def tell(ended: Ended, keeper: Keeper, journal: Journal, lead: LeadFolder | None) -> None:
    """Save and say what this node has to, if it is the first that is left. Never raises: a trouble is a warning."""
    lost = getattr(ended.error, "nodes", ())
    first_left = next((rank for rank in ended.roster if rank not in lost), None)
    if lead is None or first_left != ended.rank:
        return
    try:
        if ended.rank == ended.roster[0]:
            _save_and_say(ended, keeper, journal, Path(lead.path))
        elif ended.state or lead.is_here():
            path = keeper.folder_of_survivor(lead)
            _save_and_say(ended, keeper, Journal(path), path)
    except Exception as error:
        warn(f"what is left of the run could not be written: {type(error).__name__}: {error}")


def _save_and_say(ended: Ended, keeper: Keeper, journal: Journal, folder: Path) -> None:
    """First what happened, because a large state takes its time."""
    folder.mkdir(parents=True, exist_ok=True)
    kind, extra = cause(ended.error)
    journal.trouble(kind, ended.step, str(ended.error), **extra)
    saved = _save(ended, keeper, folder)
    if saved:
        journal.checkpoint(ended.step, saved)
    journal.end(*last_words(ended.error, saved, folder), step=ended.step)


def _save(ended: Ended, keeper: Keeper, folder: Path) -> Path | None:
    state = ended.state
    if state is None or isinstance(ended.error, ReplicaMismatchError) or not state.is_finite():
        return None
    saved = keeper.save_as_survivor(folder, state.meta, state.model, state.optimizer, state.row)
    if saved:
        say(
            f"saved {saved}: the state of node {ended.rank} after {ended.step} steps; all nodes had the same after "
            f"{ended.compared_step}."
        )
    return saved


def cause(error: Exception) -> tuple[str, dict[str, Any]]:
    """The kind of event that an error is, and what the event has beside its text."""
    if isinstance(error, PeerLostError):
        return "lost", {"nodes": list(error.nodes)}
    return ("data" if isinstance(error, DataError | StoppedError) else "fault"), {}


def last_words(error: Exception, saved: Path | None, folder: Path) -> tuple[str, str]:
    """The phase in which a run is left, and a sentence on why and how to go on."""
    by_kind = ((DataLostError, "paused"), (StoppedError, "stopped"))
    phase = next((phase for kind, phase in by_kind if isinstance(error, kind)), "failed")
    words = (str(error) or type(error).__name__).rstrip(".")
    kept = f"saved {saved.name}" if saved else "the last checkpoint is intact"
    return phase, f"{words}. {kept[0].upper()}{kept[1:]}; go on with: {resume_command(folder)}"


def resume_command(folder: Path) -> str:
    """What a person types to go on with the run in `folder`."""
    place = [] if folder.parent.resolve() == RUNS.resolve() else ["--runs", str(folder.parent)]
    return shlex.join(["daisychain", "train", "--resume", "--name", folder.name, *place])
