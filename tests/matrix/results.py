"""Test reports of several PySpark versions as one table of docs/limits.md."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

BEGIN, END = "<!-- written by make matrix -->", "<!-- end of what make matrix writes -->"
NOT_RUN = "-"
STORE_TEST = "test_all_operators_on_all_stores"
OPERATORS = {
    "aggregation": "windowed aggregation",
    "dedup": "dropDuplicates",
    "dedup within watermark": "dropDuplicatesWithinWatermark",
    "session": "session windows",
    "two operators": "dropDuplicates, then an aggregation",
    "join": "stream-stream join",
    "pandas state": "applyInPandasWithState",
    "custom in pandas": "transformWithStateInPandas",
    "timers": "transformWithState on rows, with timers",
}
ENDS = {
    "test_plain_files_to_files": "files to files, of a plain PySpark program",
    "test_files_to_files": "files to files, of a job",
    "test_table_to_table": "table to table",
    "test_rate": "rate to files",
    "test_memory_in_complete_mode": "files to memory, complete mode",
    "test_kafka_to_kafka": "Kafka to Kafka",
    "test_postgres": "files to PostgreSQL",
}


@dataclass(frozen=True)
class Outcome:
    """The outcome of one test: passed, failed or skipped."""

    name: str
    argument: str
    outcome: str


def read_report(path: Path) -> list[Outcome]:
    """Return the outcomes in a JUnit file that pytest wrote."""
    found = []
    for case in ET.parse(path).iter("testcase"):
        name, _, argument = case.get("name", "").removesuffix("]").partition("[")
        tags = {child.tag for child in case}
        outcome = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
        found.append(Outcome(name, argument, outcome))
    return found


def table(reports: Mapping[str, Mapping[str, list[Outcome]]]) -> str:
    """Return a table with a column for each PySpark. ``reports`` holds the outcomes by its version and by set of tests."""
    versions = list(reports)
    every = {version: [one for found in sets.values() for one in found] for version, sets in reports.items()}
    names = dict.fromkeys(name for sets in reports.values() for name in sets if not name.startswith("rewinds"))
    rows = {name: [_passed(reports[version].get(name, [])) for version in versions] for name in names}
    for operator, shown in OPERATORS.items():
        rows[f"rewind: {shown}"] = [_stores(every[version], operator) for version in versions]
    for test, shown in ENDS.items():
        rows[f"rewind: {shown}"] = [_of_test(every[version], test) for version in versions]
    lines = [_line(label, cells) for label, cells in rows.items() if set(cells) != {NOT_RUN}]
    return "\n".join([_line("", versions), "|---|" + "---|" * len(versions), *lines])


def _line(label: str, cells: Iterable[str]) -> str:
    return f"| {label} | {' | '.join(cells)} |"


def _passed(found: list[Outcome]) -> str:
    ran = [one for one in found if one.outcome != "skipped"]
    return f"{sum(one.outcome == 'passed' for one in ran)} of {len(ran)}" if ran else NOT_RUN


def _stores(found: list[Outcome], operator: str) -> str:
    """Return the state stores on which the rewound stream of an operator ended like an undisturbed one."""
    ran = [
        (one.argument.removeprefix(f"{operator}-"), one.outcome)
        for one in found
        if one.name == STORE_TEST and one.argument.rpartition("-")[0] == operator and one.outcome != "skipped"
    ]
    shown = [store if outcome == "passed" else f"**{store} fails**" for store, outcome in ran]
    return ", ".join(shown) or NOT_RUN


def _of_test(found: list[Outcome], test: str) -> str:
    ran = {one.outcome for one in found if one.name == test} - {"skipped"}
    return NOT_RUN if not ran else "yes" if ran == {"passed"} else "**fails**"


def with_table(page: str, written: str) -> str:
    """Return a page with the text between its markers replaced."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    assert pattern.search(page), "the page has lost its markers"
    return pattern.sub(lambda _: f"{BEGIN}\n\n{written}\n\n{END}", page)
