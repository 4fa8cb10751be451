"""The documents are true: their commands run, their Python runs, their links lead somewhere, their lists are whole.

Fences say what they hold: `sh` and `python` are run, `console` cannot be (UNRUN lists those commands), `text` is shown.
A Python block that begins with `# name.py` is saved under that name. All documents share one working folder.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree

import pytest
import typer

from daisychain.base import limits
from daisychain.cli import main

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCUMENTS = [README, *sorted((ROOT / "docs").glob("*.md"))]
#: Commands that only a whole checkout or another machine can run. `scripts/run` is `daisychain train --nodes 3`.
UNRUN = {
    "daisychain train --task spikewhale --data texts/ --name mine",
    "daisychain train --task spikewhale --dataset roneneldan/TinyStories --name stories",
    "daisychain train --task spikewhale --dataset HuggingFaceFW/fineweb-edu --dataset-config sample-10BT --name web",
    "daisychain train --task spikewhale --name whale",
    "daisychain train --task spikewhale --preset small --without engram,refinement --batch 8 --nodes 2 --name whale",
    'daisychain generate runs/whale/model.safetensors --prompt "The " --tokens 60',
    "daisychain panel",
    "scripts/setup",
    "scripts/run",
    "scripts/test",
    ". .venv/bin/activate",
    "export MASTER_ADDR=192.168.1.20",
    "export WORLD_SIZE=3",
    "export RANK=0",
    "daisychain train --name together",
    "daisychain ablate --seeds 3",
    "daisychain room",
    "daisychain room --https",
    'daisychain generate daisychain-step-300.safetensors --prompt "The " --tokens 60 --seed 1',
    "daisychain room --host 127.0.0.1 --trusted-proxy 127.0.0.1",
    "daisychain dashboard --host 0.0.0.0",
    "daisychain dashboard",
    "daisychain agent --dashboard http://192.168.1.20:8080 --token TOKEN",
}
STEPS = 6  # in place of the default, and `--steps` in proportion
BLOCK_LIMIT_S = 100.0
#: What no file may contain: somebody's folders, and the addresses of package registries.
FOLDERS = re.compile(r"(?<![\w.])/(?:home|root|work|Users)/|[A-Za-z]:\\Users", re.IGNORECASE)
REGISTRIES = re.compile(
    r"https?://([\w.@:-]*(?:pypi|pythonhosted|npmjs|pytorch|conda|docker|mirror|registry|proxy)[\w.:-]*)"
)
TORCH_INDEX = ("scripts/setup", "download.pytorch.org")


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    where: str  # document and line


def blocks(document: Path, *languages: str) -> list[Block]:
    """The fenced blocks of a document, in order; all languages if none is given."""
    found = []
    text = document.read_text(encoding="utf-8")
    for match in re.finditer(r"^( *)```(.*)\n((?:.*\n)*?)\1```$", text, re.MULTILINE):
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(match[2], textwrap.dedent(match[3]), f"{document.relative_to(ROOT)}:{line}"))
    return [block for block in found if not languages or block.language in languages]


def without_blocks(document: Path) -> str:
    return re.sub(
        r"^( *)```.*\n(?:.*\n)*?\1```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE
    )


def files() -> list[str]:
    """What a clone has, and what would be added to it next."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in sorted(set(answer.stdout.splitlines())) if (ROOT / name).is_file()]


