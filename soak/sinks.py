"""The rows of a sink, and the rows that it may have after the batches that wrote to it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from soak.cells import JobKind
from soak.oracle import Bag, ExpectedBatch, Key, Rows, Value

ICEBERG_TABLE = "soak.rows"
NEVER_WRITTEN: Value = ("never written",)


def flatten(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten structs, as the PostgreSQL sink does."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        found |= flatten(value, f"{prefix}{name}_") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def parse_topic_rows(job: JobKind, messages: Iterable[tuple[bytes | None, bytes | None]]) -> Rows:
    """Return the last row of each key."""
    found: Rows = {}
    for _, value in messages:
        key, columns = job.row(flatten(json.loads(value or b"{}")))
        found[key] = columns
    return found


def parse_table_rows(job: JobKind, rows: Iterable[dict[str, Any]]) -> Rows:
    return dict(job.row(row) for row in rows)


def read_folder_rows(job: JobKind, folder: Path) -> Counter[tuple[Key, Value]]:
    """Return the rows of a file sink that are in its log, as Spark reads them."""
    log = folder / "_spark_metadata"
    names = {file.name for file in log.iterdir()} if log.is_dir() else set()
    compacts = [int(name.removesuffix(".compact")) for name in names if name.endswith(".compact") and name[0] != "."]
    start = max(compacts, default=-1)
    chosen = [f"{start}.compact"] if compacts else []
    chosen += [name for name in names if name.isdigit() and int(name) > start]
    entries = [json.loads(line) for name in chosen for line in (log / name).read_text().splitlines()[1:] if line]
    files = [Path(unquote(urlsplit(entry["path"]).path)) for entry in entries if entry["action"] == "add"]
    lines = [line for file in files for line in file.read_text().splitlines()]
    return Counter(job.row(flatten(json.loads(line))) for line in lines)


def read_delta_rows(job: JobKind, folder: Path) -> Bag:
    """Return the rows of a Delta table, read with libraries that share nothing with Headwater or Spark."""
    from deltalake import DeltaTable
    from pyarrow import parquet

    if not (folder / "_delta_log").is_dir():
        return Counter()
    # A fork names the files of the original by absolute URIs, which the library takes for relative paths.
    files = [unquote(uri.rpartition("/file:")[2]) for uri in DeltaTable(str(folder)).file_uris()]
    rows = [row for file in files for row in parquet.ParquetFile(file).read().to_pylist()]
    return Counter(job.row(flatten(row)) for row in rows)


def read_iceberg_rows(job: JobKind, warehouse: Path) -> Bag:
    """Return the rows of an Iceberg table, as PyIceberg reads them."""
    from pyiceberg.table import StaticTable

    # A kill can leave the hint of the newest version behind the versions that there are.
    found = {
        int(file.name[1:].partition(".")[0]): file for file in iceberg_metadata(warehouse).glob("v*.metadata.json")
    }
    if not found:
        return Counter()
    table = StaticTable.from_metadata(str(found[max(found)]))
    return Counter(job.row(flatten(row)) for row in table.scan().to_arrow().to_pylist())


def iceberg_metadata(warehouse: Path) -> Path:
    return warehouse.joinpath(*ICEBERG_TABLE.split("."), "metadata")


def table_rows_after(job: JobKind, batches: Sequence[ExpectedBatch]) -> Bag:
    """Return the rows of a table after batches: appended, merged by key, or in complete mode those of the last one."""
    if job.mode == "append":
        return sum((batch.emitted for batch in batches), Counter())
    if job.mode == "complete":  # a batch that only carries the state on writes nothing
        return next((batch.emitted for batch in reversed(batches) if batch.emitted), Counter())
    merged: Rows = {}
    for batch in batches:
        merged |= dict(list(batch.emitted))
    return Counter(merged.items())


@dataclass
class LastWrites:
    """The possible values of each key in a sink where the last write wins.

    A batch that was planned and never committed may have been written completely, partly, or not at all. If it runs again,
    its values are certain; after a rewind with a new plan, both values stay possible.
    """

    possible: dict[Key, frozenset[Value]] = field(default_factory=dict)

    def record_committed(self, batch: ExpectedBatch) -> None:
        for key, value in batch.emitted:
            self.possible[key] = frozenset([value])

    def record_possible(self, batch: ExpectedBatch) -> None:
        for key, value in batch.emitted:
            self.possible[key] = self.possible.get(key, frozenset([NEVER_WRITTEN])) | {value}

    def differences(self, found: Rows) -> list[str]:
        """Describe the keys whose value in the sink is not one of the possible values."""
        wrong = [f"{key}: unexpected row {found[key]}" for key in found if key not in self.possible]
        for key, values in self.possible.items():
            if found.get(key, NEVER_WRITTEN) not in values:
                wrong.append(f"{key}: {found.get(key, 'no row')} instead of {' or '.join(map(str, values))}")
        return sorted(wrong, key=str)
