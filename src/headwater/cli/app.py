"""The command's root, to which each verb's file adds itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from headwater.cli.output import say

BUILD, RUN, LOOK, CHANGE = "Build", "Run", "Look", "Change"


class _Verbs(typer.Typer):
    """Lines of a docstring flow together in its help, as wide as the terminal is; an example's lines stay as they are."""

    def command(self, *args: Any, **options: Any) -> Callable[[Any], Any]:
        def add(function: Any) -> Any:
            return super(_Verbs, self).command(*args, **{"help": flowing(inspect.getdoc(function) or ""), **options})(
                function
            )

        return add


def flowing(text: str) -> str:
    """Paragraphs without their line breaks; the lines of examples without their indentation."""
    parts = text.split("\n\n")
    return "\n\n".join(
        part.replace("\n  ", "\n") if part.startswith("Example") else part.replace("\n", " ") for part in parts
    )


app = _Verbs(
    name="headwater",
    help="Build, test, inspect and rewind stateful Spark streams.",
    epilog="headwater VERB --help shows an example of each. --install-completion teaches your shell the verbs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        from headwater import __version__

        say(f"headwater {__version__}")
        raise typer.Exit


@app.callback()
def headwater(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The verbs are commands of a group even when only one of them is loaded."""
