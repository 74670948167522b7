"""How far a fork is behind its original, and where both have read the same input.

Positions of Kafka and Delta sources are compared by offset. The log offsets of a file source are those of one query, so
file sources are compared by the files that were read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headwater.checkpoint.history import History
from headwater.checkpoint.log_entries import text_of_source
from headwater.checkpoint.source_offsets import kafka_partitions, log_offset, offset_value
from headwater.checkpoint.table_offsets import delta_position
from headwater.core.errors import CheckpointUnreadable
from headwater.timemachine.relocate import Place


@dataclass(frozen=True)
class SourceLag:
    """How much of a source the original has read and the fork has not; None if that is unknown."""

    source: str
    label: str
    kind: str
    behind: int | None
    unit: str

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"source": self.source, "kind": self.kind, "behind": self.behind, "unit": self.unit}


def lag_of(original: History, fork: History) -> tuple[SourceLag, ...]:
    """Return how far a fork is behind in each source, after the last committed batch of each."""
    last = original.last_committed
    if last is None:
        return ()
    return tuple(_lag(original, fork, source.name) for source in original.batch(last).sources)


def _lag(original: History, fork: History, source: str) -> SourceLag:
    theirs = _position(original, original.last_committed, source)
    # The fork's code may read the same input under another name, or at another place.
    ours = [_position(fork, fork.last_committed, name) for name in _source_names(fork)]
    identity = original.logs.identities.get(source)
    label = identity.label if identity else f"source {source}"
    ends = kafka_partitions(theirs)
    if ends:
        reached = {place: offset for one in ours for place, offset in (kafka_partitions(one) or {}).items()}
        behind = sum(max(0, end - reached.get(place, 0)) for place, end in ends.items())
        return SourceLag(source, label, "kafka", behind, "record")
    if log_offset(theirs) is not None:
        read, known = _files_read(original, source), [_files_read(fork, name) for name in _source_names(fork)]
        behind_files = None if read is None or None in known else len(read.difference(*(one or () for one in known)))
        return SourceLag(source, label, "files", behind_files, "file")
    version = delta_position(theirs)
    if version is not None:
        positions = [own for one in ours if (own := delta_position(one)) and own.table_id == version.table_id]
        newest = max((own.version for own in positions), default=0)
        return SourceLag(source, label, "delta", max(0, version.version - newest), "version")
    # Before the first record of a source, its position is empty.
    return SourceLag(source, label, "unknown", 0 if theirs is None or theirs in ours else None, "row")


def _source_names(history: History) -> list[str]:
    entry = None if history.last_committed is None else history.logs.offsets.get(history.last_committed)
    return [source.name for source in entry.sources] if entry else []


def _position(history: History, batch: int | None, source: str) -> Any:
    entry = None if batch is None else history.logs.offsets.get(batch)
    text = text_of_source(entry, source)
    return None if text is None else offset_value(text)


def _files_read(history: History, source: str, batch: int | None = None) -> frozenset[Place] | None:
    """Return the files that committed batches have read, up to a batch; None if the log no longer lists them."""
    offset = log_offset(_position(history, history.last_committed if batch is None else batch, source))
    if offset is None:
        return frozenset()
    try:
        entries = history.source_log(source).everything_upto(offset)
    except CheckpointUnreadable:
        return None
    return None if entries is None else frozenset(Place.of(entry.path, encoded=True) for entry in entries)


@dataclass(frozen=True)
class SharedPart:
    """Batches of the original and of its fork that have read the same input: ``first`` to ``last`` of each."""

    original: tuple[int, int]
    fork: tuple[int, int]


def shared_parts(original: History, fork: History, at: int | None) -> Iterator[SharedPart]:
    """Yield the parts after batch ``at`` that begin and end with the same positions in both.

    Between two such positions, each may have run other batches.
    """
    start = -1 if at is None else at
    by_position = {
        _positions(fork, number): number for number in fork.logs.commits.ids if number > start
    }  # of batches with equal positions, the last one: those without input follow the others
    theirs = {_positions(original, number): number for number in original.logs.commits.ids if number > start}
    after, after_fork = start, start
    for position, number in sorted(theirs.items(), key=lambda item: item[1]):
        reached = by_position.get(position)
        if position is None or reached is None or reached <= after_fork:
            continue
        yield SharedPart((after + 1, number), (after_fork + 1, reached))
        after, after_fork = number, reached


def _positions(history: History, batch: int) -> frozenset[Any] | None:
    """Return what identifies how far a query has read, in every source in any order; None if that is unknown."""
    entry = history.logs.offsets.get(batch)
    if entry is None:
        return None
    found: list[Any] = []
    for source in entry.sources:
        value = None if source.text is None else offset_value(source.text)
        if log_offset(value) is not None:
            files = _files_read(history, source.name, batch)
            if files is None:
                return None
            found.append(("files", files))
        else:
            partitions = kafka_partitions(value)
            found.append(frozenset(partitions.items()) if partitions else str(source.text))
    return frozenset(found)
