"""The command's root, to which each verb's file adds itself."""

from __future__ import annotations

import typer

BUILD, RUN, LOOK, CHANGE = "Build", "Run", "Look", "Change"

app = typer.Typer(
    name="headwater",
    help="Build, test, inspect and rewind stateful Spark streams.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def headwater() -> None:
    """The verbs are commands of a group even when only one of them is loaded."""
