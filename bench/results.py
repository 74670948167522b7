"""What runs gave: a JSON file for each, and ``latest`` with the newest of every workload, which the documentation shows."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDER = HERE / "results"
LATEST = FOLDER / "latest.json"
PAGE = HERE.parent / "docs" / "performance.md"
PICTURES = PAGE.parent / "images"


def save(found: dict[str, dict[str, Any]]) -> Path:
    """Keep a run of some workloads; each carries its own date and machine."""
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"run-{datetime.now(UTC):%Y%m%d-%H%M%S}-{'-'.join(found)}.json"
    file.write_text(json.dumps(found, indent=1) + "\n")
    return file


def publish(found: dict[str, dict[str, Any]]) -> None:
    """Make these the ones that the documentation shows; workloads that were not run keep what they had."""
    LATEST.write_text(json.dumps({**latest(), **found}, indent=1, sort_keys=True) + "\n")


def latest() -> dict[str, dict[str, Any]]:
    return json.loads(LATEST.read_text()) if LATEST.exists() else {}


def save_report(tables: dict[str, str], plots: dict[str, dict[str, str]]) -> None:
    """The tables as one Markdown file, and with their plots between the page's markers."""
    (FOLDER / "latest.md").write_text("\n\n".join(tables.values()) + "\n")
    page = PAGE.read_text()
    for name, table in tables.items():
        links = []
        for file, picture in plots[name].items():
            (PICTURES / f"bench-{file}.svg").write_text(picture)
            links.append(f"![{_title(picture)}](images/bench-{file}.svg)")
        shown = "\n\n".join([table, *links])
        pattern = re.compile(rf"(<!-- bench {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        page = pattern.sub(lambda found, shown=shown: f"{found[1]}\n{shown}\n\n{found[2]}", page)
    PAGE.write_text(page)


def _title(picture: str) -> str:
    found = re.search(r"<title>(.*?)</title>", picture)
    return found[1] if found else "plot"
