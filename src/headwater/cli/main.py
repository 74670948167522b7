"""Entry point of the command line: loads the verb and turns errors into messages and exit statuses."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence
from functools import cache

import typer
from typer.core import TyperGroup

from headwater.cli.app import app
from headwater.cli.output import note, show_error
from headwater.core.errors import HeadwaterError, InternalError, disk_error
from headwater.core.extras import naming_extras

# In the order in which --help lists them. Each module is named after its verb and defers heavy imports.
VERBS: tuple[str, ...] = (
    "jobs",
    "check",
    "run",
    "attach",
    "demo",
    "stop",
    "log",
    "show",
    "state",
    "diff",
    "history",
    "bisect",
    "fsck",
    "late",
    "kept",
    "replay",
    "keep",
    "rewind",
    "edit",
    "migrate",
    "undo",
    "compact",
    "fork",
    "promote",
    "move",
    "repartition",
    "seed",
    "export",
    "import",
    "ui",
    "passwd",
    "alerts",
    "jars",
    "broker",
    "topics",
    "produce",
    "consume",
    "generate",
)


_MODULES = {"import": "import_state"}  # a module cannot have the name of a keyword


def root_command(arguments: Sequence[str]) -> TyperGroup:
    """Return the root command with the verb that is named in the arguments, or with all verbs if none is named."""
    named = next((argument for argument in arguments if not argument.startswith("-")), None)
    for verb in (named,) if named in VERBS else VERBS:
        importlib.import_module(f"headwater.cli.{_MODULES.get(verb, verb)}")
    return _root_of(len(app.registered_commands) + len(app.registered_groups))


@cache
def _root_of(verbs: int) -> TyperGroup:  # noqa: ARG001  converted once: Typer takes longer than most verbs
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    root.commands = dict(sorted(root.commands.items(), key=lambda item: VERBS.index(item[0])))
    return root


def main(command: Sequence[str] | None = None) -> None:
    """Run one verb, by default that of the command line. Show a traceback only with ``--debug``."""
    given = sys.argv[1:] if command is None else command
    debug = "--debug" in given
    arguments = [argument for argument in given if argument != "--debug"]
    try:
        with naming_extras():
            root_command(arguments)(args=arguments, prog_name="headwater")
    except HeadwaterError as error:
        if debug:
            raise
        show_error(error, as_json="--json" in arguments)
        sys.exit(error.exit_status)
    except KeyboardInterrupt as stop:
        _show_stop(stop)
        sys.exit(130)
    except SystemExit as end:
        if (stopped := _stop_behind(end)) is not None:
            _show_stop(stopped)
            raise
        # Typer and Rich exit with an error as soon as a pipe is closed.
        closed = end.__context__
        if not isinstance(closed, BrokenPipeError):
            raise
        if _is_of_output(closed):
            sys.exit(0)
        show_error(InternalError(closed), as_json="--json" in arguments)
        sys.exit(InternalError.exit_status)
    except Exception as error:
        if debug:
            raise
        failure = (disk_error(error) if isinstance(error, OSError) else None) or InternalError(error)
        show_error(failure, as_json="--json" in arguments)
        sys.exit(failure.exit_status)


def _stop_behind(end: SystemExit) -> KeyboardInterrupt | None:
    """Return the Ctrl-C that Typer has turned into an exit; None if it was something else."""
    cause: BaseException | None = end if end.code == 130 else None
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__context__
    return cause


def _show_stop(stop: KeyboardInterrupt) -> None:
    """Say that the command was stopped, and what it has left unfinished."""
    for text in getattr(stop, "__notes__", None) or ["stopped"]:
        note(text)


def _is_of_output(closed: BrokenPipeError) -> bool:
    """Return whether the reader of the output went away, as ``head`` does, rather than a server."""
    *_, (frame, _) = traceback.walk_tb(closed.__traceback__)
    module = str(frame.f_globals["__name__"])
    return module == note.__module__ or module.partition(".")[0] in ("rich", "typer", "click")
