"""Random stories of queries that share a table with other programs, against a model of what the table has to hold."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.errors import ChangeRefused
from headwater.lakehouse.delta_compare import newest_batch
from lakehouse.delta_support import Writer, delta_table, query, rewind, rows_of

APPS = ("a", "b")
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), st.sampled_from(APPS)),
        st.tuples(st.just("insert"), st.just("")),
        st.tuples(st.just("optimize"), st.just("")),
        st.tuples(st.just("rewind"), st.sampled_from(APPS), st.integers(1, 4)),
        st.tuples(st.just("undo"), st.sampled_from(APPS)),
    ),
    min_size=4,
    max_size=14,
)


class Model:
    """What the table has to hold: the rows of each query up to its last batch, and those of other programs."""

    def __init__(self) -> None:
        self.last = dict.fromkeys(APPS, -1)
        self.inserted: list[int] = []
        self.rewound: dict[str, tuple[int, dict[str, Any]]] = {}

    @property
    def rows(self) -> list[tuple[str, int]]:
        batches = [(app, number) for app, last in self.last.items() for number in range(last + 1)]
        return sorted([*batches, *(("other", number) for number in self.inserted)])


def _play(story: list[tuple[Any, ...]], path: Path) -> None:
    writer, model = Writer(path), Model()
    writer.batch("a", 0)
    model.last["a"] = 0
    for action, *arguments in story:
        match action, arguments:
            case "batch", [app]:
                model.last[app] += 1
                writer.batch(app, model.last[app])
            case "insert", _:
                model.inserted.append(writer.head)
                writer.insert(writer.head)
            case "optimize", _:
                if len(model.rows) > 1:
                    writer.optimize()
            case "rewind", [app, steps]:
                _rewind(path, model, app, max(-1, model.last[app] - steps))
            case "undo", [app]:
                _undo(path, model, app)
        assert rows_of(path) == model.rows, (action, arguments)
        for app, last in model.last.items():
            newest, recorded, _ = newest_batch(delta_table(path).log, app)
            assert (newest is None or newest == last) and (recorded is None or recorded == last)


def _rewind(path: Path, model: Model, app: str, to: int) -> None:
    before = model.last[app]
    if before < 0:
        return
    try:
        plan = rewind(path, app, to, before, keep_foreign=True)
    except ChangeRefused as refusal:
        assert refusal.code == "cannot-keep-foreign"
        return
    if plan.action is not None:
        model.rewound[app] = (before, dict(plan.action))
    model.last[app] = to


def _undo(path: Path, model: Model, app: str) -> None:
    if app not in model.rewound:
        return
    before, action = model.rewound.pop(app)
    try:
        plan = delta_table(path).plan_undo(query(before, app), action, change_id="undo", keep_foreign=True)
    except ChangeRefused as refusal:
        assert refusal.code in {"cannot-keep-foreign", "table-moved"}
        return
    assert plan.action is not None
    delta_table(path).apply(plan.action)
    model.last[app] = before


@settings(max_examples=25)
@given(ACTIONS)
def test_a_table_holds_what_its_writers_left(story: list[tuple[Any, ...]]) -> None:
    """Whatever queries and programs do by turns, a rewind or undo of one query moves only its own rows."""
    with tempfile.TemporaryDirectory() as folder:
        _play(story, Path(folder) / "table")


@pytest.mark.slow
@settings(max_examples=500)
@given(ACTIONS)
def test_a_table_holds_what_its_writers_left_in_many_stories(story: list[tuple[Any, ...]]) -> None:
    """The same with more examples."""
    with tempfile.TemporaryDirectory() as folder:
        _play(story, Path(folder) / "table")
