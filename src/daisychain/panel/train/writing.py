"""Let a trained model write: a child process, one at a time, limited in time and length."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daisychain.base import limits
from daisychain.base.errors import ConfigError
from daisychain.panel.request import number, whole

WRITER = (sys.executable, "-m", "daisychain.cli.main", "generate")


@dataclass(frozen=True)
class Wish:
    """What is to be written. Building one checks it; ConfigError names what cannot be."""

    prompt: str
    tokens: int = 100
    temperature: float = 0.8
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.prompt, str) or len(self.prompt) > limits.PROMPT_CHARACTERS:
            raise ConfigError(f"the prompt must be a text of at most {limits.PROMPT_CHARACTERS} characters.")
        if "\0" in self.prompt or not _encodes(self.prompt):
            raise ConfigError("the prompt holds a character that cannot be passed on.")
        for name, check in CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))

    def arguments(self, model: Path) -> list[str]:
        """One argument each, none of which can be taken for a flag."""
        return [
            f"--prompt={self.prompt}",
            f"--tokens={self.tokens}",
            f"--temperature={self.temperature!r}",
            f"--seed={self.seed}",
            "--",
            str(model.resolve()),
        ]


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "tokens": whole(1, limits.PROMPT_TOKENS),
    "temperature": number(0.0, 2.0),
    "seed": whole(0, (1 << 31) - 1),
}


class Writer:
    """Of one panel: who asks while somebody else's text is being written is told so."""

    def __init__(self, command: Sequence[str] = WRITER, limit_s: float = limits.PROMPT_LIMIT_S) -> None:
        self._command = tuple(command)
        self._limit_s = limit_s
        self._busy = False

    async def write(self, model: Path, wish: Wish, show: Callable[[str], None]) -> str:
        """Write, and `show` each piece as it comes, the prompt first. How it ended, in words; empty for as it should.

        Cancelling this ends the child. Raises ConfigError where another text is being written.
        """
        if self._busy:
            raise ConfigError("another text is being written; wait until it is there.")
        self._busy = True
        try:
            return await self._write(model, wish, show)
        finally:
            self._busy = False

    async def _write(self, model: Path, wish: Wish, show: Callable[[str], None]) -> str:
        child = await asyncio.create_subprocess_exec(
            *self._command,
            *wish.arguments(model),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert child.stdout
        assert child.stderr
        said = asyncio.create_task(_last_of(child.stderr))
        try:
            return await asyncio.wait_for(_passed_on(child, said, show), self._limit_s)
        except asyncio.TimeoutError:
            return f"stopped after {self._limit_s:.0f} s."
        finally:
            with contextlib.suppress(ProcessLookupError):
                if child.returncode is None:
                    child.kill()
            await child.wait()
            said.cancel()


async def _passed_on(
    child: asyncio.subprocess.Process, said: asyncio.Task[bytes], show: Callable[[str], None]
) -> str:
    """Show what a child writes until it ends or has written enough."""
    assert child.stdout
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    left = limits.PROMPT_OUTPUT_BYTES
    while left > 0 and (piece := await child.stdout.read(min(left, 1 << 12))):
        left -= len(piece)
        if text := decoder.decode(piece):
            show(text)
    if left <= 0:
        return "stopped: that is as long as a text may be here."
    words = (await said).decode(errors="replace").strip().splitlines()
    if await child.wait():
        errors = [line.removeprefix("error: ") for line in words if line.startswith("error: ")]
        return errors[-1] if errors else f"the writer ended with exit code {child.returncode}."
    return ""


async def _last_of(stream: asyncio.StreamReader) -> bytes:
    """The end of what a child says beside the text; all of it is read, so that it never waits for a reader."""
    kept = b""
    while piece := await stream.read(1 << 12):
        kept = (kept + piece)[-limits.JOB_LOG_BYTES :]
    return kept


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
