"""The help of the commands, and the reference page generated from it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.app import BUILD, CHANGE, INSPECT, RUN
from headwater.cli.main import VERBS, root_command

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import cli_reference  # noqa: E402  it lies beside the Makefile that runs it


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Return every command that can be run, with its full name."""
    for name, inner in getattr(command, "commands", {}).items():
        if inner.params or not getattr(inner, "commands", None):
            yield " ".join((*words, name)), inner
        yield from leaves(inner, (*words, name))


ROOT_COMMAND = root_command([])
COMMANDS = dict(leaves(ROOT_COMMAND))


def test_the_page_is_up_to_date() -> None:
    """The committed page is the one that the script generates from the commands."""
    written = cli_reference.PAGE.read_text()
    assert written == cli_reference.page(), "the commands have changed: python scripts/cli_reference.py"


def test_verbs_are_grouped() -> None:
    """`headwater` alone shows every verb in one of four groups: build, run, inspect, change."""
    done = subprocess.run([sys.executable, "-m", "headwater"], capture_output=True, text=True, check=False)
    told = done.stdout + done.stderr
    at = [told.index(f"─ {panel} ─") for panel in (BUILD, RUN, INSPECT, CHANGE)]
    assert at == sorted(at)
    assert {command.rich_help_panel for command in ROOT_COMMAND.commands.values()} == {BUILD, RUN, INSPECT, CHANGE}
    assert set(ROOT_COMMAND.commands) == set(VERBS)


@pytest.mark.parametrize("words", sorted(COMMANDS))
def test_every_command_has_an_example(words: str) -> None:
    """A command's help ends with a valid example of that command."""
    command = COMMANDS[words]
    _, _, examples = command.help.partition("\nExample")
    lines = [line.strip() for line in examples.splitlines()[1:] if line.strip()]
    assert lines, f"headwater {words} --help has no example"
    for line in lines:
        _, _, after = line.partition(f"headwater {words}")
        assert f"headwater {words}" in line
        given = {word.partition("=")[0] for word in shlex.split(after) if word.startswith("-")}
        known = {name for parameter in command.params for name in parameter.opts}
        assert given <= known, line


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("headwater rep", {"replay", "repartition"}),
        ("headwater rewind x --re", {"--reader", "--redo", "--replan", "--resume"}),
        ("headwater run browser", {"browser-stats-stateful", "browser-stats-stateless"}),
        ("headwater log or", {"orders", "order-status"}),
    ],
)
def test_a_shell_completes(line: str, expected: set[str], tmp_path: Path) -> None:
    """Verbs, options, jobs and the checkpoints of the folder are completed in bash."""
    for name in ("orders", "order-status", "visits"):
        (tmp_path / ".headwater/checkpoints" / name).mkdir(parents=True)
    asked = {"_HEADWATER_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    script = Path(sys.executable).with_name("headwater")
    done = subprocess.run(
        [script], cwd=tmp_path, env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert set(done.stdout.split()) == expected, done.stderr
