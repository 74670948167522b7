"""How Headwater writes: phrases that must not return, and markdown that is wrapped."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WIDTH = 100

# Each reads like a translation; the words on the right are the field's own.
BANNED = {
    r"batch in hand": "current batch",
    r"\banew\b": "again, from scratch",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"the very (records?|same|commands?|rows?|batch)": "the records",
    r"\blet us\b": "(name the actor)",
    r"\b(job|jar|lease|class|session|mistake|page)s? of ours\b": "Headwater's",
    r"\bthat should not\b": "unexpected",
    r"\bis content\b": "passes",
    r"\bmay not be \w+ by you\b": "permission denied",
    r"\bone can\b": "you can",
    r"\bwas quicker\b": "acquired the lease first",
    r"\b(made-up|made up) (data|records)\b": "generated data",
    r"\bbrought to life\b": "created",
    r"\bis no time\b": "is not a valid time",
    r"\bspoilt\b": "corrupt",
    r"\bwhere to go on\b": "next steps",
    r"\bour words\b": "messages",
    r"\bstart(s|ed)? over\b": "restart from scratch",
    r"\bcan bear\b": "can recover from",
    r"\blets? go\b": "evict, expire",
    r"\bfits these words\b": "matches",
    r"\bone batch whole\b": "everything about one batch",
    r"\bknows of\b": "knows about",
    r"\b(can|cannot|could|to) read on\b(?! (the|a|S3))": "continue",
    r"\bgoes without\b": "works without",
    r"\ball the same\b": "anyway",
    r"\bmost troubled\b": "with problems",
    r"\bleave the table\b": "are removed from the table",
}
TEXT = {".py", ".md", ".java", ".toml", ".sh", ".yml", ".css", ""}
QUOTES_AND_DATA = ("tests/golden/", "tests/docs/test_voice.py", "LICENSE", "tests/corpus/")


@cache
def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.split("\0") if name and not name.startswith(QUOTES_AND_DATA)]
    return [ROOT / name for name in names if Path(name).suffix in TEXT and (ROOT / name).is_file()]


@cache
def texts() -> list[tuple[Path, str]]:
    return [(file, file.read_text(errors="replace")) for file in tracked()]


@pytest.mark.parametrize("phrase", BANNED)
def test_phrase_does_not_return(phrase: str) -> None:
    """No text of the project uses a phrase of the list."""
    pattern = re.compile(phrase, re.IGNORECASE)
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file, text in texts()
        if pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, f"write {BANNED[phrase]!r} instead:\n" + "\n".join(found)


def prose_lines(text: str) -> list[tuple[int, str]]:
    """Lines outside code blocks, tables, headings and HTML."""
    lines, in_code = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.lstrip().startswith(("|", "#", "<", "![")):
            lines.append((number, line))
    return lines


def test_markdown_is_wrapped() -> None:
    """Prose stays within 100 columns, unless a line holds a link that is longer."""
    long = [
        f"{file.relative_to(ROOT)}:{number}: {len(line)} columns"
        for file in tracked()
        if file.suffix == ".md"
        for number, line in prose_lines(file.read_text())
        if len(line) > WIDTH
        and " " in re.sub(r"\[[^]]*\]\([^)]*\)|`[^`]*`", "x", line).strip().lstrip("-*0123456789. ")
    ]
    assert not long, "\n".join(long)
