"""The corpus itself: complete, readable, and consistent with what Spark reported while it ran."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from corpus_maker import queries
from corpus_maker.__main__ import OTHERS
from corpus_maker.catalogue import cases, cases_of_other_versions
from corpus_support import CorpusCheckpoint, as_memory_files, corpus_names, load, sampled
from headwater.checkpoint.filetree import walk
from headwater.checkpoint.local_tree import LocalTree

CASES = [*cases(), *(case for version in OTHERS for case in cases_of_other_versions(version))]
OF_ONE_STORE = {
    queries.aggregation,
    queries.complete_aggregation,
    queries.dedup,
    queries.global_count,
    queries.pandas_state,
    queries.session,
}


def test_the_archives_are_those_that_the_maker_writes() -> None:
    """Every case of the catalogue has an archive, and no archive is left over from an older catalogue."""
    assert corpus_names() == sorted(case.name for case in CASES)


@pytest.mark.parametrize("name", sampled(corpus_names()))
def test_spark_answered_about_every_committed_batch(corpus: Callable[[str], CorpusCheckpoint], name: str) -> None:
    """Every committed batch of a stateful query has an answer, and some batch has rows."""
    checkpoint = corpus(name)
    files = checkpoint.files
    committed = {int(entry.name) for entry in files.entries("commits") if entry.name.isdigit()}
    assert len(committed) >= 3
    if files.entries("state"):
        assert {answer.batch_id for answer in checkpoint.answers} == committed
        assert any(answer.rows for answer in checkpoint.answers)


@pytest.mark.parametrize("name", sampled(case.name for case in CASES if case.query in OF_ONE_STORE))
def test_answers_agree_with_the_progress_of_the_run(corpus: Callable[[str], CorpusCheckpoint], name: str) -> None:
    """The reader returns as many rows as of a batch as the query reported for its state."""
    checkpoint = corpus(name)
    answered = {answer.batch_id: len(answer.text) for answer in checkpoint.answers if answer.error is None}
    reported = {
        progress["batchId"]: progress["stateOperators"][0]["numRowsTotal"]
        for progress in checkpoint.progress
        if progress["stateOperators"]
    }
    assert answered == {batch: reported[batch] for batch in answered}


def test_memory_files_hold_the_same_bytes(tmp_path: Path) -> None:
    """A checkpoint in memory and the same one unpacked have the same paths and bytes."""
    checkpoint = load("aggregation-changelog", tmp_path)
    on_disk = LocalTree(checkpoint.path)
    unpacked = {path: on_disk.read(path) for path, _ in walk(on_disk)}
    assert as_memory_files("aggregation-changelog").contents == unpacked


def test_unpacked_files_keep_the_times_that_spark_gave_them(tmp_path: Path) -> None:
    """Unpacked commit files have times in the order in which they were written."""
    commits = (load("aggregation-changelog", tmp_path).path / "commits").iterdir()
    by_time = sorted((file for file in commits if file.name.isdigit()), key=lambda file: file.stat().st_mtime_ns)
    assert [int(file.name) for file in by_time] == list(range(len(by_time)))


@pytest.mark.parametrize("name", sampled(corpus_names()))
def test_no_path_of_the_maker_leaks_into_an_archive(name: str) -> None:
    """An archive contains only the neutral path at which it was created, and no folder of its author."""
    here = str(Path(__file__).resolve().parents[1]).encode()
    for path, data in as_memory_files(name).contents.items():
        assert here not in data, path
        if path.endswith(".zip"):
            with zipfile.ZipFile(io.BytesIO(data)) as held:
                assert not any(here in held.read(member) for member in held.namelist()), path
