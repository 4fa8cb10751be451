"""Every error that DaisyChain raises on purpose.

A message names the thing, its value and what to do about it. The command line prints it on one line, without
a traceback, and ends with `exit_code`.
"""

INTERRUPTED = 130  # the exit code that shells show for an interrupted program


class DaisyError(Exception):
    """Base of all deliberate errors."""

    exit_code = 2


class ConfigError(DaisyError):
    """A flag, an environment variable or an argument has a value that cannot be used."""


class NonFiniteError(DaisyError):
    """NaN or infinity where a finite number is required."""


class BlockRangeError(DaisyError):
    """A number is too large for the power-of-two block format."""


class AccumulatorBoundError(DaisyError):
    """A contraction is longer than the exact accumulator allows."""


class UnitError(DaisyError):
    """A unit, its table or its certificate is missing or wrong."""


class CountingError(DaisyError):
    """Unit invocations were too few, or were not being counted."""


class KernelError(DaisyError):
    """No backend, or not the forced one, passed the proof."""


class DataError(DaisyError):
    """A data file is missing, empty, or unfit for the task."""


class DataLostError(DataError):
    """Text cannot be fetched for now; another try, later, may help."""


class TaskError(DaisyError):
    """A task cannot be imported or breaks the Task interface."""


class CheckpointError(DaisyError):
    """A checkpoint is cut, altered, hostile, or from something else."""


class ReportError(DaisyError):
    """What an agent or a dashboard sent cannot be used.

    `reason` is malformed, protocol, name_taken or full.
    """

    def __init__(self, message: str, reason: str = "malformed") -> None:
        super().__init__(message)
        self.reason = reason


class RunFolderError(DaisyError):
    """A run folder cannot be used: another run works in it, or the disk refuses."""


class FleetError(DaisyError):
    """The nodes cannot meet or cannot finish an operation within its limit."""

    exit_code = 3


class StoppedError(FleetError):
    """A person asked for the end before there was anything to keep."""

    exit_code = INTERRUPTED


class PeerLostError(FleetError):
    """A node died, froze or became unreachable. `nodes` holds the ranks that are lost."""

    def __init__(self, message: str, nodes: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.nodes = nodes


class ReplicaMismatchError(FleetError):
    """Two replicas of the model are not the same to the last bit."""
