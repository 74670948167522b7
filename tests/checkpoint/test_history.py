"""Batches read from the logs match what Spark reported while it ran."""

from __future__ import annotations

import json
from typing import Any

import pytest

from corpus_support import CorpusCheckpoint, as_memory_files, corpus_names, sampled
from headwater.checkpoint.history import Batch, History
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.core.ids import BatchId
from headwater.core.times import iso_from_ms


def history_of(checkpoint: CorpusCheckpoint) -> History:
    return History(checkpoint.files)


def progress_by_batch(checkpoint: CorpusCheckpoint) -> dict[int, dict[str, Any]]:
    """Return Spark's reports by batch, without those of idle triggers, which have the number of the next batch."""
    return {report["batchId"]: report for report in checkpoint.progress if "addBatch" in report["durationMs"]}


@pytest.mark.parametrize("name", sampled(corpus_names()))
def test_batches_are_those_that_spark_ran(name: str, corpus) -> None:
    """Every batch that Spark reported has the watermark and the offsets that it reported."""
    checkpoint = corpus(name)
    batches = {batch.batch_id: batch for batch in history_of(checkpoint).batches()}
    reports = progress_by_batch(checkpoint)
    assert reports
    for number, report in reports.items():
        if number not in batches:
            continue  # purged from the logs
        batch = batches[BatchId(number)]
        assert batch.problem is None
        watermark = report.get("eventTime", {}).get("watermark", iso_from_ms(0))
        assert iso_from_ms(batch.watermark_ms or 0) == watermark
        assert [source.end for source in batch.sources] == [_value(source["endOffset"]) for source in report["sources"]]
        counted = [source["numInputRows"] for source in report["sources"]]
        for source, rows in zip(batch.sources, counted, strict=True):
            assert source.rows in (None, rows), f"batch {number}"


def _value(offset: Any) -> Any:
    return json.loads(offset) if isinstance(offset, str) else offset


@pytest.mark.parametrize("name", corpus_names("aggregation"))
def test_times_and_files(name: str, corpus) -> None:
    """A batch is planned before it is committed, and the input files of a file source are counted."""
    for batch in history_of(corpus(name)).batches():
        assert batch.planned_at_ms is not None
        if batch.status == "committed" and batch.committed_at_ms is not None:
            assert batch.committed_at_ms >= batch.planned_at_ms
            assert batch.duration_ms is not None
        for source in batch.sources:
            if source.kind == "files":
                assert source.files is not None
                assert (source.files == 0) == (not source.moved)


def files_without(name: str, *paths: str) -> MemoryTree:
    files = as_memory_files(name)
    for path in paths:
        files.remove(path)
    return files


def batch_of(files: MemoryTree, number: int) -> Batch:
    return History(files).batch(BatchId(number))


def last_of(files: MemoryTree) -> int:
    return max(History(files).batch_ids)


def test_batch_without_commit_is_planned() -> None:
    """Offsets without a commit are a planned batch, to which the stream cannot be rewound."""
    last = last_of(as_memory_files("aggregation-changelog"))
    batch = batch_of(files_without("aggregation-changelog", f"commits/{last}"), last)
    assert (batch.status, batch.can_rewind_to, batch.committed_at_ms) == ("planned", False, None)
    assert batch.why_not == "it is planned but not committed"


def test_missing_state_names_the_store() -> None:
    """A batch whose state is missing names the version and the store."""
    files = files_without("aggregation-rocksdb", "state/0/1/4.zip")
    assert batch_of(files, 3).why_not == "state version 4 of operator 0, store default, partition 1 cannot be rebuilt"
    assert batch_of(files, 2).can_rewind_to
    assert batch_of(files, 4).can_rewind_to


def test_missing_changes_affect_all_later_versions() -> None:
    """Without a file of changes, no version up to the next snapshot can be rebuilt, and the reason names the file."""
    files = as_memory_files("aggregation-changelog")
    for path in list(files.contents):
        if path.startswith("state/0/0/") and path.endswith((".zip", "/2.changelog")):
            files.remove(path)
    history = History(files)
    assert [batch.can_rewind_to for batch in history.batches()[:3]] == [True, False, False]
    reason = history.batch(BatchId(2)).why_not
    assert reason is not None and reason.endswith("partition 0 cannot be rebuilt: version 2 is missing")


