"""From a name to a task: built-in, or code of the user's own."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from daisychain.base.errors import CheckpointError, TaskError
from daisychain.base.log import say
from daisychain.data.names import suggest
from daisychain.tasks.attempt import attempt
from daisychain.tasks.check import check_settings
from daisychain.tasks.digits import DigitsTask
from daisychain.tasks.spikewhale import SpikeWhaleTask
from daisychain.tasks.table import TableTask
from daisychain.tasks.task import Task, TaskOptions, shown
from daisychain.tasks.text import TextTask

CLASSES: dict[str, type[DigitsTask] | type[TableTask] | type[TextTask] | type[SpikeWhaleTask]] = {
    "digits": DigitsTask,
    "table": TableTask,
    "text": TextTask,
    "spikewhale": SpikeWhaleTask,
}
FLOAT = "-float"
BUILT_IN = (*CLASSES, *(name + FLOAT for name in CLASSES))
REQUIRED = ("build_model", "sample", "loss")


def load_task(spec: str, options: TaskOptions | None = None, quiet: bool = False) -> Task:
    """A built-in task by its name, or `module:Class`, or `path/to/file.py:Class`.

    A class of the user's own is constructed with the options if the first argument of its constructor is
    required or is named `options`, otherwise with none. Unless `quiet`, what was decided about the data is said.
    Raises TaskError, and whatever DaisyError the task itself does.
    """
    options = options or TaskOptions()
    if spec in BUILT_IN:
        task: Task = CLASSES[spec.removesuffix(FLOAT)](
            replace(options, arithmetic="float") if spec.endswith(FLOAT) else options
        )
    else:
        task = _adopted(_constructed(_found(spec), options, spec), spec)
    check_settings(task, spec)
    if not quiet:
        for note in attempt(lambda: list(task.notes), f"task {spec!r}: its notes cannot be read"):
            say(str(note))
    return task


def restore_task(name: str, description: object, allow: str | None = None) -> Task:
    """The task of a checkpoint, able to build the model and to infer.

    A checkpoint may be hostile, so code of its choice is never imported: only a built-in task is, or the one that
    the caller names in `allow`. Raises TaskError, CheckpointError, DataError.
    """
    if not isinstance(description, Mapping):
        raise CheckpointError(
            f"the checkpoint's task is described by {shown(description)}; it must be an object."
        )
    if allow is not None and allow not in BUILT_IN:
        return _restored(_found(allow), description, allow)
    if name not in BUILT_IN:
        raise TaskError(
            f"the checkpoint was made by task {name[:200]!r}, whose code is not run on a checkpoint's word; if you "
            "trust that code, name it with --task."
        )
    if allow not in (None, name):
        raise TaskError(f"the checkpoint was made by task {name!r}, not by {allow!r}; leave --task out.")
    task = CLASSES[name.removesuffix(FLOAT)].restore(description)
    task.name = name
    return task


def _found(spec: str) -> Callable[..., object]:
    """The class that `module:Class` or `file.py:Class` names, imported from here or the current directory."""
    where, _, name = spec.rpartition(":")
    if not where or not name:
        raise TaskError(
            f"task {spec!r} is not known: {suggest(spec, BUILT_IN)} Name one of your own as module:Class or "
            "path/to/file.py:Class."
        )
    module = attempt(lambda: _module_of(where), f"task {spec!r} cannot be imported")
    if not hasattr(module, name):
        classes = [key for key, value in vars(module).items() if inspect.isclass(value) and key[0] != "_"]
        raise TaskError(f"task {spec!r}: {where!r} has no class {name!r}; {suggest(name, classes)}")
    found: Callable[..., object] = getattr(module, name)
    if not callable(found):
        raise TaskError(f"task {spec!r} is {shown(found)}; it must be a class.")
    return found


def _module_of(where: str) -> ModuleType:
    path = Path(where)
    is_file = path.suffix == ".py"
    _search(path.parent.resolve() if is_file else Path.cwd())
    if not is_file:
        return importlib.import_module(where)
    name = f"daisychain_task_{path.stem}"
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None or module_spec.loader is None:
        raise ImportError(f"{where} is not a Python file")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up
    module_spec.loader.exec_module(module)
    return module


def _search(folder: Path) -> None:
    """Let modules of a folder be imported, as `python -m` and `python file.py` do."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _constructed(found: Callable[..., object], options: TaskOptions, spec: str) -> object:
    arguments = (options,) if _takes_options(found) else ()
    return attempt(lambda: found(*arguments), f"task {spec!r} cannot be constructed")


def _takes_options(found: Callable[..., object]) -> bool:
    try:
        first = next(iter(inspect.signature(found).parameters.values()), None)
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return (
        first is not None
        and first.kind in positional
        and (first.name == "options" or first.default is first.empty)
    )


def _restored(found: Callable[..., object], description: Mapping[str, Any], spec: str) -> Task:
    restore = getattr(found, "restore", None)
    if restore is None or getattr(restore, "__func__", None) is vars(Task)["restore"].__func__:
        return _adopted(_constructed(found, TaskOptions(), spec), spec)
    return _adopted(attempt(lambda: restore(description), f"task {spec!r} cannot be restored"), spec)


def _adopted(made: object, spec: str) -> Task:
    """A task, or an object that looks like one, as a Task. Raises TaskError for what it lacks."""
    lacking = [
        name for name in REQUIRED if not callable(getattr(made, name, None)) or _is_default(made, name)
    ]
    if lacking:
        raise TaskError(
            f"task {spec!r} lacks the methods {', '.join(lacking)}; examples/my_task_template.py shows them."
        )
    if isinstance(made, Task):
        return made
    return attempt(lambda: _LookalikeTask(made), f"task {spec!r} cannot be read")


def _is_default(made: object, name: str) -> bool:
    return getattr(type(made), name, None) is getattr(Task, name)


class _LookalikeTask(Task):
    """An object with the methods of a task, with the defaults of Task for what it lacks."""

    def __init__(self, made: object) -> None:
        for name in vars(Task):
            if not name.startswith("_") and hasattr(made, name):
                setattr(self, name, getattr(made, name))
