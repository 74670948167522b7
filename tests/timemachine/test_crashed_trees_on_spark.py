"""Spark is started on what crashes of changes leave behind: it continues correctly, or it refuses to start."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError

from headwater.checkpoint.history import History
from headwater.migration.store_migration import plan_store_migration
from headwater.timemachine.executor import guard_notice
from headwater.timemachine.extra_batch import plan_extra_batch
from headwater.timemachine.keep import make_point
from headwater.timemachine.restore import plan_restore
from headwater.timemachine.rewind import plan_rewind
from headwater.timemachine.undo import plan_undo
from timemachine.crashing import CrashingDisk, CrashingObjectStore
from timemachine.interrupted_changes import Media, Place, Verb, points_of
from timemachine.spark_runs import NO_EMPTY_BATCHES, Stream
from timemachine.stream_pairs import FEEDS, TO, StreamPair
from timemachine.trees import Contents, spark_files

Rows = tuple[list[str], list[str]]


class FileStream:
    """A stream into a folder of files, whose checkpoint and sink can be replaced by those of a place."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.sink = stream.checkpoint.with_name(f"{stream.checkpoint.name}-out")

    def run(self) -> Rows:
        """Drain the input; return the rows of the sink, as Spark lists them, and those of the state."""
        self.stream.run_into(lambda writer: writer.format("json").start(str(self.sink)), 1, NO_EMPTY_BATCHES)
        rows = sorted(row.value for row in self.stream.spark.read.text(str(self.sink)).collect())
        return rows, self.stream.state(History(self.stream.files).logs.commits.ids[-1])

    def read(self) -> Place:
        return Place(contents_of(self.stream.checkpoint), contents_of(self.sink), str(self.sink))

    def write(self, place: Place) -> None:
        for folder, contents in ((self.stream.checkpoint, place.checkpoint), (self.sink, place.sink)):
            shutil.rmtree(folder)
            for path, data in contents.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(data)


def contents_of(folder: Path) -> Contents:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def verbs(start: Place, other_store: str | None) -> Iterator[Verb]:
    files, sink = start.trees
    rewound = Verb.of(start, plan_rewind(files, to=TO, sink=sink).change)
    yield rewound
    yield Verb.of(start, plan_rewind(files, to=TO, replan=True, sink=sink).change)
    yield Verb.of(start, plan_rewind(files, to=None, sink=sink).change)
    files, sink = rewound.after.trees
    yield Verb.of(rewound.after, plan_undo(files, sink=sink).change)
    files, sink = start.trees
    edited = Verb.of(start, plan_extra_batch(History(files), {}, verb="edit", about="an edit", sink=sink).change)
    yield edited
    files, sink = edited.after.trees
    yield Verb.of(edited.after, plan_undo(files, sink=sink).change)
    files, sink = start.trees
    point = make_point(files, at=str(TO), sink=sink)
    kept = Place(files.contents, sink.contents, start.sink_location)
    restored = Verb.of(kept, plan_restore(files, point, sink=sink).change)
    yield restored
    files, sink = restored.after.trees
    yield Verb.of(restored.after, plan_undo(files, sink=sink).change)
    if other_store:
        files, _ = start.trees
        batch = plan_store_migration(files, store=other_store, sink=f"files:{start.sink_location}").batch
        migrated = Verb.of(replace(start, checkpoint=start.checkpoint | dict(batch.files)), batch.change)
        yield migrated
        files, sink = migrated.after.trees
        yield Verb.of(migrated.after, plan_undo(files, sink=sink).change)
        files, sink = migrated.after.trees
        yield Verb.of(migrated.after, plan_rewind(files, to=TO, sink=sink).change)


def key_of(place: Place) -> tuple[int, int]:
    """Return a value that is equal for trees whose files, but for Headwater's own, are equal."""
    return hash(frozenset(spark_files(place.checkpoint).items())), hash(frozenset(spark_files(place.sink).items()))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("medium", [CrashingDisk, CrashingObjectStore])
@pytest.mark.parametrize(
    ("operator", "store", "other_store"),
    [
        ("two operators", "hdfs", "rocksdb"),
        ("session", "rocksdb", "hdfs"),
        ("dedup", "changelog", "hdfs"),
        ("dedup", "format2", None),
    ],
)
def test_spark_continues_or_refuses(
    stream_pair, operator: str, store: str, other_store: str | None, medium: Media
) -> None:
    """At every point of a change, Spark ends with the results of an undisturbed stream, or changes nothing."""
    pair: StreamPair = stream_pair(operator, store)
    pair.feed(pair.control_inboxes, FEEDS + 1)
    expected = FileStream(pair.control).run()
    pair.feed(pair.inboxes, FEEDS)
    stream = FileStream(pair.changed)
    stream.run()
    pair.feed(pair.inboxes, FEEDS + 1)
    points = continued = refused = 0
    tried: set[tuple[int, int]] = set()
    for verb in list(verbs(stream.read(), other_store)):  # planned before the stream's folders change
        for crashed in points_of(medium, verb.before, lambda executor, verb=verb: executor.apply(verb.change)):
            points += 1
            if key_of(crashed) in tried:
                continue
            tried.add(key_of(crashed))
            stream.write(crashed)
            if crashed.checkpoint["metadata"] == guard_notice(verb.change):
                # The checksum of the query's identity returns before the identity itself does.
                reason = "Checksum error" if ".metadata.crc" in crashed.checkpoint else "was_interrupted"
                with pytest.raises(Py4JJavaError, match=reason):
                    stream.run()
                assert key_of(stream.read()) == key_of(crashed)
                refused += 1
            else:
                assert stream.run() == expected
                continued += 1
    print(f"{points} points, Spark started on {len(tried)} trees: {continued} continued, {refused} refused")
    assert continued
    assert refused
