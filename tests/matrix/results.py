"""Test reports of several PySpark versions: where they are kept, and as one table of docs/limits.md."""

from __future__ import annotations

import json
import os
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

from .sets import FILES

BEGIN, END = "<!-- written by make matrix -->", "<!-- end of what make matrix writes -->"
NOT_RUN, LACKING = "-", "n/a"
STORE_TESTS = ("test_all_operators_on_all_stores",)
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
PAIR_TESTS = ("test_all_sources_and_sinks", "test_sources_of_the_clock")
SOURCES = {
    "files": "files",
    "table": "a table",
    "kafka": "Kafka",
    "rate per micro-batch": "rate-micro-batch",
    "rate": "rate",
}
ENDS = {
    "test_files_to_files": "files to files",
    "test_table_to_table": "table to table",
    "test_rate": "rate to files",
    "test_memory_in_complete_mode": "files to memory, complete mode",
    "test_kafka_to_kafka": "Kafka to Kafka",
    "test_postgres": "files to PostgreSQL",
}


@dataclass(frozen=True)
class Outcome:
    """The outcome of one test: passed, failed or skipped; with the first line of the reason if it did not pass.

    ``node`` is the name by which pytest runs it.
    """

    name: str
    argument: str
    outcome: str
    reason: str = ""
    file: str = ""
    node: str = ""


def read_report(path: Path) -> list[Outcome]:
    """Return the outcomes in a JUnit file that pytest wrote."""
    found = []
    for case in ET.parse(path).iter("testcase"):
        name, _, argument = case.get("name", "").removesuffix("]").partition("[")
        notes = {child.tag: child.get("message", "") for child in case}
        outcome = "failed" if notes.keys() & {"failure", "error"} else "skipped" if "skipped" in notes else "passed"
        reason = next(
            (text.partition("\n")[0] for tag, text in notes.items() if tag in ("failure", "error", "skipped")), ""
        )
        module = case.get("classname", "")
        node = f"{module.replace('.', '/')}.py::{case.get('name', '')}"
        found.append(Outcome(name, argument, outcome, reason, module.rpartition(".")[2], node))
    return found


def merge_reports(report: Path, part: Path) -> None:
    """Replace the tests of a JUnit file that ran again by those of another one, which is deleted."""
    tree = ET.parse(report)
    again = {_key(case): case for case in ET.parse(part).iter("testcase")}
    for suite in tree.iter("testsuite"):
        suite[:] = [again.get(_key(case), case) for case in suite]
    tree.write(part, "utf-8", xml_declaration=True)
    part.replace(report)


def _key(case: ET.Element) -> tuple[str | None, str | None]:
    return case.get("classname"), case.get("name")


