"""Loading a task by name, module or file; and never on a checkpoint's word."""

import sys
from pathlib import Path
from typing import Any

import pytest

from daisychain.base.errors import CheckpointError, TaskError
from daisychain.tasks import Task, TaskOptions, check_task, load_task, restore_task

from .train_help import train

TEMPLATE = Path(__file__).parents[2] / "examples" / "my_task_template.py"
BODY = """
import torch
class Good{base}:
    {count}
    {extra}
    def build_model(self): return torch.nn.Linear(1, 1)
    def sample(self, ids): return torch.ones(len(ids), 1)
    def loss(self, model, batch): return model(batch).mean()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The current directory of a test; what it imports is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(tmp_path) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


def body(base: str = "", extra: str = "", count: str = "sample_count = 3") -> str:
    return BODY.format(base=base, extra=extra, count=count)


def write(folder: Path, base: str = "", extra: str = "", name: str = "my_own.py") -> None:
    (folder / name).write_text(body(base, extra))


@pytest.mark.parametrize("spec", ["my_own:Good", "my_own.py:Good", "./my_own.py:Good"])
@pytest.mark.parametrize("base", ["", "(__import__('daisychain.tasks').tasks.Task)"])
def test_module_and_file_of_the_current_directory(folder: Path, spec: str, base: str) -> None:
    write(folder, base)
    task = load_task(spec)
    check_task(task)
    assert isinstance(task, Task)
    assert (task.sample_count, task.learning_rate, task.batch_samples) == (3, 1e-3, 32)
    assert task.evaluate(task.build_model()) == {}
    assert task.description() == {}


def test_lookalike_keeps_its_own_attributes(folder: Path) -> None:
    write(folder, extra="name = 'mine'; learning_rate = 0.5; notes = ['seen']")
    task = load_task("my_own:Good", quiet=True)
    assert (task.name, task.learning_rate, task.notes) == ("mine", 0.5, ["seen"])


def test_notes_are_said_unless_quiet(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, extra="notes = ['seen']")
    load_task("my_own:Good", quiet=True)
    assert capsys.readouterr().err == ""
    load_task("my_own:Good")
    assert capsys.readouterr().err == "seen\n"


@pytest.mark.parametrize(
    ("signature", "given"),
    [
        ("self", False), ("self, options", True), ("self, o", True), ("self, options=None", True),
        ("self, seed=0", False), ("self, *, seed=0", False), ("self, *args, **kwargs", False),
    ],
)  # fmt: skip
def test_options_are_given_to_a_constructor_that_takes_them(
    folder: Path, signature: str, given: bool
) -> None:
    write(folder, extra=f"def __init__({signature}): self.notes = [str(v) for v in locals().values()]")
    task = load_task("my_own:Good", TaskOptions(seed=77), quiet=True)
    assert ("seed=77" in str(task.notes)) is given


def test_file_beside_it_can_be_imported(folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "beside_it.py").write_text("VALUE = 3\n")
    write(folder, extra="from beside_it import VALUE", name="deep/own.py")
    assert load_task("deep/own.py:Good").sample_count == 3


BAD: dict[str, tuple[str, str, str]] = {
    "unknown name": ("", "digit", "did you mean 'digits'"),
    "no class": ("", "my_own.py", "path/to/file.py:Class"),
    "empty": ("", "", "is not known"),
    "colon only": ("", ":", "is not known"),
    "absent module": ("", "absent_module:A", "ModuleNotFoundError: No module named 'absent_module'"),
    "absent file": ("", "absent.py:A", "absent.py"),
    "folder": ("", "folder.py:A", "folder.py"),
    "relative module": ("", "..x:A", "cannot be imported"),
    "absent class": ("class Goat: pass", "my_own:Goal", "has no class 'Goal'; did you mean 'Goat'"),
    "not a class": ("A = 5", "my_own:A", "is int 5; it must be a class"),
    "syntax": ("def", "my_own:A", "SyntaxError"),
    "raises": ("raise ValueError('two\\nlines')", "my_own:A", r"ValueError: two lines \(my_own.py:1\)"),
    "exits": ("import sys; sys.exit(3)", "my_own:A", "SystemExit: 3"),
    "missing import": ("import absent_module", "my_own:A", "No module named 'absent_module'"),
    "constructor raises": ("class A:\n def __init__(self): 1/0", "my_own:A", r"ZeroDivisionError.*my_own.py:2"),
    "constructor wants two": ("class A:\n def __init__(self, a, b): pass", "my_own:A", "constructed: TypeError"),
    "lacks all": ("class A: pass", "my_own:A", "lacks the methods build_model, sample, loss"),
    "inherits all": (
        "from daisychain.tasks import Task\nclass A(Task):\n def sample(self, ids): pass", "my_own:A",
        "lacks the methods build_model, loss",
    ),
    "attribute for method": (body() + "    sample = 5\n", "my_own:Good", "lacks the methods sample"),
    "no sample count": (body(count=""), "my_own:Good", "sample_count is int 0"),
    "count raises": (
        body(count="sample_count = property(lambda self: 1 / 0)"), "my_own:Good", "cannot be read: ZeroDiv"
    ),
    "notes raise": (body(extra="notes = property(lambda self: 1 / 0)"), "my_own:Good", "cannot be read: ZeroDiv"),
    "count 0": (body(count="sample_count = 0"), "my_own:Good", "sample_count is int 0"),
    "count −1": (body(count="sample_count = -1"), "my_own:Good", "sample_count is int -1"),
    "count 2.5": (body(count="sample_count = 2.5"), "my_own:Good", "sample_count is float 2.5"),
    "count None": (body(count="sample_count = None"), "my_own:Good", "sample_count is NoneType None"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_task_is_refused_on_one_line(folder: Path, name: str) -> None:
    content, spec, words = BAD[name]
    (folder / "my_own.py").write_text(content)
    (folder / "folder.py").mkdir()
    with pytest.raises(TaskError, match=words) as caught:
        load_task(spec)
    assert "\n" not in str(caught.value)


def test_checkpoint_never_imports_code_of_its_choice(folder: Path) -> None:
    write(folder, extra="open('ran', 'w').close()")
    for name in ("my_own:Good", "my_own.py:Good", "os:system", "digits:x", "x" * 10_000):
        with pytest.raises(TaskError, match="not run on a checkpoint's word") as caught:
            restore_task(name, {})
        assert len(str(caught.value)) < 500
    assert not (folder / "ran").exists()
    assert restore_task("my_own:Good", {}, allow="my_own:Good").sample_count == 3
    assert (folder / "ran").exists()


def test_restore_is_used_where_there_is_one(folder: Path) -> None:
    restore = """
    def __init__(self, size): self.notes = [size]
    @classmethod
    def restore(cls, description): return cls(description['size'])
    """
    write(folder, "(__import__('daisychain.tasks').tasks.Task)", restore)
    assert restore_task("anything", {"size": 9}, allow="my_own:Good").notes == [9]
    with pytest.raises(TaskError, match="cannot be restored: KeyError"):
        restore_task("anything", {}, allow="my_own:Good")


def test_restored_from_another_task_or_from_rubbish_is_refused() -> None:
    with pytest.raises(TaskError, match="made by task 'digits', not by 'text'"):
        restore_task("digits", {}, allow="text")
    for description in (None, [], "x", 5):
        with pytest.raises(CheckpointError, match="must be an object"):
            restore_task("digits", description)


def test_template_is_a_task_that_learns() -> None:
    task = load_task(f"{TEMPLATE}:TwoSpirals", TaskOptions(seed=4))
    check_task(task)
    model, losses = train(task, 150, seed=4)
    assert losses[-1] < losses[0] / 4
    assert task.evaluate(model)[task.metric] >= 0.95
