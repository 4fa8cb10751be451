"""Small rules of style that a reader would otherwise have to watch."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/daisychain"
FILE_LINES = 400
FUNCTION_LINES = 60
LONG_FUNCTIONS = {"cli/train.py: train"}  # a list of flags
PRINTS = ("cli/", "base/log.py")  # everything else speaks through base.log


def modules() -> Iterator[tuple[str, str, ast.Module]]:
    """Name, text and tree of every module."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        yield path.relative_to(SOURCE).as_posix(), text, ast.parse(text)


def test_files_are_short() -> None:
    assert [name for name, text, _ in modules() if text.count("\n") >= FILE_LINES] == []


def test_functions_are_short() -> None:
    found = {
        f"{name}: {node.name}"
        for name, _, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES
    }
    assert found == LONG_FUNCTIONS


def test_every_module_says_what_it_holds() -> None:
    assert [name for name, text, tree in modules() if text and not ast.get_docstring(tree)] == []


def test_only_the_edge_prints() -> None:
    found = {
        name
        for name, _, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert [name for name in sorted(found) if not name.startswith(PRINTS)] == []


def test_every_limit_is_used() -> None:
    """A bound that nothing heeds would deceive whoever changes it."""
    names = re.findall(
        r"^([A-Z_]+) *=", (SOURCE / "base/limits.py").read_text(encoding="utf-8"), re.MULTILINE
    )
    places = [SOURCE, ROOT / "tests", ROOT / "benchmarks"]
    code = "\n".join(path.read_text(encoding="utf-8") for place in places for path in place.rglob("*.py"))
    assert len(names) > 50
    assert [name for name in names if not re.search(rf"\blimits\.{name}\b", code)] == []
