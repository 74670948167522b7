"""The batch that a result of a repeated SQL query names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headwater.jobs.endpoints import Files, Memory
from headwater.jobs.job import Job
from headwater.spark import memory_tables
from headwater.spark.memory_tables import RepeatedQuery, replacing_table

JOB = Job("job", lambda rows: rows, reads=Files("in"), writes=Memory("table"), mode="complete")


@pytest.mark.parametrize(
    ("batches", "heading"),
    [
        ([4, 4], "after batch 4:"),
        ([4, 5, 5], "after batch 5:"),
        ([4, 5, 7, 8], "between batch 7 and batch 8:"),
        ([None], None),
        ([4, None], None),
    ],
)
def test_heading(batches: list[int | None], heading: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result names a batch only if no other batch was added while the query ran; otherwise the query is repeated."""
    shown: list[str] = []
    given = iter(batches)
    monkeypatch.setattr(memory_tables, "last_batch_in_table", lambda _: next(given))
    monkeypatch.setattr(memory_tables, "sql_result", lambda _, sql: f"result of {sql}")
    query: Any = None
    RepeatedQuery(query, JOB, "SELECT 1", 0, shown.append).poll(query)
    assert shown == ([f"{heading}\nresult of SELECT 1"] if heading else [])
    assert list(given) == []


def test_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is shown before the interval is over; the interval is not made up for by more results."""
    shown: list[str] = []
    now = [100.0]
    monkeypatch.setattr(memory_tables, "last_batch_in_table", lambda _: 0)
    monkeypatch.setattr(memory_tables, "sql_result", lambda *_: "")
    monkeypatch.setattr(memory_tables.time, "monotonic", lambda: now[0])
    query: Any = None
    repeated = RepeatedQuery(query, JOB, "SELECT 1", 5, shown.append)
    for at, results in ((104.9, 0), (105, 1), (109, 1), (110, 2), (133, 3), (133, 3), (138, 4)):
        now[0] = at
        repeated.poll(query)
        assert len(shown) == results, at


def test_table_of_a_per_batch_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of a per-batch job names its batch after it was replaced, and no batch while it is being replaced."""
    shown: list[str] = []
    monkeypatch.setattr(memory_tables, "sql_result", lambda *_: "")
    query: Any = None
    repeated = RepeatedQuery(query, replace(JOB, per_batch=True, mode="append"), "SELECT 1", 0, shown.append)
    with replacing_table("table", 3):
        repeated.poll(query)
        assert shown == []
    repeated.poll(query)
    assert shown == ["after batch 3:\n"]
