"""What a sink holds, and what it may hold given every batch that has run into it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from soak.cells import JobKind
from soak.oracle import BatchResult, Key, Rows, Value

NEVER: Value = ("never written",)


def flat(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Structs laid flat, as the PostgreSQL sink does it."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        found |= flat(value, f"{prefix}{name}_") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def rows_of_topic(job: JobKind, messages: Iterable[tuple[bytes | None, bytes | None]]) -> Rows:
    """The last write of each key wins."""
    found: Rows = {}
    for _, value in messages:
        key, held = job.row(flat(json.loads(value or b"{}")))
        found[key] = held
    return found


def rows_of_table(job: JobKind, rows: Iterable[dict[str, Any]]) -> Rows:
    return dict(job.row(row) for row in rows)


def rows_of_folder(job: JobKind, folder: Path) -> Counter[tuple[Key, Value]]:
    """The rows of a file sink, as readers who respect its log see them."""
    log = folder / "_spark_metadata"
    names = {file.name for file in log.iterdir()} if log.is_dir() else set()
    compacts = [int(name.removesuffix(".compact")) for name in names if name.endswith(".compact") and name[0] != "."]
    start = max(compacts, default=-1)
    chosen = [f"{start}.compact"] if compacts else []
    chosen += [name for name in names if name.isdigit() and int(name) > start]
    entries = [json.loads(line) for name in chosen for line in (log / name).read_text().splitlines()[1:] if line]
    files = [Path(unquote(urlsplit(entry["path"]).path)) for entry in entries if entry["action"] == "add"]
    lines = [line for file in files for line in file.read_text().splitlines()]
    return Counter(job.row(flat(json.loads(line))) for line in lines)


@dataclass
class LastWrites:
    """A sink in which the last write of a key wins, as a set of possible values for each key.

    A batch that was planned and never committed may have been written, in whole or in part, or not. It usually runs
    again and then there is no doubt any more; after a rewind that plans anew, the doubt stays.
    """

    possible: dict[Key, frozenset[Value]] = field(default_factory=dict)

    def ran(self, result: BatchResult) -> None:
        for key, value in result.emitted.items():
            self.possible[key] = frozenset([value])

    def may_have_run(self, result: BatchResult) -> None:
        for key, value in result.emitted.items():
            self.possible[key] = self.possible.get(key, frozenset([NEVER])) | {value}

    @property
    def doubtful(self) -> int:
        return sum(len(values) > 1 for values in self.possible.values())

    def differences(self, found: Rows) -> list[str]:
        """Nothing when the sink holds what it should."""
        wrong = [f"{key}: a row that nothing explains: {found[key]}" for key in found if key not in self.possible]
        for key, values in self.possible.items():
            if found.get(key, NEVER) not in values:
                wrong.append(f"{key}: {found.get(key, 'nothing')} instead of {' or '.join(map(str, values))}")
        return sorted(wrong, key=str)
