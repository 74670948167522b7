"""Every make target that the pages name exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
RULES = set(re.findall(r"^([a-z]+):(?!=)", MAKEFILE, re.MULTILINE))


def test_every_phony_target_has_a_rule() -> None:
    """A phony target without a rule would do nothing if a folder has its name."""
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert set(phony.split()) == RULES


def test_every_target_that_the_pages_name_has_a_rule() -> None:
    """Every make target that README, the contributing guide or docs/ names has a rule in the Makefile."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    named = {
        word
        for page in pages
        for word in re.findall(r"(?:`|^\$? ?)make ([a-z]+)", page.read_text("utf-8"), re.MULTILINE)
    }
    assert {"test", "demo", "docs", "bench", "soak"} <= named
    assert named <= RULES
