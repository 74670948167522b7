"""Why a batch took long, and how a state is spread over its partitions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from corpus_support import CorpusCheckpoint
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import ProgressRecord
from headwater.statefiles.reader import StateReader
from headwater.views.batch_phases import compare_phases, explain_skew
from headwater.views.page_state import StateView

Corpus = Callable[[str], CorpusCheckpoint]


def records(*durations: int, rows: int = 5) -> dict[int, ProgressRecord]:
    return {
        number: ProgressRecord(
            number,
            1000 * number,
            input_rows=rows,
            durations_ms={"triggerExecution": 100 + took, "addBatch": took, "walCommit": 60},
        )
        for number, took in enumerate(durations)
    }


def test_slow_batch_names_its_slow_phase() -> None:
    """The phase that differs most from the median is named; the rest of the time is a phase of its own."""
    found = compare_phases(records(100, 120, 110, 900), 3)
    assert found is not None and found.usual is not None
    assert found.batch.phases == {"addBatch": 900, "walCommit": 60, "other": 40}
    assert found.usual.phases == {"addBatch": 110, "walCommit": 60, "other": 40}
    assert found.names == ["walCommit", "addBatch", "other"]
    assert str(found) == (
        "batch 3 took 1.0 s, 4.8 times as long as others (210 ms, the median of 3 batches): addBatch took 790 ms longer."
    )


def test_usual_batch() -> None:
    """A batch that took about as long as others needs no reason; the first ones have nothing to be compared with."""
    found = records(100, 120, 110, 130)
    assert str(compare_phases(found, 3)) == (
        "batch 3 took 230 ms, about as long as others (210 ms, the median of 3 batches)."
    )
    assert str(compare_phases(found, 1)) == "batch 1 took 220 ms. There are too few batches to compare it with."
    assert compare_phases(found, 9) is None


def test_batches_without_input_are_compared_with_their_kind() -> None:
    """A batch without input is faster than the others, and is not compared with them."""
    found = records(100, 100, 100) | {3: records(0, 0, 0, 1, rows=0)[3]}
    compared = compare_phases(found, 3)
    assert compared is not None and compared.usual is None


def test_two_batches_side_by_side() -> None:
    """Another batch gets a bar of its own."""
    found = compare_phases(records(100, 120, 110, 900), 3, 1)
    assert found is not None
    assert [bar.label for bar in found.bars] == ["batch 3", "median", "batch 1"]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({}, "The state has no rows."),
        ({0: 0, 1: 0}, "The state has no rows."),
        ({0: 7}, "All 7 rows are in one partition."),
        ({0: 10, 1: 11}, "The largest partition 1 has 11 of 21 rows (52%)."),
        ({0: 10, 1: 300, 2: 10, 3: 0}, "Skewed: partition 1 has 300 of 320 rows (94%), 30.0 times the median"),
    ],
)
def test_skew(rows: dict[int, int], expected: str) -> None:
    """The partition with most rows is named, and whether that is far from the median."""
    assert explain_skew(rows).startswith(expected)


def test_rows_by_partition_add_up(corpus: Corpus) -> None:
    """Each row of the state is in one partition, and partitions without rows are listed as well."""
    reader = StateReader(LocalTree(corpus("five-partitions").path))
    batch = reader.latest()
    target = next(target for target in reader.targets(batch) if target.kind != "hidden")
    view = StateView(reader, target, batch, None)
    assert sum(view.partition_rows.values()) == view.total
    assert list(view.partition_rows) == [0, 1, 2, 3, 4]