class RunLog:
    """A folder with the last report of each set of tests, and with what has passed in a run that is not complete yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def report(self, version: str, name: str) -> Path:
        return self.folder / "results" / version / f"{name.replace('`', '').replace(' ', '-')}.xml"

    def has_passed(self, version: str, name: str) -> bool:
        return [version, name] in self._read("passed.json", [])

    def add_passed(self, version: str, name: str) -> None:
        self._write("passed.json", [*self._read("passed.json", []), [version, name]])

    def forget(self) -> None:
        """Let the next run begin from scratch; the reports stay until it replaces them."""
        (self.folder / "passed.json").unlink(missing_ok=True)

    def patch(self, version: str) -> str:
        """Return the complete version of PySpark with which a version was run."""
        return str(self._read("patches.json", {}).get(version, version))

    def note_patch(self, version: str, patch: str) -> None:
        self._write("patches.json", {**self._read("patches.json", {}), version: patch})

    def _read(self, name: str, default: Any) -> Any:
        file = self.folder / name
        return json.loads(file.read_text("utf-8")) if file.exists() else default

    def _write(self, name: str, value: Any) -> None:
        draft = self.folder / f"{name}.{os.getpid()}"
        self.folder.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(value), "utf-8")
        draft.replace(self.folder / name)


def results(reports: Mapping[str, list[Outcome]]) -> str:
    """Return what the page shows: the table, and why tests were skipped."""
    reasons = skipped(reports)
    return f"{table(reports)}\n\nTests that were skipped:\n\n{reasons}" if reasons else table(reports)


def table(reports: Mapping[str, list[Outcome]]) -> str:
    """Return a table with a column for each PySpark. ``reports`` holds the outcomes by version."""
    every, versions = reports, list(reports)
    rows = {
        shown: [_passed([one for one in every[version] if one.file == file]) for version in versions]
        for file, shown in FILES.items()
    }
    for operator, shown in OPERATORS.items():
        rows[f"rewind: {shown}"] = [_variants(every[version], STORE_TESTS, operator) for version in versions]
    for source, shown in SOURCES.items():
        rows[f"rewind of a plain program: {shown} to"] = [
            _variants(every[version], PAIR_TESTS, source) for version in versions
        ]
    rows["rewind of a plain program: real-time trigger with state"] = [
        _of_test(every[version], "test_real_time_with_state") for version in versions
    ]
    for test, shown in ENDS.items():
        rows[f"rewind of a job: {shown}"] = [_of_test(every[version], test) for version in versions]
    rows["all tests"] = [_counts(every[version]) for version in versions]
    lines = [_line(label, cells) for label, cells in rows.items() if not set(cells) <= {NOT_RUN, LACKING}]
    return "\n".join([_line("", versions), "|---|" + "---|" * len(versions), *lines])


def skipped(reports: Mapping[str, list[Outcome]]) -> str:
    """Return a list of why tests were skipped, with the number of tests on each version."""
    counts: dict[str, Counter[str]] = {}
    for version, found in reports.items():
        for one in found:
            if one.outcome == "skipped":
                counts.setdefault(one.reason, Counter())[version] += 1
    lines = [
        f"{reason}: {', '.join(f'{number} on {version}' for version, number in held.items())}"
        for reason, held in sorted(counts.items())
    ]
    return "\n".join(fill(f"- {line}", 100, subsequent_indent="  ", break_on_hyphens=False) for line in lines)


def _line(label: str, cells: Iterable[str]) -> str:
    return f"| {label} | {' | '.join(cells)} |"


def _counts(found: list[Outcome]) -> str:
    counts = Counter(one.outcome for one in found)
    shown = [f"{counts['passed']} passed"]
    shown += [f"**{counts['failed']} failed**"] if counts["failed"] else []
    shown += [f"{counts['skipped']} n/a"] if counts["skipped"] else []
    return ", ".join(shown)


def _passed(found: list[Outcome]) -> str:
    ran = [one for one in found if one.outcome != "skipped"]
    if not ran:
        return LACKING if found else NOT_RUN
    passed = sum(one.outcome == "passed" for one in ran)
    return f"{passed} of {len(ran)}" if passed == len(ran) else f"**{passed} of {len(ran)}**"


def _variants(found: list[Outcome], tests: tuple[str, ...], kind: str) -> str:
    """Return the state stores, or sinks, with which the rewound stream of a kind ended like an uninterrupted one."""
    of_kind = [
        (one.argument.rpartition("-")[2], one.outcome)
        for one in found
        if one.name in tests and one.argument.rpartition("-")[0] == kind
    ]
    ran = [(variant, outcome) for variant, outcome in of_kind if outcome != "skipped"]
    shown = [variant if outcome == "passed" else f"**{variant} fails**" for variant, outcome in ran]
    return ", ".join(shown) or (LACKING if of_kind else NOT_RUN)


def _of_test(found: list[Outcome], test: str) -> str:
    outcomes = {one.outcome for one in found if one.name == test}
    if not outcomes - {"skipped"}:
        return LACKING if outcomes else NOT_RUN
    return "**fails**" if "failed" in outcomes else "yes"


def with_table(page: str, written: str) -> str:
    """Return a page with the text between its markers replaced."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    assert pattern.search(page), "the page has lost its markers"
    return pattern.sub(lambda _: f"{BEGIN}\n\n{written}\n\n{END}", page)
