"""What a person may ask a trainer for: every setting typed and bounded, and the command that follows from them.

A request is built from a form, from a page's cookie, or from a file; none of them is trusted. Whatever passes here
reaches a command as one element of its argument list, never a shell.
"""

import contextlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields
from typing import Any

from daisychain.base import limits
from daisychain.base.errors import ConfigError, DaisyError
from daisychain.cluster.storage.run_folder import check_name
from daisychain.nn.spikewhale import PARTS, PRESETS

SPIKEWHALE = "spikewhale"
TASKS = (SPIKEWHALE, "text", "table", "digits")
SOURCES = ("embedded", "dataset", "file")
_DATASET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9][A-Za-z0-9_.-]{0,95}")
_SPLIT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")

Check = Callable[[str, Any], Any]


def whole(least: int, most: int, step: int = 1) -> Check:
    """A check for whole numbers; 8.0, as a slider sends it, is one."""

    def check(name: str, value: Any) -> int:
        number = _finite(name, value)
        if number != int(number) or not least <= number <= most or int(number) % step:
            in_steps = f" in steps of {step}" if step > 1 else ""
            raise ConfigError(
                f"{name} is {_shown(value)}; it takes a whole number from {least:,} to {most:,}{in_steps}."
            )
        return int(number)

    return check


def number(least: float, most: float) -> Check:
    """A check for finite numbers."""

    def check(name: str, value: Any) -> float:
        found = _finite(name, value)
        if not least <= found <= most:
            raise ConfigError(f"{name} is {_shown(value)}; it takes a number from {least:g} to {most:g}.")
        return float(found)

    return check


def one_of(*choices: str) -> Check:
    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ConfigError(f"{name} is {_shown(value)}; it is one of {', '.join(choices)}.")
        return value

    return check


def matching(pattern: re.Pattern[str], wanted: str) -> Check:
    """A check for texts of one form, or None."""

    def check(name: str, value: Any) -> str | None:
        if value is None or value == "":
            return None
        if not isinstance(value, str) or not pattern.fullmatch(value) or ".." in value:
            raise ConfigError(f"{name} is {_shown(value)}; it must be {wanted}.")
        return value

    return check


def line(most: int) -> Check:
    """A check for one line of text that can be printed, or None."""

    def check(name: str, value: Any) -> str | None:
        if value is None or value == "":
            return None
        if not isinstance(value, str) or len(value) > most or not value.isprintable():
            raise ConfigError(f"{name} is {_shown(value)}; it must be one line of at most {most} characters.")
        return value

    return check


def some_of(choices: tuple[str, ...]) -> Check:
    """A check for a selection of `choices`; the answer is in their order, each once."""

    def check(name: str, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list | tuple) or any(
            not isinstance(part, str) or part not in choices for part in value
        ):
            raise ConfigError(f"{name} is {_shown(value)}; it is some of {', '.join(choices)}.")
        return tuple(choice for choice in choices if choice in value)

    return check


def run_name(name: str, value: Any) -> str | None:
    """A check for the name of a run, or None."""
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > limits.PANEL_TEXT_CHARACTERS:
        raise ConfigError(f"{name} is {_shown(value)}; it must be a short text.")
    return check_name(value)


