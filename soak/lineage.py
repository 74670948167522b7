"""The batches of a checkpoint and the records in each, read without any of Headwater's code."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

Place: TypeAlias = tuple[Any, ...]
"""The position of a record: ``(topic, partition, offset)`` or ``(path, line)``."""


@dataclass(frozen=True)
class PlannedBatch:
    """One entry of the offset log. ``until`` is the end of its input, source by source.

    It is offsets by partition, or all file names so far, or None before the first record of a source.
    """

    batch_id: int
    watermark_ms: int
    timestamp_ms: int
    until: tuple[Any, ...]
    committed: bool
    table: int = 0
    """The version of the static table that the batch was joined with."""

    @property
    def identity(self) -> tuple[int, int, str]:
        """Identifies the batch, whether it is committed or not."""
        return self.batch_id, self.timestamp_ms, json.dumps(self.until, sort_keys=True)


@dataclass(frozen=True)
class Lineage:
    """All batches from 0 on, including those that Spark has purged since they were first read."""

    batches: tuple[PlannedBatch, ...] = ()

    @property
    def committed(self) -> tuple[PlannedBatch, ...]:
        return tuple(batch for batch in self.batches if batch.committed)

    @property
    def head(self) -> int:
        return self.committed[-1].batch_id if self.committed else -1

    @property
    def planned(self) -> PlannedBatch | None:
        return self.batches[-1] if self.batches and not self.batches[-1].committed else None

    def identities(self) -> list[tuple[int, int, str]]:
        return [batch.identity for batch in self.batches]

    def is_carried(self, number: int) -> bool:
        """Return whether a repartition added the batch: a copy of the one before, with its timestamp and no input."""
        return number > 0 and self.batches[number].timestamp_ms == self.batches[number - 1].timestamp_ms

    def ranges(self) -> list[tuple[PlannedBatch, tuple[Any, ...]]]:
        """Return each batch with the end of the one before."""
        befores = [(), *(batch.until for batch in self.batches)]
        return list(zip(self.batches, befores, strict=False))


def read_lineage(checkpoint: Path, known: Lineage, table: int = 0) -> Lineage:
    """Read the lineage; ``known`` is the one read before, for batches that Spark has purged since.

    A committed batch that is known keeps the version of its table; the others have the current one, ``table``.
    """
    on_disk = {number: _lines(checkpoint / "offsets" / str(number)) for number in _numbers(checkpoint / "offsets")}
    commits = set(_numbers(checkpoint / "commits"))
    tables = {batch.identity: batch.table for batch in known.committed}
    logs: dict[int, list[tuple[int, str]]] = {}
    known_batches = {batch.batch_id: batch for batch in known.batches}
    first = min(on_disk, default=0)
    found = [known_batches[number] for number in range(first)]
    for number in sorted(on_disk):
        _, metadata, *offsets = on_disk[number]
        until = tuple(_end_of_input(line, checkpoint, source, logs) for source, line in enumerate(offsets))
        committed = number in commits or number < max(commits, default=-1)
        times = json.loads(metadata)
        batch = PlannedBatch(number, times["batchWatermarkMs"], times["batchTimestampMs"], until, committed, table)
        found.append(replace(batch, table=tables.get(batch.identity, table)) if committed else batch)
    numbers = [batch.batch_id for batch in found]
    if numbers != list(range(len(found))):
        raise AssertionError(f"batches are missing from the logs: {numbers}")
    return Lineage(tuple(found))


def places(batch: PlannedBatch, before: tuple[Any, ...], line_counts: dict[str, int]) -> list[Place]:
    """Return the place of every record of a batch. ``line_counts`` has the number of records in each input file."""
    starts = before or (None,) * len(batch.until)
    pairs = zip(batch.until, starts, strict=True)
    return [place for end, start in pairs for place in _places_between(start, end, line_counts)]


def _places_between(start: Any, end: Any, line_counts: dict[str, int]) -> list[Place]:
    if isinstance(end, list):
        new = sorted(set(end) - set(start or ()))
        return [(name, line) for name in new for line in range(1, line_counts[name] + 1)]
    found: list[Place] = []
    for topic, partitions in (end or {}).items():
        starts = (start or {}).get(topic, {})
        for partition, until in partitions.items():
            found += [(topic, int(partition), offset) for offset in range(starts.get(partition, 0), until)]
    return found


def _end_of_input(line: str, checkpoint: Path, source: int, logs: dict[int, list[tuple[int, str]]]) -> Any:
    offset = None if line == "-" else json.loads(line)
    if offset is None or "logOffset" not in offset:
        return offset
    if source not in logs:
        logs[source] = _source_files(checkpoint / "sources" / str(source))
    return sorted(_up_to(logs[source], offset["logOffset"]))


def _numbers(folder: Path) -> list[int]:
    return sorted(int(file.name) for file in folder.iterdir() if file.name.isdigit()) if folder.is_dir() else []


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def _source_files(folder: Path) -> list[tuple[int, str]]:
    """Return the entries of the file source's log: the newest compacted file and those after it."""
    if not folder.is_dir():
        return []
    names = {file.name for file in folder.iterdir() if file.name.removesuffix(".compact").isdigit()}
    compacts = [int(name.removesuffix(".compact")) for name in names if name.endswith(".compact")]
    start = max(compacts, default=-1)
    chosen = [f"{start}.compact"] if compacts else []
    chosen += [name for name in names if name.isdigit() and int(name) > start]
    entries = [json.loads(line) for name in chosen for line in _lines(folder / name)[1:] if line.startswith("{")]
    return [(entry["batchId"], unquote(urlsplit(entry["path"]).path)) for entry in entries if "path" in entry]


def _up_to(files: list[tuple[int, str]], log_offset: int) -> set[str]:
    return {Path(path).name for number, path in files if number <= log_offset}