def test_partition_without_files() -> None:
    """A partition without files is reported as missing, because the configuration records the number of partitions."""
    files = as_memory_files("aggregation-hdfs")
    files.remove_folder("state/0/1")
    files.remove_folder("state/0/0")
    extra = as_memory_files("aggregation-hdfs")
    files.contents |= {path: data for path, data in extra.contents.items() if path.startswith("state/0/1/")}
    reason = batch_of(files, 3).why_not
    assert reason is not None and "partition 0" in reason


def test_unreadable_offsets_do_not_hide_the_other_batches() -> None:
    """A truncated file affects only its own batch."""
    files = as_memory_files("aggregation-changelog")
    files.write("offsets/3", files.read("offsets/3")[:40])
    history = History(files)
    assert len(history.batches()) == len(History(as_memory_files("aggregation-changelog")).batches())
    unreadable, after = history.batch(BatchId(3)), history.batch(BatchId(4))
    assert unreadable.problem == "offsets/3 ends in the middle of its JSON"
    assert unreadable.why_not == unreadable.problem
    assert after.problem is None
    assert after.sources[0].start is None


def test_adjacent_offsets_are_needed() -> None:
    """Spark starts from two adjacent offsets, so a batch without any neighbor cannot be resumed from."""
    files = files_without("aggregation-changelog", "offsets/4", "offsets/6")
    assert batch_of(files, 5).why_not == (
        "offsets/4 and offsets/6 are both missing, and Spark needs one of them to start"
    )
    assert batch_of(files_without("aggregation-changelog", "offsets/4"), 5).can_rewind_to


def test_gaps_are_allowed_in_stateless_queries() -> None:
    """Asynchronous progress tracking, which only stateless queries can use, leaves gaps."""
    offset = b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":5,"conf":{}}\n7'
    batches = (0, 4, 9)
    files = MemoryTree({f"offsets/{batch}": offset for batch in batches})
    files.contents |= {f"commits/{batch}": b"v1\n{}" for batch in batches}
    assert [batch.can_rewind_to for batch in History(files).batches()] == [True, True, True]


def test_newest_batches_only() -> None:
    """The newest batches are read without the logs of older ones, except for the one before them."""
    files = as_memory_files("aggregation-hdfs")
    read: list[str] = []

    class Watched(MemoryTree):
        def read(self, path: str) -> bytes:
            read.append(path)
            return super().read(path)

    batches = History(Watched(files.contents)).batches(last=2)
    last = last_of(files)
    assert [batch.batch_id for batch in batches] == [last - 1, last]
    assert {path for path in read if path.startswith("offsets/")} == {f"offsets/{last - n}" for n in range(3)}


def test_batches_since_a_time() -> None:
    """Batches since a time are those planned then or later."""
    history = History(as_memory_files("aggregation-hdfs"))
    every = history.batches()
    cut = every[4].planned_at_ms
    assert [batch.batch_id for batch in history.batches(since_ms=cut)] == [batch.batch_id for batch in every[4:]]


def test_unknown_batch() -> None:
    """A batch that is not in the logs is a ValueError."""
    with pytest.raises(ValueError, match="77"):
        History(as_memory_files("aggregation-hdfs")).batch(BatchId(77))


def test_rate_rows_from_the_job_record() -> None:
    """The rows of a rate source are known if the job is recorded."""
    planned = b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":5,"conf":{}}\n%d'
    files = MemoryTree({"offsets/0": planned % 2, "offsets/1": planned % 5, "sources/0/0": b"v1\n1700000000000"})
    assert [batch.rows for batch in History(files).batches()] == [None, None]
    files.write(
        "_headwater/job.json", b'{"job":"x","source":"rate:?rowsPerSecond=10","sink":"console:","mode":"append"}'
    )
    assert [batch.rows for batch in History(files).batches()] == [20, 30]
