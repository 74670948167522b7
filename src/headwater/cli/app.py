"""The root command, to which the module of each verb adds itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from headwater.cli.output import say

BUILD, RUN, INSPECT, CHANGE = "Build", "Run", "Inspect", "Change"

JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
JsonObject = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


class _Commands(typer.Typer):
    """A Typer whose commands take their help from the docstring, reflowed to the width of the terminal."""

    def command(self, *args: Any, **options: Any) -> Callable[[Any], Any]:
        def add(function: Any) -> Any:
            return super(_Commands, self).command(*args, **{"help": reflow(inspect.getdoc(function) or ""), **options})(
                function
            )

        return add


def reflow(text: str) -> str:
    """Join the lines of each paragraph; keep the lines of examples, without their indentation."""
    parts = text.split("\n\n")
    return "\n\n".join(
        part.replace("\n  ", "\n") if part.startswith("Example") else part.replace("\n", " ") for part in parts
    )


app = _Commands(
    name="headwater",
    help="Build, test, inspect and rewind stateful Spark streams.",
    epilog="Run 'headwater COMMAND --help' for the options of a command and an example.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(requested: bool) -> None:
    if requested:
        from headwater import __version__

        say(f"headwater {__version__}")
        raise typer.Exit


# Without a callback, Typer would turn the only command that is loaded into the root command.
@app.callback()
def headwater(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Build, test, inspect and rewind stateful Spark streams."""
