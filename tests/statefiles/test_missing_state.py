"""Errors for state that is missing or corrupt, or for a store that does not exist."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from corpus_support import CorpusCheckpoint, as_memory_files, load
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.core.errors import CheckpointUnreadable, UsageProblem
from headwater.core.ids import StoreRef
from headwater.statefiles.reader import StateReader, read_answers, read_state, state_rows
from headwater.statefiles.refusals import StateVersionMissing, ranges

Corpus = Callable[[str], CorpusCheckpoint]


def test_a_missing_file_and_the_readable_batches_are_named(tmp_path: Path) -> None:
    """The error for a version that cannot be rebuilt names the missing file and the batches that can be read."""
    held = load("aggregation-hdfs", tmp_path)
    for path in held.path.glob("state/0/*/*.snapshot"):
        path.unlink()
    (held.path / "state/0/0/4.delta").unlink()
    with pytest.raises(StateVersionMissing) as refused:
        read_state(LocalTree(held.path), 6)
    assert refused.value.evidence["missing"] == "state/0/0/4.delta (or 4.snapshot)"
    assert refused.value.evidence["readable batches"] == "0..2"
    assert refused.value.remedy == "choose another batch, such as --at 2"


def test_pruned_batches_are_not_readable(corpus: Corpus) -> None:
    """If Spark has removed old state, the readable batches are those that Spark can read."""
    held = corpus("kafka-pruned")
    reader = StateReader(LocalTree(held.path))
    readable = reader.readable()
    assert readable == sorted({answer.batch_id for answer in held.answers if answer.error is None})


def test_a_batch_that_was_never_committed(corpus: Corpus) -> None:
    """A batch that is unknown or only planned has no state."""
    with pytest.raises(UsageProblem, match="batch 99"):
        read_state(LocalTree(corpus("aggregation-hdfs").path), 99)


def test_a_corrupt_changelog_is_named(tmp_path: Path) -> None:
    """A flipped bit in a changelog raises an error that names the file."""
    held = load("aggregation-changelog", tmp_path)
    path = min(held.path.glob("state/0/0/*.changelog"), key=lambda found: int(found.stem))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(CheckpointUnreadable) as refused:
        read_state(LocalTree(held.path), int(path.stem) - 1)
    assert path.name in str(refused.value)


@pytest.mark.parametrize(
    ("name", "removed"),
    [
        ("aggregation-format2", ".changelog"),
        ("aggregation-format2", ".zip"),
        ("custom-format2", ".zip"),
        ("aggregation-changelog", ".changelog"),
        ("aggregation-hdfs", ".delta"),
    ],
)
def test_a_file_that_is_removed_after_the_listing(name: str, removed: str) -> None:
    """A running query may remove a file between the listing and the read: the error names it."""

    class Vanishing(MemoryTree):
        def read(self, path: str) -> bytes:
            if path.endswith(removed):
                raise FileNotFoundError(path)
            return super().read(path)

    files = Vanishing(as_memory_files(name).contents)
    failed = 0
    for batch in StateReader(files).committed:
        try:
            list(read_answers(files, batch))
        except CheckpointUnreadable as refused:
            failed += 1
            assert re.fullmatch(
                rf"state/0/\d/\S+{removed} no longer exists; a running query may have removed it", refused.problem
            )
    assert failed


def test_several_stores_need_a_choice(corpus: Corpus) -> None:
    """If a query has several stores, the error lists the options that select each of them."""
    files = LocalTree(corpus("join-hdfs").path)
    with pytest.raises(UsageProblem) as refused:
        read_state(files)
    assert "--store left-keyToNumValues" in refused.value.evidence["choose one of"]
    assert read_state(files, ref=StoreRef(store="left-keyToNumValues")).column_names == ["key", "value", "partition_id"]


def test_an_unknown_variable(corpus: Corpus) -> None:
    """The error for an unknown variable lists those that exist."""
    with pytest.raises(UsageProblem) as refused:
        read_state(LocalTree(corpus("custom-changelog").path), ref=StoreRef(var="nope"))
    assert "--var" in refused.value.evidence["available"]


def test_hidden_parts_by_name(corpus: Corpus) -> None:
    """Spark's internal column families are returned only if they are named."""
    files = LocalTree(corpus("custom-ttl").path)
    shown = {answer.var for answer in read_answers(files)}
    reader = StateReader(files)
    hidden = {target.var for target in reader.targets(reader.latest()) if target.kind == "hidden"}
    assert hidden
    assert not shown & hidden
    for name in hidden:
        assert {answer.var for answer in read_answers(files, ref=StoreRef(var=name))} == {name}


def test_rows_as_dictionaries(corpus: Corpus) -> None:
    """Plain rows have key, value and variable, with Python values."""
    rows = state_rows(LocalTree(corpus("custom-changelog").path))
    assert rows
    assert {tuple(row) for row in rows} == {("operator_id", "store", "var", "partition_id", "key", "value")}
    assert len({row["var"] for row in rows}) > 1


def test_a_checkpoint_without_state() -> None:
    """Reading the state of a stateless query is refused."""
    files = MemoryTree({"commits/0": b'v1\n{"nextBatchWatermarkMs":0}', "offsets/0": b"v1\n{}\n0"})
    with pytest.raises(UsageProblem, match="no state"):
        read_state(files)


def test_consecutive_numbers_are_shown_as_a_range() -> None:
    """Consecutive batches are shown as a range."""
    assert ranges([7, 1, 2, 3]) == "1..3, 7"
    assert ranges([]) == ""