class Reader:
    """Somebody who works through the documents in one folder, and does nothing twice."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outputs: dict[str, str] = {}
        for name in ("docs", "examples"):
            copytree(ROOT / name, folder / name)
        self.env = {
            **{
                k: v for k, v in os.environ.items() if not re.match("DAISY_|MASTER_|WORLD_SIZE|RANK|GLOO_", k)
            },
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "DAISY_STEPS": str(STEPS),
            "MASTER_PORT": str(free_port()),
            "OMP_NUM_THREADS": "1",
        }

    def follow(self, block: Block) -> None:
        if block.text in self.outputs:
            return
        if block.language == "sh":
            self.outputs[block.text] = self._run_shell(block)
        elif name := re.match(r"# (\w+\.py)\n", block.text):
            (self.folder / name[1]).write_text(block.text, encoding="utf-8")
        else:
            exec(compile(block.text, block.where, "exec"), {"__name__": "document"})  # noqa: S102

    def _run_shell(self, block: Block) -> str:
        """Everything that the block prints. The test fails if one of its commands does."""
        script = re.sub(r"--steps (\d+)", shortened, block.text)
        process = subprocess.Popen(
            ["sh", "-eu", "-c", script],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",  # a model that has hardly learned writes any bytes
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=BLOCK_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(f"{block.where} did not end within {BLOCK_LIMIT_S:g} s:\n{process.communicate()[0]}")
        assert process.returncode == 0, f"{block.where} failed with {process.returncode}:\n{script}\n{output}"
        return output


def shortened(steps: "re.Match[str]") -> str:
    return f"--steps {int(steps[1]) * STEPS // limits.DEFAULT_STEPS}"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(tmp_path_factory.mktemp("reader"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.stem)
def test_commands_and_code_run(document: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(reader.folder)
    for block in blocks(document, "sh", "python"):
        reader.follow(block)


def test_the_readme_shows_what_a_run_prints(reader: Reader) -> None:
    """Every line that the README shows begins like a line of a real run, in the same order."""
    [run] = [block for block in blocks(README, "sh") if "--nodes 3" in block.text]
    reader.follow(run)
    printed = iter(reader.outputs[run.text].splitlines())
    [shown] = [block for block in blocks(README, "text") if "digits: done" in block.text]
    _, summary = shown.text.split("\n\n")
    for line in summary.splitlines():
        label = line.split("  ")[0]
        assert any(line.startswith(label) for line in printed), f"{shown.where}: {label!r} is not printed"


def test_scripts_run_is_the_command_that_is_tested() -> None:
    last = (ROOT / "scripts/run").read_text(encoding="utf-8").splitlines()[-1]
    assert last == 'exec .venv/bin/daisychain train --nodes 3 "$@"'


def test_every_fence_says_what_it_holds() -> None:
    for document in DOCUMENTS:
        for block in blocks(document):
            assert block.language in ("sh", "python", "console", "text"), block.where
        assert "```" not in without_blocks(document), f"{document.name}: a fence is not closed"


def test_commands_that_are_not_run_are_few_and_known() -> None:
    found = {line for d in DOCUMENTS for block in blocks(d, "console") for line in block.text.splitlines()}
    assert found == UNRUN


def test_links_lead_somewhere() -> None:
    broken = [
        f"{document.relative_to(ROOT)}: {link}"
        for document in DOCUMENTS
        for link in re.findall(r"\]\(([^)\s]+)\)", without_blocks(document))
        if not link.startswith("https://") and not leads_somewhere(document, link)
    ]
    assert not broken


def leads_somewhere(document: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (document.parent / name).resolve() if name else document
    if not target.exists():
        return False
    return not anchor or anchor in map(slug, re.findall(r"^#+ (.*)$", without_blocks(target), re.MULTILINE))


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def test_every_document_is_linked_from_the_readme() -> None:
    text = README.read_text(encoding="utf-8")
    assert [d.name for d in DOCUMENTS[1:] if f"(docs/{d.name})" not in text] == []


def test_the_file_map_is_whole() -> None:
    [block] = [block for block in blocks(README, "text") if "src/daisychain/" in block.text]
    assert set(mapped(block.text)) == expected_folders()


def mapped(text: str) -> Iterator[str]:
    """The folders of a map; an indented one lies in the last that is not."""
    parent = ""
    for indent, name in re.findall(r"^( *)([\w./]+)/  +\S.*$", text, re.MULTILINE):
        parent = parent if indent else name
        yield f"{parent}/{name}" if indent else name


def expected_folders() -> set[str]:
    """Every top-level folder, and every package of the code in place of `src`."""
    folders = {Path(name).parts[:-1] for name in files()}
    tops = {parts[0] for parts in folders if parts} - {"src"}
    packages = {"/".join(parts[:3]) for parts in folders if parts[:2] == ("src", "daisychain")}
    return tops | packages


def test_the_environment_table_is_the_command_line() -> None:
    text = (ROOT / "docs/CLUSTER.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?:`(\w+)`|–) \| `(--[\w-]+)` \| (.*?) \|", text, re.MULTILINE)
    described = {flag: (variable, default) for variable, flag, default in rows}
    command = typer.main.get_command(main.app).commands["train"]
    for option in command.params:
        in_help = re.search(r"\(([A-Z_]+)\)", option.help or "")
        variable = option.envvar or (in_help[1] if in_help else None)
        if variable:
            assert described[option.opts[0]][0] == variable
        if option.opts[0] in described and option.default is not None:
            assert described[option.opts[0]][1] == str(option.default)
    assert set(described) <= {option.opts[0] for option in command.params}
    assert described["--master-port"][1] == str(limits.DEFAULT_PORT)
    assert described["--batch"][1] == str(limits.DEFAULT_BATCH_SAMPLES)


def test_no_file_names_a_folder_of_this_machine_or_a_registry() -> None:
    found = set()
    for name in files():
        text = (ROOT / name).read_bytes().decode(errors="replace")
        found |= {(name, match) for match in FOLDERS.findall(text) + REGISTRIES.findall(text)}
    assert found == {TORCH_INDEX}


def test_no_table_waits_for_its_figures() -> None:
    rows = [
        line
        for path in DOCUMENTS
        for line in path.read_text(encoding="utf-8").splitlines()
        if line[:1] == "|"
    ]
    assert [row for row in rows if re.search(r"\| [A-Z]+_[A-Z]+ \|", row)] == []
