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
SKIPPED = "Tests that were skipped:"
REAL_TIME = "real-time trigger with state"
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


@dataclass(frozen=True)
class Column:
    """What the page shows of one PySpark: a cell for each row of the table, and how many tests were skipped, and why."""

    version: str
    cells: Mapping[str, str]
    skipped: Mapping[str, int]

    @property
    def minor(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.version.split(".")[:2])


def column_of(version: str, found: list[Outcome]) -> Column:
    """Return the column of a PySpark, from the outcomes of its tests."""
    cells = {shown: _passed([one for one in found if one.file == file]) for file, shown in FILES.items()}
    cells |= {f"rewind: {shown}": _variants(found, STORE_TESTS, operator) for operator, shown in OPERATORS.items()}
    cells |= {
        f"rewind of a plain program: {shown} to": _variants(found, PAIR_TESTS, source)
        for source, shown in SOURCES.items()
    }
    cells[f"rewind of a plain program: {REAL_TIME}"] = _of_test(found, "test_real_time_with_state")
    cells |= {f"rewind of a job: {shown}": _of_test(found, test) for test, shown in ENDS.items()}
    cells["all tests"] = _counts(found)
    return Column(version, cells, Counter(one.reason for one in found if one.outcome == "skipped"))


def columns_in(page: str) -> list[Column]:
    """Return the columns that a page has between its markers."""
    text = _written_part(page)[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    if not rows:
        return []
    (_, *versions), _, *body = rows
    skipped: dict[str, dict[str, int]] = {version: {} for version in versions}
    for entry in re.split(r"\n- ", text.partition(SKIPPED)[2].rstrip())[1:]:
        reason, _, counts = " ".join(entry.split()).rpartition(": ")
        for number, version in re.findall(r"(\d+) on ([\w.]+)", counts):
            skipped[version][reason] = int(number)
    return [
        Column(version, {row[0]: row[place] for row in body}, skipped[version])
        for place, version in enumerate(versions, start=1)
    ]


def with_columns(page: str, new: Iterable[Column]) -> str:
    """Return a page with new columns. They replace those of another patch of their version; the others stay."""
    columns = {column.minor: column for column in (*columns_in(page), *new)}
    before, _, after = _written_part(page)
    written = _as_text([columns[minor] for minor in sorted(columns)])
    return f"{before}{BEGIN}\n\n{written}\n\n{END}{after}"


def _written_part(page: str) -> tuple[str, str, str]:
    """Split a page into what is before, between and after its markers."""
    assert BEGIN in page, "the page has lost its markers"
    assert END in page, "the page has lost its markers"
    before, _, rest = page.partition(BEGIN)
    written, _, after = rest.partition(END)
    return before, written, after


def _as_text(columns: list[Column]) -> str:
    labels = list(dict.fromkeys(label for column in columns for label in column.cells))
    rows = {label: [column.cells.get(label, NOT_RUN) for column in columns] for label in _in_order(labels)}
    lines = [_line(label, cells) for label, cells in rows.items() if not set(cells) <= {NOT_RUN, LACKING}]
    table = [_line("", [column.version for column in columns]), "|---|" + "---|" * len(columns), *lines]
    reasons = sorted({reason for column in columns for reason in column.skipped})
    skipped = [
        f"{reason}: {', '.join(f'{one.skipped[reason]} on {one.version}' for one in columns if reason in one.skipped)}"
        for reason in reasons
    ]
    entries = [fill(f"- {line}", 100, subsequent_indent="  ", break_on_hyphens=False) for line in skipped]
    return "\n".join([*table, *(["", SKIPPED, ""] if entries else []), *entries])


def _in_order(labels: list[str]) -> list[str]:
    """Return the labels as a new column orders them; those of rows that no longer exist are dropped."""
    known = list(column_of("", []).cells)
    return sorted(set(labels) & set(known), key=known.index)


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
