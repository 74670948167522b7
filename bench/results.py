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


def save_report(tables: dict[str, str], plots: dict[str, str]) -> None:
    """The tables as one Markdown file and between the page's markers; the plots beside them."""
    for name, picture in plots.items():
        (FOLDER / f"latest-{name}.svg").write_text(picture)
    (FOLDER / "latest.md").write_text("\n\n".join(tables.values()) + "\n")
    if PAGE.exists():
        page = PAGE.read_text()
        for name, table in tables.items():
            pattern = re.compile(rf"(<!-- bench {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
            page = pattern.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", page)
        PAGE.write_text(page)
