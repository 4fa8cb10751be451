"""Which text a language model learns from, and where what was made of it is kept."""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from daisychain.base.errors import ConfigError

#: The default on the hub: ten thousand million tokens of web pages worth learning from.
FINEWEB_EDU, FINEWEB_EDU_CONFIG = "HuggingFaceFW/fineweb-edu", "sample-10BT"

ON_FAILURE = ("stop", "embedded")

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_SPLIT = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
_REVISION = re.compile(r"\w[\w./-]{0,199}", re.ASCII)


@dataclass(frozen=True)
class TextChoice:
    """A file or folder (`path`), a data set of the hub (`dataset`, as owner/name), or with neither the embedded corpus.

    `config`, `column` and `revision` None: the only or default one. `on_failure` says what happens when a hub cannot
    be had: the run stops, or goes on with the embedded corpus. Raises ConfigError for what cannot be a choice.
    """

    path: Path | None = None
    dataset: str | None = None
    config: str | None = None
    split: str = "train"
    column: str | None = None
    revision: str | None = None
    on_failure: Literal["stop", "embedded"] = "stop"

    def __post_init__(self) -> None:
        if self.path is not None and self.dataset is not None:
            raise ConfigError(
                f"data {str(self.path)!r:.200} and data set {self.dataset!r:.100} are both given; choose one."
            )
        if self.on_failure not in ON_FAILURE:
            raise ConfigError(
                f"on-data-failure {self.on_failure!r:.60} must be one of {', '.join(ON_FAILURE)}."
            )
        if self.dataset is None:
            self._refuse_parts()
            return
        _check("data set", self.dataset, _NAME, "owner/name, such as " + FINEWEB_EDU)
        _check("split", self.split, _SPLIT, "a name such as train")
        if self.revision is not None:
            _check("revision", self.revision, _REVISION, "a branch, a tag or a commit")
        for kind, name in (("data set's config", self.config), ("column", self.column)):
            if name is not None and not (
                isinstance(name, str) and 0 < len(name) <= 200 and name.isprintable()
            ):
                raise ConfigError(f"{kind} {name!r:.100} must be a name of 1 to 200 visible characters.")

    def _refuse_parts(self) -> None:
        given = {"config": self.config, "column": self.column, "revision": self.revision}
        for kind, name in given.items():
            if name is not None:
                raise ConfigError(f"{kind} {name!r:.100} belongs to a data set; name one with --dataset.")


def _check(kind: str, text: object, form: re.Pattern[str], wanted: str) -> None:
    if not isinstance(text, str) or not form.fullmatch(text) or ".." in text:
        raise ConfigError(f"{kind} {text!r:.100} must be {wanted}.")


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where tokens are kept: DAISY_CACHE, or where this system keeps what a program can make again."""
    if chosen := environment.get("DAISY_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "daisychain/cache"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/daisychain"
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "daisychain"
