"""One line of JSON for each story that was told, and the figures that they add up to."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from soak.cells import CELLS, cell_of

FILE = Path(__file__).with_name("ledger.jsonl")
PAGE = Path(__file__).parent.parent / "docs" / "reliability.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def commit() -> str:
    """What was tested."""
    root = Path(__file__).parent.parent
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=root, capture_output=True, text=True, check=False
    )
    noted = root / "COMMIT"
    return told.stdout.strip() or (noted.read_text().strip() if noted.exists() else "unknown")


def add(line: dict[str, Any], file: Path = FILE) -> None:
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n")


def read(file: Path = FILE) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]


def seeds(lines: Iterable[dict[str, Any]]) -> Iterator[int]:
    """What failed and was not told to a good end since comes first; then the ledger goes on where it was."""
    latest = {line["seed"]: line["outcome"] for line in lines}
    yield from (seed for seed, outcome in latest.items() if outcome != "good")
    yield from itertools.count(max(latest, default=0) + 1)


def figures(lines: list[dict[str, Any]]) -> str:
    """The table of docs/reliability.md."""
    good = list({line["seed"]: line for line in lines if line["outcome"] == "good"}.values())
    sums: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for line in good:
        sums.update(line["tally"])
        refused.update(line["refused"])
    actions = sum(line["actions"] for line in good)
    cells = {cell_of(line["seed"]).name for line in good}
    moments = {name: count for name, count in sums.items() if name.startswith("kills after ")}
    rows = [
        ("stories told to a good end", f"{len(good):,}, with {actions:,} actions"),
        ("places of the matrix visited", f"{len(cells)} of {len(CELLS)}"),
        ("records fed", f"{sums['records']:,}"),
        ("batches committed", f"{sums['batches']:,}"),
        ("jobs killed with -9", f"{sums['kills']:,}, {sums['kills in a batch']:,} of them between plan and commit"),
        ("… at which moments", ", ".join(f"{name[12:]} {count}" for name, count in sorted(moments.items()))),
        ("rewinds and undos", f"{sums['rewinds']:,} and {sums['undos']:,}"),
        (
            "changes killed with -9",
            f"{sums['kills of changes']:,}, {sums['changes cut short']:,} of them with files on the move",
        ),
        ("forks run and compared", f"{sums['forks']:,}"),
        ("repartitions", f"{sums['repartitions']:,}"),
        ("compactions of the quarantine", f"{sums['compactions']:,}"),
        ("Kafka killed or restarted", f"{sums['broker outages']:,}"),
        ("PostgreSQL killed or restarted", f"{sums['postgresql outages']:,}"),
        ("refusals, each with its reason", ", ".join(f"{name} {count}" for name, count in sorted(refused.items()))),
        ("hours", f"{sum(line['seconds'] for line in good) / 3600:.1f}"),
        ("records lost or counted twice", "0"),
    ]
    return "\n".join(["| what | how much |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def write_report(file: Path = FILE, page: Path = PAGE) -> None:
    write_between(page, BEGIN, END, figures(read(file)))


def write_between(page: Path, begin: str, end: str, text: str) -> None:
    """Put new text between two marks of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    page.write_text(f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}", encoding="utf-8")
