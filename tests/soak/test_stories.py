"""The soak harness itself: the stories, the oracle and the ledger."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent))  # soak/ is next to src/

from soak.cells import CELLS, cell_for_seed
from soak.lineage import Lineage, PlannedBatch, places
from soak.oracle import BatchInput, ExpectedBatch, simulate
from soak.records import Burst, milliseconds
from soak.sinks import LastWrites
from soak.story import ACTIONS, Run, generate_story

from soak import ledger, oracle


def test_a_seed_gives_one_story() -> None:
    """The same seed gives the same actions and the same records, and consecutive seeds cover every cell of the matrix."""
    assert generate_story(7) == generate_story(7)
    assert generate_story(7) != generate_story(7 + len(CELLS))
    assert len({cell_for_seed(seed).name for seed in range(len(CELLS))}) == len(CELLS)
    for seed in range(50):
        story = generate_story(seed)
        assert len(story.actions) == ACTIONS
        assert isinstance(story.actions[-1], Run)
    burst = Burst(seed=3, minute=5, count=40, late=0.3, malformed=0.3)
    for kind in ("visit", "event", "purchase", "order"):
        assert burst.records(kind, tombstones=True) == burst.records(kind, tombstones=True)


@pytest.mark.parametrize("kind", ["visit", "event", "purchase", "order"])
def test_decoded_records_are_the_json_of_their_fields(kind: str) -> None:
    """A record with fields is their JSON; a malformed record has no fields and fits on one line."""
    for record in Burst(seed=1, minute=0, count=300, malformed=0.5).records(kind, tombstones=True):
        if record.fields is not None:
            assert json.loads(record.data or b"") == record.fields
        elif record.data is not None:
            assert b"\n" not in record.data


def visit(browser: str, at: str) -> dict[str, object]:
    return {"userId": 1, "page": "/", "eventTime": f"2026-03-01T{at}:00.000Z", "browser": browser}


def test_the_oracle_by_hand() -> None:
    """The watermark of a batch closes windows in that batch, and makes records late in the next."""
    batches = [
        BatchInput(0, (("a", visit("F", "10:01")), ("b", visit("F", "10:02")))),
        BatchInput(1, (("c", visit("F", "10:41")),)),
        BatchInput(
            2, (("d", visit("F", "10:03")),)
        ),  # counted: this batch evicts by 10:21, but drops by the watermark before
        BatchInput(3, (("e", visit("F", "10:04")),)),
    ]
    update, append = (simulate(oracle.browser_stats(emits), batches) for emits in ("changed", "closed"))
    first = ("F", milliseconds("2026-03-01T10:00:00Z"), milliseconds("2026-03-01T10:05:00Z"))
    assert [batch.emitted.get(first, (0, 0))[0] for batch in update] == [2, 0, 3, 0]
    assert [batch.emitted.get(first, (0, 0))[0] for batch in append] == [0, 0, 3, 0]
    assert [sorted(batch.late) for batch in update] == [[], [], [], ["e"]]
    assert first in update[1].state
    assert first not in update[2].state


def test_a_carried_batch_changes_nothing() -> None:
    """In a batch that a repartition added, the watermark does not move and nothing is emitted or evicted."""
    seen = BatchInput(0, (("a", visit("F", "10:01")), ("b", visit("F", "11:01"))))
    results = simulate(oracle.browser_stats("closed"), [seen, BatchInput(1, (), carried=True), BatchInput(2, ())])
    assert [result.watermark_ms > 0 for result in results] == [False, False, True]
    assert [len(result.emitted) for result in results] == [0, 0, 1]


def test_an_uncommitted_batch_leaves_two_possible_values() -> None:
    """An uncommitted batch may have been written or not until it runs again; any other value in the sink is wrong."""
    writes = LastWrites()
    writes.record_committed(ExpectedBatch(0, 0, {("F",): (1,)}, {}))
    writes.record_possible(ExpectedBatch(1, 0, {("F",): (2,), ("G",): (1,)}, {}))
    assert writes.differences({("F",): (1,)}) == []
    assert writes.differences({("F",): (2,), ("G",): (1,)}) == []
    assert writes.differences({("F",): (3,)}) != []
    assert writes.differences({("F",): (1,), ("H",): (1,)}) != []
    writes.record_committed(ExpectedBatch(1, 0, {("F",): (2,), ("G",): (1,)}, {}))
    assert writes.differences({("F",): (1,)}) != []


def test_places_of_a_batch() -> None:
    """The records of a batch follow from its offsets or its file names."""
    batch = PlannedBatch(1, 0, 0, {"t": {"0": 3, "1": 1}}, committed=True)
    assert places(batch, {"t": {"0": 2}}, {}) == [("t", 0, 2), ("t", 1, 0)]
    files = PlannedBatch(1, 0, 0, ["a", "b"], committed=True)
    assert places(files, ["a"], {"a": 5, "b": 2}) == [("b", 1), ("b", 2)]
    assert Lineage().head == -1


def test_the_ledger_adds_up(tmp_path: Path) -> None:
    """Only stories that passed count, the figures go between their markers, and failed stories run before new ones."""
    file, page = tmp_path / "ledger.jsonl", tmp_path / "page.md"
    line = {"seed": 4, "actions": 15, "tally": {"kills": 2}, "refused": {}, "seconds": 3.0, "outcome": "good"}
    ledger.append(line, file)
    ledger.append({**line, "seed": 5, "outcome": "CheckFailed: x"}, file)
    page.write_text(f"above\n{ledger.BEGIN}\nprevious\n{ledger.END}\nbelow\n")
    ledger.write_report(file, page)
    assert [seed for seed, _ in zip(ledger.next_seeds(ledger.read(file)), range(3), strict=False)] == [5, 6, 7]
    text = page.read_text()
    assert text.startswith("above\n") and text.endswith("\nbelow\n")
    assert "previous" not in text
    assert "| stories that passed | 1, with 15 actions |" in text
    assert "| failed runs on the way | 1, of 1 stories, 0 of which pass now |" in text
