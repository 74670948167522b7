"""What the changing verbs share: asking before anything moves, showing progress."""

from __future__ import annotations

import sys

import typer

from headwater.cli.output import LivingLine, note
from headwater.core.errors import UsageProblem


def confirmed(question: str, *, yes: bool) -> bool:
    """Asked on a terminal; without one ``--yes`` has to say so."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageProblem(
            "not-confirmed",
            "nothing was changed: there is no terminal to ask on",
            remedy="read the plan with --dry-run, then run the same command with --yes",
        )
    answer = typer.prompt(f"{question} Type yes to go on", default="no", show_default=False, err=True)
    if answer.strip().lower() != "yes":
        note("nothing was changed")
        return False
    return True


class StepProgress:
    """``123 of 4,567 files`` on the last line of a terminal."""

    def __init__(self) -> None:
        self._line = LivingLine()

    def __call__(self, done: int, of: int) -> None:
        if done % 50 == 0 or done == of:
            self._line.show(f"{done:,} of {of:,} steps")
        if done == of:
            self._line.clear()
