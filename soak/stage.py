"""Everything that one story acts upon: its folder, its input so far, its checkpoint and its sink."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from soak.cells import EAGER, STATE, STORES
from soak.lineage import Lineage, Place, places, read_lineage
from soak.oracle import BatchInput, BatchResult, Rows, simulate
from soak.processes import Worker
from soak.records import Record
from soak.services import KafkaService, PostgresService
from soak.sinks import LastWrites, rows_of_folder, rows_of_table, rows_of_topic
from soak.story import Feed, Story

PARTITIONS = 2


@dataclass
class Services:
    """What many stories share. The worker is replaced whenever a story kills it."""

    folder: Path
    kafka: KafkaService
    postgres: PostgresService
    _worker: Worker | None = None

    @classmethod
    def in_folder(cls, folder: Path) -> Services:
        return cls(folder, KafkaService(folder), PostgresService())

    @property
    def worker(self) -> Worker:
        if self._worker is None or not self._worker.is_running:
            self._worker = Worker(self.folder)
        return self._worker

    def replace_worker(self) -> None:
        """Begins at once, so that it starts while other things are done."""
        if self._worker is not None:
            self._worker.close()
        self._worker = Worker(self.folder)

    def mend(self) -> None:
        """After a story that went wrong somewhere: nothing of it must harm the next one."""
        self.replace_worker()
        self.kafka.mend()
        self.postgres.mend()

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self.kafka.stop()
        self.postgres.stop()


@dataclass
class Stream:
    """One checkpoint with its sink: the story's own, or a fork's."""

    name: str
    checkpoint: Path
    sink: Path
    lineage: Lineage = field(default_factory=Lineage)
    writes: LastWrites = field(default_factory=LastWrites)
    starts_at: int = 0
    """The first batch that ran into this sink."""


class Stage:
    """The story's input, streams and commands. What happens on it is in ``soak.acting``."""

    def __init__(self, story: Story, folder: Path, services: Services) -> None:
        self.story, self.cell, self.job = story, story.cell, story.cell.job
        self.folder, self.services = folder, services
        self.records: dict[Place, Record] = {}
        self.line_counts: dict[str, int] = {}
        self.inbox = folder / "in"
        self.inbox.mkdir(parents=True)
        # Topics and tables outlive a story that is told twice.
        self.tag = f"story-{story.seed}-{os.getpid()}-{os.urandom(3).hex()}"
        self.topic = f"{self.tag}-in"
        if self.cell.uses_kafka:
            services.kafka.start()
        if self.cell.source == "kafka":
            services.kafka.create(self.topic, PARTITIONS)
        if self.cell.sink == "postgresql":
            services.postgres.start()
        self.main = self.stream("main")

    def stream(self, name: str) -> Stream:
        if self.cell.sink == "kafka":
            # Rows without a key go anywhere, and only within a partition is one of them the last.
            self.services.kafka.create(f"{self.tag}-{name}", 1 if self.job.sink_key == "order_status" else PARTITIONS)
        return Stream(name, self.folder / name, self.folder / f"{name}-out")

    def feed(self, feed: Feed) -> int:
        """Records land in the folder or the topic; how many."""
        kafka = self.cell.source == "kafka"
        made = feed.burst.records(self.job.records, tombstones=kafka)
        if kafka:
            found = self.services.kafka.send(self.topic, [record.data for record in made], PARTITIONS)
            self.records |= {(self.topic, *place): record for place, record in zip(found, made, strict=True)}
            return len(made)
        size = -(-len(made) // feed.parts)
        for start in range(0, len(made), size):
            part = made[start : start + size]
            name = f"{len(self.line_counts):05d}.json"
            draft = self.folder / name
            draft.write_bytes(b"".join((record.data or b"") + b"\n" for record in part))
            draft.rename(self.inbox / name)
            self.line_counts[name] = len(part)
            self.records |= {(name, line): record for line, record in enumerate(part, 1)}
        return len(made)

    def run_words(self, stream: Stream, limit: int) -> list[str]:
        """The words of ``headwater run``."""
        conf = {
            **EAGER,
            **STORES[self.cell.store],
            "spark.sql.streaming.minBatchesToRetain": self.story.retained_batches,
        }
        words = ["run", self.job.name, "--source", self._source(limit), "--sink", self.sink_uri(stream)]
        words += ["--checkpoint", str(stream.checkpoint), "--mode", self.job.mode, "--trigger", "available-now"]
        return words + [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]

    @property
    def format_conf(self) -> list[str]:
        wanted = STORES[self.cell.store].get(f"{STATE}.checkpointFormatVersion")
        return ["--conf", f"{STATE}.checkpointFormatVersion={wanted}"] if wanted else []

    def _source(self, limit: int) -> str:
        if self.cell.source == "kafka":
            return f"kafka://{self.services.kafka.address}/{self.topic}?maxOffsetsPerTrigger={limit}"
        return f"files:{self.inbox}?maxFilesPerTrigger={limit}"

    def sink_uri(self, stream: Stream) -> str:
        match self.cell.sink:
            case "kafka":
                return f"kafka://{self.services.kafka.address}/{self.tag}-{stream.name}?key={self.job.sink_key}"
            case "postgresql":
                return f"{self.services.postgres.url}?table={self.tag}-{stream.name}&key={self.job.sink_key}"
            case _:
                return f"files:{stream.sink}?format=json"

    def read_lineage(self, stream: Stream) -> Lineage:
        return read_lineage(stream.checkpoint, stream.lineage)

    def results(self, lineage: Lineage) -> list[BatchResult]:
        """What every batch of a lineage, committed or planned, should do."""
        inputs = []
        for number, (batch, before) in enumerate(lineage.ranges()):
            held = [(place, self.records[place].fields) for place in places(batch, before, self.line_counts)]
            decoded = tuple((place, fields) for place, fields in held if fields is not None)
            inputs.append(BatchInput(batch.batch_id, decoded, carried=lineage.is_carried(number)))
        return simulate(self.job.rules, inputs)

    def places_read(self, lineage: Lineage) -> Counter[Place]:
        pairs = [(batch, before) for batch, before in lineage.ranges() if batch.committed]
        return Counter(place for batch, before in pairs for place in places(batch, before, self.line_counts))

    def rows_in_sink(self, stream: Stream) -> Rows:
        if self.cell.sink == "kafka":
            return rows_of_topic(self.job, self.services.kafka.read(f"{self.tag}-{stream.name}"))
        return rows_of_table(self.job, self.services.postgres.rows(f"{self.tag}-{stream.name}"))

    def rows_in_folder(self, stream: Stream) -> Counter[object]:
        return Counter(rows_of_folder(self.job, stream.sink))
