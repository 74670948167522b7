"""State that is not there any more, or is broken: which file, and what can still be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from corpus_support import CorpusCheckpoint, load
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.core.errors import CheckpointUnreadable, UsageProblem
from headwater.statefiles.reader import StateReader, read_answers, read_state, state_rows
from headwater.statefiles.refusals import StateVersionMissing, ranges

Corpus = Callable[[str], CorpusCheckpoint]


def test_a_missing_file_is_named_and_so_is_what_can_be_read(tmp_path: Path) -> None:
    """A version that cannot be rebuilt says which file it lacks and which batches can be read."""
    held = load("aggregation-hdfs", tmp_path)
    for path in held.path.glob("state/0/*/*.snapshot"):
        path.unlink()
    (held.path / "state/0/0/4.delta").unlink()
    with pytest.raises(StateVersionMissing) as refused:
        read_state(LocalTree(held.path), 6)
    assert refused.value.evidence["missing"] == "state/0/0/4.delta (or 4.snapshot)"
    assert refused.value.evidence["can be read"] == "0..2"
    assert refused.value.remedy == "choose another batch, such as --at 2"


def test_pruned_batches_are_told(corpus: Corpus) -> None:
    """Of a checkpoint whose old state Spark has removed, the batches that can be read are those that Spark can read."""
    held = corpus("kafka-pruned")
    reader = StateReader(LocalTree(held.path))
    readable = reader.readable()
    assert readable == sorted({answer.batch_id for answer in held.answers if answer.error is None})


def test_a_batch_that_was_never_committed(corpus: Corpus) -> None:
    """There is no state of a batch that is only planned, or unknown."""
    with pytest.raises(UsageProblem, match="batch 99"):
        read_state(LocalTree(corpus("aggregation-hdfs").path), 99)


def test_a_damaged_delta_is_refused_by_name(tmp_path: Path) -> None:
    """A flipped bit in a file of changes is refused, and the file is named."""
    held = load("aggregation-changelog", tmp_path)
    path = min(held.path.glob("state/0/0/*.changelog"), key=lambda found: int(found.stem))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(CheckpointUnreadable) as refused:
        read_state(LocalTree(held.path), int(path.stem) - 1)
    assert path.name in str(refused.value)


def test_several_stores_need_a_choice(corpus: Corpus) -> None:
    """One table is asked of a query with several stores: the refusal lists them, ready to paste."""
    files = LocalTree(corpus("join-hdfs").path)
    with pytest.raises(UsageProblem) as refused:
        read_state(files)
    assert "--store left-keyToNumValues" in refused.value.evidence["there are"]
    assert read_state(files, store="left-keyToNumValues").column_names == ["key", "value", "partition_id"]


def test_nothing_fits_the_words(corpus: Corpus) -> None:
    """A name that is not there lists those that are."""
    with pytest.raises(UsageProblem) as refused:
        read_state(LocalTree(corpus("custom-changelog").path), var="nope")
    assert "--var" in refused.value.evidence["there are"]


def test_hidden_parts_by_name(corpus: Corpus) -> None:
    """Column families that Spark keeps for itself are shown when they are named, and only then."""
    files = LocalTree(corpus("custom-ttl").path)
    shown = {answer.var for answer in read_answers(files)}
    reader = StateReader(files)
    hidden = {target.var for target in reader.targets(reader.latest()) if target.kind == "hidden"}
    assert hidden
    assert not shown & hidden
    for name in hidden:
        assert {answer.var for answer in read_answers(files, var=name)} == {name}


def test_rows_as_dictionaries(corpus: Corpus) -> None:
    """Plain rows have key, value and variable, with Python values."""
    rows = state_rows(LocalTree(corpus("custom-changelog").path))
    assert rows
    assert {tuple(row) for row in rows} == {("operator_id", "store", "var", "partition_id", "key", "value")}
    assert len({row["var"] for row in rows}) > 1


def test_a_checkpoint_without_state() -> None:
    """A stateless query has nothing to show, and says so."""
    files = MemoryTree({"commits/0": b'v1\n{"nextBatchWatermarkMs":0}', "offsets/0": b"v1\n{}\n0"})
    with pytest.raises(UsageProblem, match="no state"):
        read_state(files)


def test_ranges_read_as_people_say_them() -> None:
    """Neighbouring batches are told as a range."""
    assert ranges([7, 1, 2, 3]) == "1..3, 7"
    assert ranges([]) == ""
