"""`daisychain`: the commands, and what becomes of an error: one line, and an exit code that means something."""

import os
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated, Any

import typer

from daisychain.base import limits
from daisychain.base.errors import INTERRUPTED, DaisyError, FleetError
from daisychain.cli import ablate, agent, dashboard, doctor, inference, room, tokenizer, train, units

#: The base of all usage errors, wherever this version of typer keeps it.
_UsageProblem: type[Any] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="daisychain",
    help="Pool the computers you own to train one small model, verified and bit-identical on every one of them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    train.train, room.room, units.verify, inference.predict, inference.generate, inference.export, doctor.doctor
):  # fmt: skip
    app.command()(command)
app.command()(agent.agent)
app.command()(ablate.ablate)
app.command()(dashboard.dashboard)
app.command()(dashboard.panel)
app.add_typer(units.app, name="units")
app.add_typer(tokenizer.app, name="tokenizer")
COMMANDS = (
    "train", "agent", "dashboard", "panel", "room", "verify", "predict", "generate", "export", "ablate", "doctor",
    "units", "tokenizer",
)  # fmt: skip


def _version(wanted: bool) -> None:
    if wanted:
        print(f"daisychain {metadata.version('daisychain')}, contract {limits.CONTRACT_VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Must be the same on every node.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    pass


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code: 0, 1 for a failed check, 2 for bad input, 3 for a lost fleet."""
    try:
        answer = typer.main.get_command(app).main(
            list(arguments), prog_name="daisychain", standalone_mode=False, obj=list(arguments)
        )
        return answer if isinstance(answer, int) else 0
    except DaisyError as error:
        _say_error(str(error))
        if isinstance(error, FleetError):
            from daisychain.cluster.fleet.gloo import end_process

            end_process(error.exit_code)
        return error.exit_code
    except _UsageProblem as error:
        if message := error.format_message():  # without one the help has just been shown
            known = arguments[:1] if arguments[0] in COMMANDS else []
            _say_error(f"{message} ({' '.join(['daisychain', *known])} --help shows what there is)")
        return 2
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        _say_error(f"{error.filename or 'the system'}: {error.strerror or error}.")
        return 2
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED


def _say_error(message: str) -> None:
    print(f"error: {' '.join(message.split())}", file=sys.stderr, flush=True)


def main() -> None:
    """The console script `daisychain`."""
    sys.exit(run(sys.argv[1:]))


def main_train() -> None:
    """The console script `daisychain-train`: the same as `daisychain train`."""
    sys.exit(run(["train", *sys.argv[1:]]))


def main_agent() -> None:
    """The console script `daisychain-agent`: the same as `daisychain agent`."""
    sys.exit(run(["agent", *sys.argv[1:]]))


def main_dashboard() -> None:
    """The console script `daisychain-dashboard`: the same as `daisychain dashboard`."""
    sys.exit(run(["dashboard", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
