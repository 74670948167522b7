"""Browser statistics in Quix Streams, with its default state: RocksDB and changelog topics."""

from __future__ import annotations

import argparse
import json
import time
from datetime import datetime, timedelta

from quixstreams import Application
from quixstreams.dataframe.windows import Count, Max

options = argparse.ArgumentParser()
options.add_argument("--bootstrap", required=True)
options.add_argument("--topic", required=True)
options.add_argument("--out", required=True)
options.add_argument("--state", required=True)
chosen = options.parse_args()
seen = {"first": 0.0, "last": 0.0}


def event_ms(value: dict[str, str], *_: object) -> int:
    return int(datetime.fromisoformat(value["eventTime"]).timestamp() * 1000)


def record_time(*_: object) -> None:
    seen["last"] = time.time()
    seen["first"] = seen["first"] or seen["last"]


app = Application(
    broker_address=chosen.bootstrap,
    consumer_group=chosen.out,
    auto_offset_reset="earliest",
    state_dir=chosen.state,
    on_message_processed=record_time,
    loglevel="WARNING",
)
visits = app.dataframe(app.topic(chosen.topic, timestamp_extractor=event_ms))
visits["eventMs"] = visits.apply(event_ms)
per_browser = visits[["browser", "eventMs"]].group_by("browser")
windows = (
    per_browser.tumbling_window(timedelta(minutes=5), grace_ms=timedelta(minutes=20))
    .agg(count=Count(), last=Max("eventMs"))
    .current()
)
named = windows.apply(
    lambda row, key, *_: {"browser": key, "start": row["start"], "count": row["count"], "last": row["last"]},
    metadata=True,
)
named.to_topic(app.topic(chosen.out, key_serializer="json"))
app.run(timeout=8.0)
print(json.dumps({"ready_at": seen["first"], "done_at": seen["last"]}))