@dataclass(frozen=True)
class JobRequest:
    """The settings of a run as a form gives them. Building one checks every field; raises ConfigError, which names
    the field, and RunFolderError for a name that no folder can have."""

    task: str = SPIKEWHALE
    name: str | None = None  # of a new run; made from the task and the time where there is none
    resume: str | None = (
        None  # the run to go on with; its own settings count, and of these `steps` and `nodes`
    )
    nodes: int = 1
    steps: int = limits.DEFAULT_STEPS
    batch: int = 8
    learning_rate: float = 1e-2
    warmup: int = 30
    arithmetic: str = "int8"
    seed: int = limits.DEFAULT_SEED
    checkpoint_every: int = 25
    preset: str = "tiny"
    width: int = 32
    layers: int = 4
    heads: int = 2
    sequence: int = 64
    without: tuple[str, ...] = ()
    source: str = "embedded"
    dataset: str | None = None
    dataset_config: str | None = None
    split: str | None = None
    column: str | None = None
    on_data_failure: str = "stop"
    data: str | None = None  # path of a file; whether it may be read is for `Jobs` to say
    target: str | None = None  # column to predict, of a table

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, CHECKS[field.name](field.name, getattr(self, field.name)))
        if self.resume:
            return
        if self.task == "table" and (self.source != "file" or not self.target):
            raise ConfigError("a table needs a file and the column to predict; upload a CSV and choose one.")
        if self.task != SPIKEWHALE and self.source == "dataset":
            raise ConfigError(f"task {self.task} reads no data set of the Hub; choose a file, or SpikeWhale.")
        if self.source == "dataset" and not self.dataset:
            raise ConfigError("no data set is chosen; choose one, or train on the embedded text.")
        if self.source == "file" and self.task != "digits" and not self.data:
            raise ConfigError("no file is chosen; choose one, or train on the built-in text.")

    @classmethod
    def of(cls, values: object) -> "JobRequest":
        """The request of a mapping from outside. Raises ConfigError for what is no setting, too."""
        if not isinstance(values, Mapping):
            raise ConfigError(f"the settings are {_shown(values)}; they must be an object.")
        unknown = [str(key)[:40] for key in values if key not in CHECKS]
        if unknown:
            raise ConfigError(f"{', '.join(unknown[:5])}: there is no such setting.")
        return cls(**values)

    def as_json(self) -> dict[str, Any]:
        """What `of` reads."""
        return asdict(self)

    def arguments(self) -> list[str]:
        """The arguments of `daisychain train`, but for the folders; `--flag=value`, so that no value is a flag."""
        if self.resume:
            return ["--resume", f"--name={self.resume}", f"--steps={self.steps}", f"--nodes={self.nodes}"]
        given: dict[str, Any] = {
            "task": self.task + ("-float" if self.arithmetic == "float" else ""),
            "name": self.name,
            "nodes": self.nodes,
            "steps": self.steps,
            "batch": self.batch,
            "lr": repr(self.learning_rate),
            "warmup": self.warmup,
            "seed": self.seed,
            "checkpoint-every": self.checkpoint_every,
        }
        if self.task != "digits":
            given |= {"data": self.data if self.source == "file" else None}
        if self.task == "table":
            given |= {"target": self.target}
        if self.task == SPIKEWHALE:
            given |= self._model() | (self._hub() if self.source == "dataset" else {})
        return [f"--{flag}={value}" for flag, value in given.items() if value is not None]

    def _model(self) -> dict[str, Any]:
        return {
            "preset": self.preset,
            "width": self.width,
            "layers": self.layers,
            "heads": self.heads,
            "sequence": self.sequence,
            "without": ",".join(self.without) or None,
        }

    def _hub(self) -> dict[str, Any]:
        return {
            "dataset": self.dataset,
            "dataset-config": self.dataset_config,
            "split": self.split,
            "column": self.column,
            "on-data-failure": self.on_data_failure,
        }


CHECKS: Mapping[str, Check] = {
    "task": one_of(*TASKS),
    "name": run_name,
    "resume": run_name,
    "nodes": whole(1, limits.MAX_LOCAL_NODES),
    "steps": whole(1, limits.PANEL_MAX_STEPS),
    "batch": whole(1, limits.PANEL_MAX_BATCH),
    "learning_rate": number(*limits.PANEL_RATES),
    "warmup": whole(0, limits.PANEL_MAX_STEPS),
    "arithmetic": one_of("int8", "float"),
    "seed": whole(0, (1 << 31) - 1),
    "checkpoint_every": whole(1, limits.PANEL_MAX_CHECKPOINT_EVERY),
    "preset": one_of(*PRESETS),
    "width": whole(*limits.PANEL_WIDTHS, limits.PANEL_WIDTH_STEP),
    "layers": whole(*limits.PANEL_LAYERS),
    "heads": whole(*limits.PANEL_HEADS),
    "sequence": whole(*limits.PANEL_SEQUENCES, limits.PANEL_SEQUENCE_STEP),
    "without": some_of(PARTS),
    "source": one_of(*SOURCES),
    "dataset": matching(_DATASET, "owner/name, as the Hub writes it"),
    "dataset_config": line(limits.PANEL_TEXT_CHARACTERS),
    "split": matching(_SPLIT, "a split's name"),
    "column": line(limits.PANEL_TEXT_CHARACTERS),
    "on_data_failure": one_of("stop", "embedded"),
    "data": line(limits.PANEL_PATH_CHARACTERS),
    "target": line(limits.PANEL_TEXT_CHARACTERS),
}


def recalled(values: object) -> dict[str, Any]:
    """Of a mapping from outside, the settings that can be used, and the defaults of all others."""
    kept = {field.name: _default(field) for field in fields(JobRequest)}
    for name, value in values.items() if isinstance(values, Mapping) else ():
        if name in CHECKS:
            try:
                kept[name] = CHECKS[name](name, value)
            except DaisyError:
                continue
    return kept


def _default(field: "Field[Any]") -> Any:
    assert field.default is not MISSING
    return field.default


def _finite(name: str, value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):  # a whole number beyond every float
            if math.isfinite(value):
                return value
    raise ConfigError(f"{name} is {_shown(value)}; it must be a finite number.")


def _shown(value: object) -> str:
    """A value in a few words, whatever it is."""
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return "a huge number"
    if isinstance(value, str):
        return repr(value[:40])
    if isinstance(value, float | int) or value is None:
        return repr(value)
    return f"of type {type(value).__name__}"
