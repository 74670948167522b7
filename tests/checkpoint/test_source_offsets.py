"""The meaning of source offsets."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.checkpoint.source_offsets import (
    NO_HINT,
    SourceHint,
    hint_from_source_log,
    offset_value,
    source_range,
    step_between,
)


def ranged(start: str | None, end: str | None, hint: SourceHint = NO_HINT, *, start_known: bool = True) -> Any:
    return source_range("0", start, end, start_known=start_known, hint=hint)


@pytest.mark.parametrize(
    ("start", "end", "kind", "rows"),
    [
        ('{"visits":{"0":1,"1":4}}', '{"visits":{"0":3,"1":4}}', "kafka", 2),
        ('{"visits":{"0":1}}', '{"visits":{"0":1,"1":5}}', "kafka", 5),
        ('{"visits":{"0":9}}', '{"visits":{"0":3}}', "kafka", None),
        ('{"logOffset":3}', '{"logOffset":4}', "files", None),
        ('{"logOffset":3}', '{"logOffset":3}', "files", 0),
        ('{"offset":10,"timestamp":1}', '{"offset":30,"timestamp":2}', "rate-micro-batch", 20),
        ("3", "8", "socket", 5),
        (None, "8", "socket", 9),
        ('{"0":{"value":1,"runTimeMs":2}}', '{"0":{"value":5,"runTimeMs":9}}', "rate", None),
        ('{"shard-1":"49590"}', '{"shard-1":"49591"}', "unknown", None),
        ('{"reservoirVersion":3,"index":1}', '{"reservoirVersion":4,"index":0}', "delta", None),
        ("abc", "abc", "unknown", 0),
        ("abc", "{invalid", "unknown", None),
    ],
)
def test_kinds_and_rows(start: str | None, end: str, kind: str, rows: int | None) -> None:
    """The form of an offset identifies the kind of its source; rows are counted if offsets count rows."""
    found = ranged(start, end)
    assert (found.kind, found.rows) == (kind, rows)


def test_unknown_offsets_are_shown_as_they_are() -> None:
    """An offset of an unknown kind is returned as its JSON value, or as text."""
    assert ranged('{"shard":["7"]}', "v=9;x").end == "v=9;x"
    assert ranged('{"shard":["7"]}', "v=9;x").start == {"shard": ["7"]}


def test_purged_start_is_unknown() -> None:
    """Without the previous batch, neither the start nor the rows are known."""
    found = ranged(None, '{"visits":{"0":3}}', start_known=False)
    assert (found.start, found.rows) == (None, None)


def test_source_without_data_read_nothing() -> None:
    """A source that has no offset yet has read no rows."""
    assert (ranged(None, None).rows, ranged(None, None).end) == (0, None)


def test_first_batch_starts_where_the_source_did() -> None:
    """Kafka's first offsets, after their zero byte, are the start of batch 0."""
    hint = hint_from_source_log(b'\0v1\n{"visits":{"0":100}}')
    found = ranged(None, '{"visits":{"0":103}}', hint)
    assert (found.kind, found.start, found.rows) == ("kafka", {"visits": {"0": 100}}, 3)
    assert hint_from_source_log(b'\0{"visits":{"0":1}}').initial == {"visits": {"0": 1}}


def test_source_log_distinguishes_numbers() -> None:
    """The source's log shows whether a number belongs to a rate source, an old file source or a socket."""
    assert ranged("1", "2", hint_from_source_log(b"v1\n1794739798685")).kind == "rate"
    assert ranged("1", "2", hint_from_source_log(b'v1\n{"path":"file:///a","timestamp":1,"batchId":0}')).kind == "files"
    assert ranged("1", "2").kind == "socket"
    assert hint_from_source_log(b"") == NO_HINT
    assert hint_from_source_log(b"\xff\xfe") == NO_HINT


def test_rate_rows_need_the_rate() -> None:
    """The rows of a rate source are known if its rate is."""
    assert ranged("2", "4", SourceHint("rate")).rows is None
    assert ranged("2", "4", SourceHint("rate", rows_per_second=50)).rows == 100


@pytest.mark.parametrize(
    ("kind", "before", "after", "step"),
    [
        ("kafka", '{"t":{"0":5}}', '{"t":{"0":4}}', "backward"),
        ("kafka", '{"t":{"0":5,"1":1}}', '{"t":{"0":6}}', "forward"),
        ("files", '{"logOffset":5}', '{"logOffset":4}', "backward"),
        ("rate", "3", "3", "same"),
        ("unknown", '"a"', '"b"', "unknown"),
    ],
)
def test_steps(kind: str, before: str, after: str, step: str) -> None:
    """For a known kind of source, it is known whether its offsets went forward or backward."""
    assert step_between(kind, offset_value(before), offset_value(after))[0] == step
