"""The corpus itself: complete, readable, and in agreement with what Spark said while it ran."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from corpus_support import CorpusCheckpoint, as_memory_files, corpus_names, load
from headwater.checkpoint.files import LocalFiles, walk

OPERATORS_ON_EVERY_STORE = ("aggregation", "session", "dedup", "join")
STORES = ("hdfs", "rocksdb", "changelog", "format2")


def test_every_operator_has_a_checkpoint_on_every_store() -> None:
    """The matrix of operators and state stores is complete; custom state needs RocksDB."""
    wanted = {f"{operator}-{store}" for operator in OPERATORS_ON_EVERY_STORE for store in STORES}
    wanted |= {f"custom-{store}" for store in STORES if store != "hdfs"}
    assert wanted <= set(corpus_names())


@pytest.mark.parametrize("name", corpus_names())
def test_spark_answered_about_every_committed_batch(corpus: Callable[[str], CorpusCheckpoint], name: str) -> None:
    """Every committed batch of a stateful query has an answer, and some batch has rows."""
    checkpoint = corpus(name)
    committed = {int(file.name) for file in (checkpoint.path / "commits").iterdir() if file.name.isdigit()}
    assert len(committed) >= 3
    if (checkpoint.path / "state").exists():
        assert {answer.batch_id for answer in checkpoint.answers} == committed
        assert any(answer.rows for answer in checkpoint.answers)


def test_memory_files_hold_the_same_bytes(tmp_path: Path) -> None:
    """A checkpoint in memory and the same one unpacked have the same paths and bytes."""
    checkpoint = load("aggregation-changelog", tmp_path)
    on_disk = LocalFiles(checkpoint.path)
    unpacked = {path: on_disk.read(path) for path, _ in walk(on_disk)}
    assert as_memory_files("aggregation-changelog").contents == unpacked


@pytest.mark.parametrize("name", corpus_names("aggregation"))
def test_answers_agree_with_the_progress_of_the_run(corpus: Callable[[str], CorpusCheckpoint], name: str) -> None:
    """The reader's row count at a batch is the number of state rows that the query reported after it."""
    checkpoint = corpus(name)
    reported = {
        progress["batchId"]: progress["stateOperators"][0]["numRowsTotal"]
        for progress in checkpoint.progress
        if progress["stateOperators"]
    }
    answered = {answer.batch_id: len(answer.text) for answer in checkpoint.answers if answer.error is None}
    assert answered
    assert answered == {batch: reported[batch] for batch in answered}
