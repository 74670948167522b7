"""The endurance harness itself: stories are data, and its oracle can be checked by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent))  # soak/ is beside src/, not in it

from soak.cells import CELLS, cell_of
from soak.lineage import Lineage, PlannedBatch, places
from soak.oracle import BatchInput, BatchResult, simulate
from soak.records import Burst, milliseconds
from soak.sinks import LastWrites
from soak.story import ACTIONS, Run, story

from soak import ledger, oracle


def test_a_seed_tells_one_story() -> None:
    """The same seed gives the same actions and the same records, and each cell of the matrix gets its turn."""
    assert story(7) == story(7)
    assert story(7) != story(7 + len(CELLS))
    assert len({cell_of(seed).name for seed in range(len(CELLS))}) == len(CELLS)
    for seed in range(50):
        told = story(seed)
        assert len(told.actions) == ACTIONS
        assert isinstance(told.actions[-1], Run)
    burst = Burst(seed=3, minute=5, count=40, late=0.3, malformed=0.3)
    for kind in ("visit", "event", "purchase", "order"):
        assert burst.records(kind, tombstones=True) == burst.records(kind, tombstones=True)


@pytest.mark.parametrize("kind", ["visit", "event", "purchase", "order"])
def test_records_know_what_they_are(kind: str) -> None:
    """A record that counts as decoded is the JSON of its fields; a malformed one is not."""
    for record in Burst(seed=1, minute=0, count=300, malformed=0.5).records(kind, tombstones=True):
        if record.fields is not None:
            assert json.loads(record.data or b"") == record.fields
        elif record.data is not None:
            assert b"\n" not in record.data


def visit(browser: str, at: str) -> dict[str, object]:
    return {"userId": 1, "page": "/", "eventTime": f"2026-03-01T{at}:00.000Z", "browser": browser}


def test_the_oracle_by_hand() -> None:
    """A window is closed by its own batch's watermark, and a record is late by that of the batch before."""
    batches = [
        BatchInput(0, (("a", visit("F", "10:01")), ("b", visit("F", "10:02")))),
        BatchInput(1, (("c", visit("F", "10:41")),)),
        BatchInput(2, (("d", visit("F", "10:03")),)),  # 10:05 is behind 10:21, which this batch evicts by, not drops by
        BatchInput(3, (("e", visit("F", "10:04")),)),
    ]
    update, append = (simulate(oracle.browser_stats(emits), batches) for emits in ("changed", "closed"))
    first = ("F", milliseconds("2026-03-01T10:00:00Z"), milliseconds("2026-03-01T10:05:00Z"))
    assert [result.emitted.get(first, (0, 0))[0] for result in update] == [2, 0, 3, 0]
    assert [result.emitted.get(first, (0, 0))[0] for result in append] == [0, 0, 3, 0]
    assert [sorted(result.late) for result in update] == [[], [], [], ["e"]]
    assert first in update[1].state
    assert first not in update[2].state


def test_a_carried_batch_changes_nothing() -> None:
    """Repartitioning adds a batch in which the watermark stands still and nothing is emitted or evicted."""
    seen = BatchInput(0, (("a", visit("F", "10:01")), ("b", visit("F", "11:01"))))
    results = simulate(oracle.browser_stats("closed"), [seen, BatchInput(1, (), carried=True), BatchInput(2, ())])
    assert [result.watermark_ms > 0 for result in results] == [False, False, True]
    assert [len(result.emitted) for result in results] == [0, 0, 1]


def test_doubt_about_a_batch_that_never_was_committed() -> None:
    """It may have been written or not, until it runs again; anything else in the sink is wrong."""
    writes = LastWrites()
    writes.ran(BatchResult(0, 0, {("F",): (1,)}, {}))
    writes.may_have_run(BatchResult(1, 0, {("F",): (2,), ("G",): (1,)}, {}))
    assert writes.differences({("F",): (1,)}) == []
    assert writes.differences({("F",): (2,), ("G",): (1,)}) == []
    assert writes.differences({("F",): (3,)}) != []
    assert writes.differences({("F",): (1,), ("H",): (1,)}) != []
    writes.ran(BatchResult(1, 0, {("F",): (2,), ("G",): (1,)}, {}))
    assert writes.differences({("F",): (1,)}) != []


def test_places_of_a_batch() -> None:
    """Offsets and file names say which records came together."""
    batch = PlannedBatch(1, 0, 0, {"t": {"0": 3, "1": 1}}, committed=True)
    assert places(batch, {"t": {"0": 2}}, {}) == [("t", 0, 2), ("t", 1, 0)]
    files = PlannedBatch(1, 0, 0, ["a", "b"], committed=True)
    assert places(files, ["a"], {"a": 5, "b": 2}) == [("b", 1), ("b", 2)]
    assert Lineage().head == -1


def test_the_ledger_adds_up(tmp_path: Path) -> None:
    """Only good stories count, the figures go between their marks, and what failed is told again before anything new."""
    file, page = tmp_path / "ledger.jsonl", tmp_path / "page.md"
    line = {"seed": 4, "actions": 15, "tally": {"kills": 2}, "refused": {}, "seconds": 3.0, "outcome": "good"}
    ledger.add(line, file)
    ledger.add({**line, "seed": 5, "outcome": "Wrong: x"}, file)
    page.write_text(f"above\n{ledger.BEGIN}\nprevious\n{ledger.END}\nbelow\n")
    ledger.write_report(file, page)
    assert [seed for seed, _ in zip(ledger.seeds(ledger.read(file)), range(3), strict=False)] == [5, 6, 7]
    text = page.read_text()
    assert text.startswith("above\n") and text.endswith("\nbelow\n")
    assert "previous" not in text
    assert "| stories told to a good end | 1, with 15 actions |" in text
