"""Every command shown on a page exists and has the options shown."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.main import root_command

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"```(?:sh|console|text)?\n(.*?)```", re.DOTALL)
INLINE = re.compile(r"`(headwater [^`]+)`")
ENDS = {"|", "<", "&", "&&", ">", ";", "#"}

ROOT_COMMAND = root_command([])


def commands(page: Path) -> Iterator[str]:
    """Return every headwater command of a page: in blocks at the start of a line, and in running text."""
    text = page.read_text()
    for block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            command = re.sub(r"^(\$ |help: )", "", line.strip())
            if command.startswith("headwater "):
                yield command
    yield from INLINE.findall(text)


def words_of(line: str) -> list[str]:
    try:
        words = shlex.split(line)
    except ValueError:  # a quote in a sentence of help
        words = line.split()
    ends = [place for place, word in enumerate(words) if word in ENDS or word.startswith(("(", "#"))]
    return words[1 : min(ends, default=len(words))]


def unknown(words: list[str]) -> str | None:
    command: Any = ROOT_COMMAND
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    if command is ROOT_COMMAND and words and re.fullmatch(r"[a-z]+", words[0]):
        return words[0]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    known |= {"--help", "-h", "--debug", "--install-completion", "--show-completion"}
    given = [word.partition("=")[0].rstrip(",.:") for word in words if re.match(r"--?[a-z]", word)]
    return next((word for word in given if word not in known), None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist(page: Path) -> None:
    """Verbs and options on a page are those of the command line."""
    for line in commands(page):
        assert unknown(words_of(line)) is None, line


def test_a_wrong_one_would_be_noticed() -> None:
    """An unknown verb or option is reported by name."""
    assert unknown(words_of("headwater rewnd CKPT --to 3")) == "rewnd"
    assert unknown(words_of("headwater topics create visits --partition 3")) == "--partition"
    assert unknown(words_of("headwater produce visits --partition 0 < lines.json")) is None
