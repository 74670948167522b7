"""The environment of one story: its folder, its input so far, its checkpoint and its sink."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from soak.cells import FREQUENT_SNAPSHOTS, STORES
from soak.lineage import Lineage, Place, places, read_lineage
from soak.oracle import ExpectedBatch, Rows
from soak.processes import WorkerClient
from soak.records import Fields, Record
from soak.services import Services
from soak.sinks import ICEBERG_TABLE, LastWrites, parse_table_rows, parse_topic_rows, read_folder_rows
from soak.story import Feed, Story
from soak.tables import ProductTable
from soak.watermarks import Arrival, BatchInput

PARTITIONS = 2
FULL_RETENTION = 100  # batches; a story has fewer, so Spark purges nothing


@dataclass
class Stream:
    """A checkpoint with its sink: the main one, or a fork."""

    name: str
    checkpoint: Path
    sink: Path
    lineage: Lineage = field(default_factory=Lineage)
    writes: LastWrites = field(default_factory=LastWrites)
    starts_at: int = 0
    """The first batch that wrote to this sink."""
    without_state: set[tuple[int, int, str]] = field(default_factory=set)
    """Batches that came back with a restore point, which holds the state of its own batch only."""


class StoryEnvironment:
    """The story's input, streams and command lines. ``soak.runner`` runs the actions in it."""

    def __init__(self, story: Story, folder: Path, services: Services) -> None:
        self.story, self.cell, self.job = story, story.cell, story.cell.job
        self.folder, self.services = folder, services
        self.records: dict[Place, Record] = {}
        self.line_counts: dict[str, int] = {}
        self.unfinished: dict[tuple[int, int, str], int] = {}
        """The batches that kills left unfinished, with the version of the static table that they were joined with."""
        self.inboxes = {source: folder / "in" / source for source in self.job.sources}
        for inbox in self.inboxes.values():
            inbox.mkdir(parents=True)
        self.table = ProductTable(folder / "products")
        if self.job.table:
            self.table.replace(story.seed)
        # Topics and tables stay, so a story that runs twice needs new names.
        self.tag = f"story-{story.seed}-{os.getpid()}-{os.urandom(3).hex()}"
        self.topics = {source: f"{self.tag}-{source or 'in'}" for source in self.job.sources}
        self.worker = WorkerClient(services.folder, folder)
        if self.cell.source == "kafka":
            for topic in self.topics.values():
                services.kafka.create(topic, PARTITIONS)
        self.main = self.create_stream("main")

    def create_stream(self, name: str) -> Stream:
        if self.cell.sink == "kafka":
            # Orders without a status have no key and go to any partition, but only a single partition keeps their order.
            self.services.kafka.create(f"{self.tag}-{name}", 1 if self.job.sink_key == "order_status" else PARTITIONS)
        return Stream(name, self.folder / name, self.folder / f"{name}-out")

    def feed(self, feed: Feed) -> int:
        """Write records to the folders or the topics of the sources and return how many."""
        sources = [feed.only] if feed.only else list(self.job.sources)
        return sum(self._feed_source(feed, source) for source in sources)

    def _feed_source(self, feed: Feed, source: str) -> int:
        kafka = self.cell.source == "kafka"
        records = feed.burst.records(self.job.sources[source], tombstones=kafka, source=source)
        if kafka:
            topic = self.topics[source]
            found = self.services.kafka.send(topic, [record.data for record in records], PARTITIONS)
            self.records |= {(topic, *place): record for place, record in zip(found, records, strict=True)}
            return len(records)
        size = -(-len(records) // feed.parts)
        for start in range(0, len(records), size):
            part = records[start : start + size]
            name = f"{source}{len(self.line_counts):05d}.json"
            draft = self.folder / name
            draft.write_bytes(b"".join((record.data or b"") + b"\n" for record in part))
            draft.rename(self.inboxes[source] / name)
            self.line_counts[name] = len(part)
            self.records |= {(name, line): record for line, record in enumerate(part, 1)}
        return len(records)

    def run_arguments(self, stream: Stream, limit: int) -> list[str]:
        """Return the arguments of ``headwater run``."""
        profile = ["--profile", self.story.profile] if self.story.profile else []
        return ["run", *self.job_arguments(stream, limit), "--trigger", "available-now", *profile]

    def job_arguments(self, stream: Stream, limit: int) -> list[str]:
        """Return the job and the options that every command with a job has."""
        conf = {
            **FREQUENT_SNAPSHOTS,
            **STORES[self.cell.store],
            "spark.sql.streaming.minBatchesToRetain": self.story.retained_batches,
        }
        arguments = [self.job.reference, "--sink", self.sink_uri(stream), "--checkpoint", str(stream.checkpoint)]
        arguments += ["--mode", self.job.mode]
        limit = max(limit, self._least_limit(stream))
        sources = {source: self._source(source, limit) for source in self.job.sources}
        if self.job.table:
            sources[self.job.table] = f"files:{self.table.folder}"
        for name, uri in sources.items():
            arguments += ["--source", f"{name}={uri}" if name else uri]
        return arguments + [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]

    def _least_limit(self, stream: Stream) -> int:
        """Return the limit with which a run plans fewer batches than Spark retains: the oracle reads them after it."""
        read = self.places_read(self.read_lineage(stream))
        files = {place[0] for place in self.records} - {place[0] for place in read}
        unread = len(files) if self.cell.source == "files" else len(self.records) - len(read)
        return -(-unread // (self.story.retained_batches - 4))

    def _source(self, name: str, limit: int) -> str:
        if self.cell.source == "kafka":
            return f"kafka://{self.services.kafka.address}/{self.topics[name]}?maxOffsetsPerTrigger={limit}"
        return f"files:{self.inboxes[name]}?maxFilesPerTrigger={limit}"

    def sink_uri(self, stream: Stream) -> str:
        match self.cell.sink:
            case "kafka":
                return f"kafka://{self.services.kafka.address}/{self.tag}-{stream.name}?key={self.job.sink_key}"
            case "postgresql":
                return f"{self.services.postgres.url}?table={self.tag}-{stream.name}&key={self.job.sink_key}"
            case "delta":
                keys = f"?merge_on={self.job.sink_key}" if self.job.mode == "update" else ""
                return f"delta:{stream.sink}{keys}"
            case "iceberg":
                return f"iceberg:lake.{ICEBERG_TABLE}?catalog.type=hadoop&catalog.warehouse={stream.sink}"
            case _:
                return f"files:{stream.sink}?format=json"

    def keeps_all_state(self, stream: Stream) -> bool:
        """Return whether the state of every committed batch must be there."""
        return self.story.retained_batches >= FULL_RETENTION and not stream.without_state

    def read_lineage(self, stream: Stream, known: Lineage | None = None) -> Lineage:
        return read_lineage(stream.checkpoint, known or stream.lineage, self.table.version)

    def expected_batches(self, lineage: Lineage) -> list[ExpectedBatch]:
        """Compute what every batch of a lineage, committed or planned, must do."""
        inputs = []
        for number, (batch, before) in enumerate(lineage.ranges()):
            read = [(place, self.records[place]) for place in places(batch, before, self.line_counts)]
            arrivals = tuple(
                Arrival(place, self._complete(record.fields, batch.table), record.source)
                for place, record in read
                if record.fields is not None
            )
            carried = lineage.is_carried(number)
            # Iceberg's sink runs the batch again, and leaves out only its commit.
            skipped = self.cell.sink in ("files", "delta") and batch.identity in self.unfinished
            inputs.append(BatchInput(batch.batch_id, arrivals, carried, batch.watermark_ms, skipped))
        return self.job.expect(inputs)

    def _complete(self, fields: Fields, table: int) -> Fields:
        return self.table.enrich(fields, table) if self.job.table else fields

    def places_read(self, lineage: Lineage) -> Counter[Place]:
        pairs = [(batch, before) for batch, before in lineage.ranges() if batch.committed]
        return Counter(place for batch, before in pairs for place in places(batch, before, self.line_counts))

    def rows_in_sink(self, stream: Stream) -> Rows:
        if self.cell.sink == "kafka":
            return parse_topic_rows(self.job, self.services.kafka.read(f"{self.tag}-{stream.name}"))
        return parse_table_rows(self.job, self.services.postgres.rows(f"{self.tag}-{stream.name}"))

    def rows_in_folder(self, stream: Stream) -> Counter[object]:
        return Counter(read_folder_rows(self.job, stream.sink))
