"""The state one page at a time, compared with Spark's own reader."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from corpus_support import CorpusCheckpoint, corpus_names
from headwater.checkpoint.local_tree import LocalTree
from headwater.statefiles.reader import StateReader
from headwater.views.page_state import PageRequest, StateView, key_timeline

Corpus = Callable[[str], CorpusCheckpoint]


def view_of(checkpoint: CorpusCheckpoint, batch: int, before: int | None = None) -> StateView:
    reader = StateReader(LocalTree(checkpoint.path))
    target = next(target for target in reader.targets(batch) if target.kind != "hidden")
    view = StateView(reader, target, batch, before)
    view.compare()
    return view


@pytest.mark.parametrize("name", corpus_names("aggregation"))
def test_pages_hold_every_row_once(corpus: Corpus, name: str) -> None:
    """All pages together contain each row of Spark's reader once."""
    checkpoint = corpus(name)
    answer = next(answer for answer in reversed(checkpoint.answers) if answer.rows and not answer.error)
    view = view_of(checkpoint, answer.batch_id)
    ids = [row["id"] for start in range(0, view.total, 7) for row in view.page(PageRequest(start=start, size=7)).rows]
    assert view.total == len(answer.rows)
    assert sorted(ids) == list(range(view.total))


def test_search_narrows_and_sorting_orders(corpus: Corpus) -> None:
    """Search covers every column and ignores case; a column sorts in both directions."""
    checkpoint = corpus("aggregation-changelog")
    view = view_of(checkpoint, StateReader(LocalTree(checkpoint.path)).latest())
    first = view.page(PageRequest(size=1)).rows[0]
    text = next(
        cell["now"] for name, cell in first.items() if name.startswith("c") and name != "change" and cell["now"]
    )
    assert view.page(PageRequest(search=text.upper())).matching >= 1
    assert view.page(PageRequest(search="no such text anywhere")).matching == 0
    number = next(column for column in view.columns if column.is_number)
    up = [row[number.field]["now"] for row in view.page(PageRequest(size=1000, order_by=number.field)).rows]
    down = [
        row[number.field]["now"]
        for row in view.page(PageRequest(size=1000, order_by=number.field, descending=True)).rows
    ]
    assert [float(value) for value in up if value] == sorted(float(value) for value in up if value)
    assert sorted(up, key=str) == sorted(down, key=str)


def test_unknown_column_is_ignored(corpus: Corpus) -> None:
    """A request to sort by a column that does not exist has no effect."""
    checkpoint = corpus("aggregation-changelog")
    view = view_of(checkpoint, StateReader(LocalTree(checkpoint.path)).latest())
    for unknown in ("c999", "'; drop", "", "cx"):
        assert view.page(PageRequest(order_by=unknown)).matching == view.total


@pytest.mark.parametrize("name", corpus_names("aggregation") + corpus_names("session"))
def test_marks_agree_with_the_two_states(corpus: Corpus, name: str) -> None:
    """A key is marked as added or changed if it differs from the previous batch; removed keys are counted."""
    checkpoint = corpus(name)
    reader = StateReader(LocalTree(checkpoint.path))
    readable = reader.readable(0)
    before, batch = readable[-2], readable[-1]
    older, newer = view_of(checkpoint, before), view_of(checkpoint, batch, before)

    def contents(view: StateView) -> dict[tuple[object, ...], list[object]]:
        rows = view.page(PageRequest(size=100_000)).rows
        keys = [column.field for column in view.columns if column.is_key]
        values = [column.field for column in view.columns if not column.is_key]
        return {tuple(row[key]["now"] for key in keys): [row[value]["now"] for value in values] for row in rows}

    was, now = contents(older), contents(newer)
    marks = {
        tuple(row[column.field]["now"] for column in newer.columns if column.is_key): row["change"]
        for row in newer.page(PageRequest(size=100_000)).rows
    }
    assert marks == {
        key: "added" if key not in was else ("changed" if was[key] != value else "") for key, value in now.items()
    }
    assert newer.counts.get("removed", 0) == len(was.keys() - now.keys())
    changes = newer.page(PageRequest(size=100_000, only_changes=True))
    assert changes.matching == sum(newer.counts.values())


def test_history_of_a_key_ends_with_its_value(corpus: Corpus) -> None:
    """The last step in the history of a key has its current value."""
    checkpoint = corpus("aggregation-changelog")
    reader = StateReader(LocalTree(checkpoint.path))
    batch = reader.readable(0)[-1]
    view = view_of(checkpoint, batch)
    row = view.page(PageRequest(size=1)).rows[0]
    timeline = key_timeline(reader, view.target, row["key"], batch)
    assert timeline.batches[-1] == batch
    values = [row[column.field]["now"] for column in view.columns if not column.is_key]
    assert all(str(value) in timeline.steps[-1][1] for value in values if value is not None)


def test_rows_as_csv(corpus: Corpus) -> None:
    """CSV has the rows that match, with the headings of the table, in its order."""
    view = view_of(corpus("aggregation-changelog"), 6, 5)
    lines = view.csv(PageRequest()).decode().splitlines()
    assert len(lines) == view.total + 1
    assert len(lines[0].split(",")) == len(view.columns)
    changes = view.csv(PageRequest(only_changes=True)).decode().splitlines()
    assert len(changes) == sum(view.counts.values()) + 1
    assert view.csv(PageRequest(search="no such text anywhere")).decode().splitlines() == lines[:1]
