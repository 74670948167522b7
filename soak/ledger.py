"""The ledger: one line of JSON for each run of a story, and the figures for the documentation."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from soak.cells import CELLS
from soak.story import GROUP

FILE = Path(__file__).with_name("ledger.jsonl")
PAGE = Path(__file__).parent.parent / "docs" / "reliability.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def commit() -> str:
    """Return the commit that last changed the code under test, with a mark if the code is not as committed."""
    root = Path(__file__).parent.parent
    code = "src soak :!soak/ledger.jsonl"
    found, changed = (
        subprocess.run(["git", *words.split()], cwd=root, capture_output=True, text=True, check=False).stdout.strip()
        for words in (f"log -1 --format=%h -- {code}", f"status --porcelain --untracked-files=no -- {code}")
    )
    exported = root / "COMMIT"  # in a tree without .git
    return (f"{found}-dirty" if changed else found) or (
        exported.read_text().strip() if exported.exists() else "unknown"
    )


def append(line: dict[str, Any], file: Path = FILE) -> None:
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n")


def read(file: Path = FILE) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]


def seeds_of(group: int) -> list[int]:
    return list(range(group * GROUP, (group + 1) * GROUP))


def by_group(seeds: Iterable[int]) -> Iterator[list[int]]:
    """Yield the seeds that belong to one group together."""
    for _, members in itertools.groupby(sorted(seeds), key=lambda seed: seed // GROUP):
        yield list(members)


def next_groups(lines: Iterable[dict[str, Any]], spark: str) -> Iterator[list[int]]:
    """Yield the seeds whose last run failed on this version of Spark, then new groups from the end of the ledger."""
    latest = {line["seed"]: line for line in lines}
    failed = [seed for seed, line in latest.items() if line["outcome"] != "good" and line["spark"] == spark]
    yield from by_group(failed)
    yield from (seeds_of(group) for group in itertools.count(max(latest, default=-1) // GROUP + 1))


def format_figures(lines: list[dict[str, Any]]) -> str:
    """Return the table of docs/reliability.md."""
    failures = [line for line in lines if line["outcome"] != "good"]
    good = list({line["seed"]: line for line in lines if line["outcome"] == "good"}.values())
    sums: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for line in good:
        sums.update(line["tally"])
        refused.update(line["refused"])
    actions = sum(line["actions"] for line in good)
    versions = Counter(line["spark"] for line in good)
    cells = {cell.name for cell in CELLS} & {line["cell"] for line in good}
    after = "kills after "
    kills = {name.removeprefix(after): count for name, count in sums.items() if name.startswith(after)}
    random_kills = kills.pop("any", 0)
    triggers = ", ".join(f"{name} {count}" for name, count in sorted(kills.items()))
    rows = [
        ("stories that passed", f"{len(good):,}, with {actions:,} actions"),
        ("failed runs on the way", _format_failures(failures, good)),
        ("combinations of the matrix covered", f"{len(cells)} of {len(CELLS)}"),
        ("records sent", f"{sums['records']:,}"),
        ("batches committed", f"{sums['batches']:,}"),
        (
            "jobs killed with `kill -9`",
            f"{sums['kills']:,}, {sums['kills in a batch']:,} of them between plan and commit",
        ),
        (
            "moments of these kills",
            f"at a random time {random_kills}, after a new file in: {triggers}",
        ),
        ("rewinds and undos", f"{sums['rewinds']:,} and {sums['undos']:,}"),
        (
            "changes killed with `kill -9`",
            f"{sums['kills of changes']:,}, {sums['changes cut short']:,} of them while they moved files",
        ),
        ("edits and migrations", f"{sums['edits']:,} and {sums['migrates']:,}"),
        ("restore points, and rewinds to them", f"{sums['points']:,} and {sums['rewinds to points']:,}"),
        ("runs of attached programs", f"{sums['attached runs']:,}"),
        ("stops and moves", f"{sums['stops']:,} and {sums['moves']:,}"),
        ("forks run and checked", f"{sums['forks']:,}, {sums['promotions']:,} of them promoted"),
        (
            "checkpoints seeded from history and run",
            f"{sums['seeds']:,}, {sums['kills of seeds']:,} of them killed with `kill -9` on the way",
        ),
        ("repartitions", f"{sums['repartitions']:,}"),
        ("static tables replaced", f"{sums['tables']:,}"),
        ("compactions of the quarantine", f"{sums['compactions']:,}"),
        ("stories in which Kafka was killed or restarted", f"{sums['broker outages']:,}"),
        ("stories in which PostgreSQL was killed or restarted", f"{sums['postgresql outages']:,}"),
        ("justified refusals, by error code", ", ".join(f"{name} {count}" for name, count in sorted(refused.items()))),
        ("slow starts", f"{sums['slow starts']:,}"),
        ("runs that Spark 4.1 ended after a commit", f"{sums['unreported progress']:,}"),
        ("stories by version of PySpark", ", ".join(f"{name}: {held}" for name, held in sorted(versions.items()))),
        ("versions of the code", ", ".join(sorted({line["commit"] for line in good}))),
        ("total time of the stories, several at once", f"{sum(line['seconds'] for line in good) / 3600:.1f} hours"),
    ]
    return "\n".join(["| figure | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def _format_failures(failures: list[dict[str, Any]], good: list[dict[str, Any]]) -> str:
    """Return how many runs failed. On PySpark 4.0, a seed gives another story since one of its stores was left out."""
    failed, passed = ({(line["seed"], line["cell"]) for line in lines} for lines in (failures, good))
    left = [seed for seed, _ in failed - passed]
    replaced = sum(seed in {line["seed"] for line in good} for seed in left)
    numbers = {"pass now": len(failed & passed), "became other stories": replaced, "still fail": len(left) - replaced}
    outcomes = ", ".join(f"{number} {outcome}" for outcome, number in numbers.items() if number)
    return f"{len(failures)}, of {len(failed)} stories: {outcomes}" if failures else "0"


def write_report(file: Path = FILE, page: Path = PAGE) -> None:
    replace_between(page, BEGIN, END, format_figures(read(file)))


def replace_between(page: Path, begin: str, end: str, text: str) -> None:
    """Replace the text between two markers of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    page.write_text(f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}", encoding="utf-8")
