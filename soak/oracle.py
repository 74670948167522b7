"""The expected results of a job, computed from the records of each batch in plain Python.

Which records are late depends on the batch boundaries, so the checkpoint's offsets determine the records of each batch.
Everything else (watermark, drops, state, output) is computed here and compared with what Spark wrote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from soak.records import Fields, milliseconds
from soak.watermarks import BatchInput, follow_watermarks

Key: TypeAlias = tuple[Any, ...]
Value: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = dict[Key, Value]
Bag: TypeAlias = Counter[tuple[Key, Value]]
"""Rows in any order, with how often each occurs."""

MINUTE_MS = 60_000


@dataclass(frozen=True)
class ExpectedBatch:
    """What a batch must do: ``emitted`` goes to the sink, and ``watermark_ms`` is the watermark that it evicts by."""

    batch_id: int
    watermark_ms: int
    emitted: Bag
    state: Bag
    late: frozenset[Any] = frozenset()


@dataclass(frozen=True)
class Rules:
    """A job as functions: the key of a record, its event time, the time until which its key is kept, and the fold.

    ``time_ms`` and ``end_ms`` are None for jobs without a watermark.
    """

    key: Callable[[Fields], Key]
    fold: Callable[[Value | None, Fields], Value]
    time_ms: Callable[[Fields], int] | None = None
    end_ms: Callable[[Key], int] | None = None
    delay_ms: int = 0
    emits: str = "changed"
    """``changed`` (update mode), ``closed`` (append mode of an aggregation), ``new`` (duplicates dropped), ``all``."""
    sources: tuple[str, ...] = ("",)


def simulate(rules: Rules, batches: Sequence[BatchInput]) -> list[ExpectedBatch]:
    """Return the expected results of all batches, from the first on."""
    state: Rows = {}
    expected = []
    watermarks = follow_watermarks(
        batches, rules.sources, lambda record: rules.time_ms and rules.time_ms(record.fields), rules.delay_ms
    )
    for batch, watermark in zip(batches, watermarks, strict=True):
        before = dict(state)
        late, touched = set(), set()
        for place, fields, _ in batch.records:
            key = rules.key(fields)
            if rules.end_ms is not None and rules.end_ms(key) <= watermark.drops_ms:
                late.add(place)
                continue
            state[key] = rules.fold(state.get(key), fields)
            touched.add(key)
        closed = _closed(rules, state, watermark.evicts_ms) if not batch.carried else {}
        emitted = {} if batch.carried else _emitted(rules, before, state, touched, closed)
        for key in closed:
            del state[key]
        bags = Counter(emitted.items()), Counter(state.items())
        expected.append(ExpectedBatch(batch.batch_id, watermark.evicts_ms, *bags, frozenset(late)))
    return expected


def _closed(rules: Rules, state: Rows, watermark_ms: int) -> Rows:
    if rules.end_ms is None or rules.emits == "all":
        return {}
    return {key: value for key, value in state.items() if rules.end_ms(key) <= watermark_ms}


def _emitted(rules: Rules, before: Rows, state: Rows, touched: set[Key], closed: Rows) -> Rows:
    match rules.emits:
        case "closed":
            return closed
        case "new":
            return {key: state[key] for key in touched if key not in before}
        case "all":
            return dict(state)
        case _:
            return {key: state[key] for key in touched}


def _window(fields: Fields, name: str, minutes: int) -> tuple[int, int]:
    size_ms = minutes * MINUTE_MS
    start_ms = milliseconds(fields[name]) // size_ms * size_ms
    return start_ms, start_ms + size_ms


def _count_with_latest(value: Value | None, fields: Fields) -> Value:
    count, latest = value or (0, 0)
    return (count + 1, max(latest, milliseconds(fields["eventTime"])))


def browser_stats(emits: str, *sources: str) -> Rules:
    return Rules(
        key=lambda fields: (fields["browser"], *_window(fields, "eventTime", 5)),
        fold=_count_with_latest,
        time_ms=lambda fields: milliseconds(fields["eventTime"]),
        end_ms=lambda key: key[2],
        delay_ms=20 * MINUTE_MS,
        emits=emits,
        sources=sources or ("",),
    )


def deduplicated_events() -> Rules:
    return Rules(
        key=lambda fields: (fields["User"], milliseconds(fields["event_time"])),
        fold=lambda value, fields: (),  # noqa: ARG005
        time_ms=lambda fields: milliseconds(fields["event_time"]),
        end_ms=lambda key: key[1],
        delay_ms=30 * MINUTE_MS,
        emits="new",
    )


def running_totals() -> Rules:
    return Rules(
        key=lambda fields: (fields["user"],),
        fold=lambda value, fields: ((value or (0,))[0] + fields["shopping"],),
    )


def order_status(emits: str) -> Rules:
    return Rules(
        key=lambda fields: (fields["order_status"],),
        fold=lambda value, fields: ((value or (0,))[0] + 1,),  # noqa: ARG005
        emits=emits,
    )


def _add_sale(value: Value | None, fields: Fields) -> Value:
    units, revenue = value or (0, 0)
    return units + fields["quantity"], revenue + fields["quantity"] * fields["price"]


def enriched_sales(emits: str) -> Rules:
    """Return the rules for items with the category and the price of their product."""
    return Rules(
        key=lambda fields: (fields["category"], *_window(fields, "sold_at", 15)),
        fold=_add_sale,
        time_ms=lambda fields: milliseconds(fields["sold_at"]),
        end_ms=lambda key: key[2],
        delay_ms=60 * MINUTE_MS,
        emits=emits,
        sources=("items",),
    )
