"""The expected browser statistics, computed from the input records.

95% of the records arrive in order, and 5% arrive two to six hours late, where the watermark allows 20 minutes. How many of
the late records an engine counts is up to the engine: Spark moves its watermark between batches only, so one large batch
drops none of them, while an engine that moves its watermark with every record drops nearly all. No engine may lose a
record that is in order, or count a record twice. An answer is therefore correct if, for every browser and window,

    records in order  <=  visits counted  <=  records in order + late records

and the last event time lies within the same bounds. Spark streams also have an exact answer, because the checkpoint
records the offsets and the watermark of each batch: ``exact_answer`` computes it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from bench.broker import read_topic
from headwater.datagen.stream import FIXED_START_MS

WINDOW_MS = 5 * 60_000
DELAY_MS = 20 * 60_000
CHUNK = 200_000
SCHEMA = pa.schema([("eventTime", pa.timestamp("ms")), ("browser", pa.string())])

Key = tuple[str, int]


@dataclass(frozen=True)
class Count:
    visits: int
    last_ms: int


@dataclass(frozen=True)
class Bounds:
    """The least that a window must count, and the most that it may count."""

    least: Count
    most: Count


def export_topic(bootstrap: str, topic: str, cache: Path) -> Path:
    """Export a topic to a Parquet file of partition, offset, event time and browser; the file is written once."""
    file = cache / f"{topic}.parquet"
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(file.with_suffix(".new"), _decode([], []).schema) as writer:
            for positions, values in _chunks(read_topic(bootstrap, topic)):
                writer.write_table(_decode(positions, values))
        file.with_suffix(".new").rename(file)
    return file


def _chunks(
    records: Iterator[tuple[int, int, bytes | None, bytes]],
) -> Iterator[tuple[list[tuple[int, int]], list[bytes]]]:
    positions: list[tuple[int, int]] = []
    values: list[bytes] = []
    for partition, offset, _, value in records:
        positions.append((partition, offset))
        values.append(value)
        if len(values) == CHUNK:
            yield positions, values
            positions, values = [], []
    if values:
        yield positions, values


def _decode(positions: list[tuple[int, int]], values: list[bytes]) -> pa.Table:
    if values:
        options = pj.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="ignore")
        decoded = pj.read_json(io.BytesIO(b"\n".join(values)), parse_options=options)
    else:
        decoded = SCHEMA.empty_table()
    return pa.table(
        {
            "part": pa.array([position[0] for position in positions], pa.int32()),
            "place": pa.array([position[1] for position in positions], pa.int64()),
            "event_ms": decoded["eventTime"].cast(pa.int64()),
            "browser": decoded["browser"],
        }
    )


def compute_bounds(records: Path) -> dict[Key, Bounds]:
    """Return the bounds of each browser and window."""
    rows = duckdb.sql(f"""
        with seen as (
            select *, greatest({FIXED_START_MS}, max(event_ms) over (partition by part order by place)) as newest_ms
            from '{records}'
        )
        select browser, event_ms // {WINDOW_MS} * {WINDOW_MS} as start_ms,
               count(*) filter (newest_ms - event_ms < {DELAY_MS}), max(event_ms) filter (newest_ms - event_ms < {DELAY_MS}),
               count(*), max(event_ms)
        from seen group by all
    """).fetchall()
    return {
        (browser, start): Bounds(Count(least, least_last or 0), Count(most, most_last))
        for browser, start, least, least_last, most, most_last in rows
    }


def exact_answer(records: Path, checkpoint: Path) -> dict[Key, Count]:
    """Return what Spark must count, given the batches of its checkpoint: a batch drops by the previous batch's watermark."""
    rows = []
    watermark, starts = 0, {}
    for file in sorted((file for file in (checkpoint / "offsets").glob("[0-9]*")), key=lambda file: int(file.name)):
        _, plan, source = file.read_text().splitlines()[:3]
        ends = {int(partition): end for topic in json.loads(source).values() for partition, end in topic.items()}
        rows += [(partition, starts.get(partition, 0), end, watermark) for partition, end in ends.items()]
        watermark, starts = json.loads(plan)["batchWatermarkMs"], ends
    connection = duckdb.connect()
    connection.execute("create table batches (part int, first_place bigint, end_place bigint, watermark_ms bigint)")
    connection.executemany("insert into batches values (?, ?, ?, ?)", rows)
    found = connection.execute(f"""
        select browser, event_ms // {WINDOW_MS} * {WINDOW_MS} as start_ms, count(*), max(event_ms)
        from '{records}' r join batches b on r.part = b.part and r.place >= b.first_place and r.place < b.end_place
        where (event_ms // {WINDOW_MS} + 1) * {WINDOW_MS} > watermark_ms
        group by all
    """).fetchall()
    return {(browser, start): Count(visits, last) for browser, start, visits, last in found}


def read_answer(bootstrap: str, topic: str) -> dict[Key, Count]:
    """Return the last row of an output topic for each browser and window."""
    answer: dict[Key, Count] = {}
    for _, _, _, value in read_topic(bootstrap, topic):
        row = json.loads(value) if value else {}
        # Pathway retracts the old row (diff -1) when it writes a new one.
        if row and row.get("diff") != -1:
            key, count = _parse_row(row)
            answer[key] = count
    return answer


def _parse_row(row: dict[str, Any]) -> tuple[Key, Count]:
    if "window" in row:
        start, last = row["window"]["start"], row["last_event_time_in_window"]
    else:
        start, last = row["start"], row["last"]
    return (row["browser"], _ms(start)), Count(int(row["count"]), _ms(last))


def _ms(time: str | float) -> int:
    if isinstance(time, str):
        return round(datetime.fromisoformat(time.replace(" ", "T").replace("Z", "+00:00")).timestamp() * 1000)
    return int(time)


def judge_statistics(answer: dict[Key, Count], expected: dict[Key, Bounds]) -> dict[str, Any]:
    """Compare browser statistics with their bounds and count the differences."""
    nothing = Count(0, 0)
    lost = doubled = late = wrong_last = 0
    for key, bound in expected.items():
        got = answer.get(key, nothing)
        lost += max(0, bound.least.visits - got.visits)
        doubled += max(0, got.visits - bound.most.visits)
        late += max(0, min(got.visits, bound.most.visits) - bound.least.visits)
        wrong_last += not (got.visits == 0 or bound.least.last_ms <= got.last_ms <= bound.most.last_ms)
    invented = len(answer.keys() - expected.keys())
    return {
        "correct": not (lost or doubled or wrong_last or invented),
        "lost": lost,
        "counted_twice": doubled,
        "late_counted": late,
        "wrong_last_times": wrong_last,
        "invented_windows": invented,
    }


def judge_totals(rows: Iterable[tuple[str, int]], expected: dict[str, int]) -> dict[str, Any]:
    """Compare the last total of each user with the expected one."""
    got = dict(rows)
    wrong = sum(got.get(user) != total for user, total in expected.items()) + len(got.keys() - expected.keys())
    return {"correct": not wrong, "wrong_users": wrong}
