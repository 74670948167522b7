"""Which streams read what a stream writes, and the first of their batches that has output of certain batches in it.

Streams know each other by their records: where one writes and the other reads the same folder, topic or Delta table. Files
are recognized by their names in the logs of sink and source, records in Kafka by their offsets, and commits to a Delta
table by their versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import JOB_FILE, METADATA, SINK_LOG
from headwater.checkpoint.locate import CHECKPOINTS, open_files
from headwater.checkpoint.log_entries import text_of_source
from headwater.checkpoint.moved import POINTER
from headwater.checkpoint.pipelines import find_flows, flow_at
from headwater.checkpoint.record import JobRecord, folder_of, read_job_record, uri_kind
from headwater.checkpoint.source_offsets import kafka_partitions, log_offset, offset_value
from headwater.checkpoint.table_offsets import delta_position
from headwater.core.errors import ChangeRefused, HeadwaterError, UsageProblem
from headwater.core.ids import BatchId
from headwater.core.uris import parse_uri
from headwater.lakehouse.tables import parse_table_uri
from headwater.timemachine.relocate import Place
from headwater.timemachine.rewind import RewindPlan

LinkKind = Literal["files", "kafka", "delta"]
OffsetsAt = Callable[[str, list[str], int], dict[str, dict[int, int]]]
"""Returns the first offset at or after a time, by topic and partition, given the URI of a source, its topics and the time."""


@dataclass(frozen=True)
class Stream:
    """A stream by its checkpoint."""

    files: FileTree = field(repr=False, compare=False)
    record: JobRecord

    @property
    def location(self) -> str:
        return self.files.location

    @property
    def name(self) -> str:
        return self.record.job or self.location


@dataclass(frozen=True)
class Link:
    """A source of a stream that reads the sink of another one. ``source`` is its name in the offset log."""

    upstream: Stream
    reader: Stream
    source: str
    kind: LinkKind
    through: str
    """What they share: a folder, a topic or a table."""


def open_stream(files: FileTree) -> Stream:
    """Return the stream of a checkpoint."""
    return Stream(files, read_job_record(files))


def known_streams(files: FileTree, named: Iterable[FileTree] = ()) -> list[Stream]:
    """Return the streams with a record beside a checkpoint and in the default folder, and those that are named.

    For a flow of a declarative pipeline, the other flows of the pipeline are among them.
    """
    parent = files.location.rstrip("/").rpartition("/")[0]
    found: dict[Place, FileTree] = {}
    for folder in (open_files(parent or "."), open_files(CHECKPOINTS)):
        for entry in folder.entries(""):
            if entry.is_folder:
                tree = folder.subtree(entry.name)
                found.setdefault(Place.of(tree.spark_uri()), tree)
    trees = [tree for tree in found.values() if tree.exists(JOB_FILE) and not tree.exists(POINTER)]
    own = Place.of(files.spark_uri())
    others = {Place.of(tree.spark_uri()): tree for tree in (*trees, *_flows_beside(files), *named)}
    return [open_stream(tree) for place, tree in others.items() if place != own]


def _flows_beside(files: FileTree) -> Iterator[FileTree]:
    """Yield the checkpoints of the flows that are in the same pipeline as a checkpoint, if that is one of a flow."""
    found = flow_at(files.location)
    if found is None:
        return
    storage = open_files(found[0])
    for flow in find_flows(storage):
        tree = storage.subtree(flow.path)
        if tree.exists(METADATA):  # a full refresh starts with an empty folder
            yield tree


def readers_of(upstream: Stream, streams: Iterable[Stream]) -> Iterator[Link]:
    """Yield the sources of streams that read what a stream writes."""
    for reader in streams:
        identities = History(reader.files).logs.identities
        for source, identity in identities.items():
            shared = _shared(upstream.record, identity.uri, identity.traits.topics)
            if shared is not None:
                yield Link(upstream, reader, source, *shared)


def _shared(record: JobRecord, source: str | None, topics: frozenset[str]) -> tuple[LinkKind, str] | None:
    """Return what a sink and a source have in common; None if they have nothing in common."""
    sink, kind = record.sink or "", uri_kind(source)
    if kind in ("files", "table") and record.sink_folder is not None and source is not None:
        if uri_kind(sink) == "table" and kind == "table":
            return ("files", record.sink_folder) if _bare(sink) == _bare(source) else None
        written, read = Place.of(record.sink_folder), Place.of(folder_of(source))
        return ("files", record.sink_folder) if written.contains(read) or read.contains(written) else None
    if kind == "delta" and uri_kind(sink) == "delta":
        written_table, read_table = parse_table_uri(sink), parse_table_uri(source)
        same = written_table and read_table and Place.of(written_table.path) == Place.of(read_table.path)
        return ("delta", written_table.sink) if same and written_table else None
    if kind == "kafka" and uri_kind(sink) == "kafka" and source is not None:
        topic = parse_uri(sink).path
        return ("kafka", topic) if topic in (topics or _topics(source)) and _same_brokers(sink, source) else None
    if kind == "iceberg" and _bare(sink) == _bare(source or ""):
        raise ChangeRefused(
            "cannot-cascade",
            f"cannot determine which batches read {_bare(sink)}: Iceberg tables are not supported here",
            remedy="rewind the streams one by one",
        )
    return None


def _bare(uri: str) -> str:
    return uri.partition("?")[0]


def _topics(source: str) -> frozenset[str]:
    try:
        return frozenset(topic.strip() for topic in parse_uri(source).path.split(","))
    except UsageProblem:
        return frozenset()


def _same_brokers(sink: str, source: str) -> bool:
    written, read = (set(parse_uri(uri).address.split(",")) for uri in (sink, source))
    return bool(written & read)


@dataclass(frozen=True)
class Affected:
    """The first batch of a reader that has undone output in it; None if none has. ``again`` are records that stay."""

    link: Link
    batch: int | None
    again: str | None = None
    """What of the undone output cannot be taken back and is read again; None if nothing is."""


def first_affected(link: Link, plan: RewindPlan, offsets_at: OffsetsAt | None) -> Affected:
    """Return the first batch of a reader that has output of the batches that a plan undoes.

    Raise ``ChangeRefused`` if it cannot be determined.
    """
    match link.kind:
        case "files":
            return Affected(link, _by_files(link, plan))
        case "delta":
            return Affected(link, _by_version(link, plan))
        case "kafka":
            return _by_offsets(link, plan, offsets_at)


def _by_files(link: Link, plan: RewindPlan) -> int | None:
    if plan.sink_files is None:
        raise _unknown(link, f"{link.through} has no log that shows which files a batch wrote")
    undone = undone_files(plan)
    history = History(link.reader.files)
    log = history.source_log(link.source)
    latest = log.names.latest
    entries = () if latest is None else log.everything_upto(latest)
    if entries is None:
        raise _unknown(link, "the log of its source no longer lists all files")
    offsets = [entry.batch_id for entry in entries if Place.of(entry.path, encoded=True) in undone]
    if not offsets:
        return None
    first = min(offsets)
    ends = {
        number: end
        for number in history.batch_ids
        if (end := log_offset(_offset(history, number, link.source))) is not None
    }
    # Files that are in the log of the source and not yet in a planned batch: the next batch would read them.
    return min((number for number, end in ends.items() if end >= first), default=max(history.batch_ids, default=-1) + 1)


def undone_files(plan: RewindPlan) -> set[Place]:
    """Return the data files that leave the file sink of a plan."""
    assert plan.sink_files is not None
    root = Place.of(plan.sink_files.spark_uri())
    paths = [path.removeprefix("sink:") for path in plan.set_aside if path.startswith("sink:")]
    return {Place(root.store, (*root.parts, *path.split("/"))) for path in paths if not path.startswith(SINK_LOG)}


def _by_version(link: Link, plan: RewindPlan) -> int | None:
    if plan.table is None or plan.table.action is None:
        return None
    base = plan.table.returns_to
    if base is None:
        raise _unknown(link, f"{link.through} keeps commits of other programs, so it returns to no single version")
    history = History(link.reader.files)
    for number in history.batch_ids:
        position = delta_position(_offset(history, number, link.source))
        if position is None:
            continue
        read_upto = position.version if position.in_snapshot or position.file is not None else position.version - 1
        if read_upto > base:
            return number
    return None


def _by_offsets(link: Link, plan: RewindPlan, offsets_at: OffsetsAt | None) -> Affected:
    if not plan.undone:
        return Affected(link, None)
    upstream, oldest = History(plan.files), BatchId(plan.undone[0])
    began = upstream.batch(oldest).planned_at_ms if oldest in upstream.batch_ids else None
    identity = History(link.reader.files).logs.identities[link.source]
    if offsets_at is None or began is None or identity.uri is None:
        raise _unknown(link, "the broker or the time of the first undone batch is unknown")
    try:
        starts = offsets_at(identity.uri, [link.through], began)
    except HeadwaterError as error:
        raise _unknown(link, error.problem) from error
    first = {(topic, part): offset for topic, parts in starts.items() for part, offset in parts.items()}
    history = History(link.reader.files)
    batch, read = None, 0
    for number in history.batch_ids:
        ends = kafka_partitions(_offset(history, number, link.source)) or {}
        beyond = sum(max(0, end - first[place]) for place, end in ends.items() if place in first)
        if beyond and batch is None:
            batch = number
        read = beyond
    again = (
        f"{read:,} records of {link.through} that {link.upstream.name} wrote in the undone batches" if read else None
    )
    return Affected(link, batch, again)


def _offset(history: History, batch: int, source: str) -> object:
    entry = history.logs.offsets.get(batch)
    text = text_of_source(entry, source)
    return offset_value(text) if text is not None else None


def _unknown(link: Link, why: str) -> ChangeRefused:
    return ChangeRefused(
        "cannot-cascade",
        f"cannot determine which batches of {link.reader.name} have read output of {link.upstream.name}",
        evidence={"why": why, "checkpoint": link.reader.location},
        remedy="rewind the streams one by one, without --cascade",
    )
