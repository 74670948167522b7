"""Browser statistics in Bytewax with its window operators: ``python -m bytewax.run FILE:flow``.

Parameters come from the environment, because the runner owns the command line.
"""

from __future__ import annotations

import atexit
import json
import os
import time
from datetime import UTC, datetime, timedelta

import bytewax.operators as op
import orjson
from bytewax.connectors.kafka import KafkaSinkMessage, KafkaSource, KafkaSourceMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow
from bytewax.operators.windowing import EventClock, TumblingWindower, fold_window

BROKERS = [os.environ["BENCH_BOOTSTRAP"]]
START = datetime(2024, 1, 1, tzinfo=UTC)
Pair = tuple[int, int]
seen = {"first": 0.0}


def decode(messages: list[KafkaSourceMessage]) -> list[tuple[str, datetime]]:
    seen["first"] = seen["first"] or time.time()
    rows = [orjson.loads(message.value) for message in messages]
    return [(row["browser"], datetime.fromisoformat(row["eventTime"])) for row in rows]


def add(count: tuple[int, datetime | None], at: datetime) -> tuple[int, datetime | None]:
    visits, last = count
    return visits + 1, at if last is None or at > last else last


def merge(one: tuple[int, datetime | None], other: tuple[int, datetime | None]) -> tuple[int, datetime | None]:
    return one[0] + other[0], max(time for time in (one[1], other[1]) if time)


def to_message(row: tuple[str, tuple[int, tuple[int, datetime]]]) -> KafkaSinkMessage:
    browser, (window, (visits, last)) = row
    start = int(START.timestamp() * 1000) + window * 300_000
    row_out = {"browser": browser, "start": start, "count": visits, "last": int(last.timestamp() * 1000)}
    return KafkaSinkMessage(browser.encode(), orjson.dumps(row_out))


flow = Dataflow("browser_statistics")
source = KafkaSource(BROKERS, [os.environ["BENCH_TOPIC"]], tail=False, batch_size=5000)
visits = op.flat_map_batch("decode", op.input("visits", flow, source), decode)
clock = EventClock(lambda at: at, wait_for_system_duration=timedelta(minutes=20))
windower = TumblingWindower(length=timedelta(minutes=5), align_to=START)
stats = fold_window("stats", visits, clock, windower, lambda: (0, None), add, merge, ordered=False)
kop.output("out", op.map("message", stats.down, to_message), brokers=BROKERS, topic=os.environ["BENCH_OUT"])
atexit.register(lambda: print(json.dumps({"ready_at": seen["first"], "done_at": time.time()})))
