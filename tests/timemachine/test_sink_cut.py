"""Cutting back a file sink: its log, and the data files that only undone batches wrote."""

from __future__ import annotations

import pytest

from headwater.checkpoint.history import History
from headwater.core.errors import ChangeRefused
from headwater.timemachine.cuts import cut_sink
from headwater.timemachine.rewind import plan_rewind
from timemachine.crashing import TimestampedTree, Tree
from timemachine.trees import SINK, Contents, checkpoint, sink


def history_with_times() -> History:
    """Return ten batches: batch b is planned at 1000 b + 100 and committed at 1000 b + 900."""
    contents = checkpoint("aggregation-hdfs")
    times = {f"commits/{batch}": 1000 * batch + 900 for batch in range(10)}
    for batch in range(10):
        path = f"offsets/{batch}"
        text = contents[path].decode()
        start = text.index('"batchTimestampMs":') + len('"batchTimestampMs":')
        end = text.index(",", start)
        contents[path] = f"{text[:start]}{1000 * batch + 100}{text[end:]}".encode()
    return History(TimestampedTree(contents, times))


def compacted_sink(*, moment_of=lambda batch: 1000 * batch + 500) -> Contents:
    """Return a sink whose log was compacted at batch 7; the older log files have been cleaned up."""
    found = sink(10)
    lines = []
    for batch in range(10):
        path = f"_spark_metadata/{batch}"
        text = (
            found[path]
            .decode()
            .replace(f'"modificationTime": {1000 + batch}', f'"modificationTime":{moment_of(batch)}')
        )
        found[path] = text.encode()
        if batch <= 7:
            lines += text.split("\n")[1:]
            del found[path], found[f"_spark_metadata/.{batch}.crc"]
    return found | {"_spark_metadata/7.compact": "\n".join(["v1", *lines]).encode()}


def test_entries_and_files_of_undone_batches_are_set_aside() -> None:
    """If the log is complete, newer entries and their files are set aside, and nothing is written."""
    cut = cut_sink(history_with_times(), Tree(sink(10), SINK), 7)
    assert cut.log.aside == ("7", "8", "9")
    assert cut.log.written == {}
    assert cut.data == tuple(f"part-0000{part}-000{batch}.json" for part in (0, 1) for batch in (7, 8, 9))


def test_a_cleaned_log_is_divided_by_time() -> None:
    """A compacted file does not record which batch wrote a file; the times of offsets and commits show it."""
    cut = cut_sink(history_with_times(), Tree(compacted_sink(), SINK), 4)
    assert cut.log.aside == ("7.compact", "8", "9")
    (name, data), *others = cut.log.written.items()
    assert name == "3.compact"
    assert others == []
    assert data.count(b"\n") == 8
    assert b"0003.json" in data
    assert b"0004.json" not in data
    assert len(cut.data) == 12


@pytest.mark.parametrize(
    "moment_of",
    [
        lambda batch: 1000 * batch + 500 - 3000,
        lambda batch: 1000 * batch + 950,
        lambda batch: 1000 * batch,
        lambda batch: -1,
    ],
    ids=["clock behind", "between batches", "whole seconds", "no time"],
)
def test_ambiguous_times_are_refused(moment_of) -> None:
    """If the clocks disagree, the cut is refused instead of guessed."""
    with pytest.raises(ChangeRefused) as refused:
        cut_sink(history_with_times(), Tree(compacted_sink(moment_of=moment_of), SINK), 4)
    assert refused.value.code == "sink-log-gone"
    assert "headwater fork" in (refused.value.remedy or "")


def test_a_checkpoint_that_was_copied_without_its_times_is_refused() -> None:
    """The times of the commits are then those of the copy, which do not distinguish batches."""
    history = history_with_times()
    history.files.times = {f"commits/{batch}": 50_000 for batch in range(10)}
    with pytest.raises(ChangeRefused, match="cannot determine which"):
        cut_sink(history, Tree(compacted_sink(), SINK), 4)


def test_a_sink_in_another_folder_is_refused() -> None:
    """The log has to refer to files in the folder that was given."""
    with pytest.raises(ChangeRefused, match="refers to files in another folder"):
        cut_sink(history_with_times(), Tree(sink(10), "/somewhere/else"), 7)


def test_a_folder_without_a_log_is_not_a_file_sink() -> None:
    """Files that a job writes with foreachBatch stay, and the plan warns that their rows are written twice."""
    plan = plan_rewind(
        Tree(checkpoint("aggregation-hdfs")), to=4, sink=Tree({"part-0": b""}, SINK), sink_uri=f"files:{SINK}"
    )
    assert plan.change.sink is None
    assert "written a second time" in plan.warnings[0]


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("kafka://127.0.0.1:9092/out", "duplicates"),
        ("delta:/lake/t", "Name the folder: --sink delta:PATH"),
        ("foreach-batch:", "given to foreachBatch receives batches"),
        ("foreach:", "given to foreach receives batches"),
        ("hudi:/lake/t", "in a fork too"),
        ("hudi:/lake/t", "set another hoodie.datasource.write.streaming.checkpoint.identifier"),
        (None, "--sink files:DIR"),
    ],
)
def test_sinks_for_which_a_rewind_has_side_effects(uri: str | None, expected: str) -> None:
    """The plan warns about what each sink does with batches that run twice."""
    (warning,) = plan_rewind(Tree(checkpoint("aggregation-hdfs")), to=4, sink_uri=uri).warnings
    assert expected in warning


def test_a_fork_is_not_recommended_for_hudi() -> None:
    """Hudi skips by a configured identifier, not by the query id, so a new query id does not help."""
    (warning,) = plan_rewind(Tree(checkpoint("aggregation-hdfs")), to=4, sink_uri="hudi:/lake/t").warnings
    assert "headwater fork" not in warning
