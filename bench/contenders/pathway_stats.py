"""Browser statistics in Pathway over the current content of the topic, on two threads, with snapshots on disk."""

from __future__ import annotations

import argparse
import json
import time
from datetime import timedelta

import pathway as pw

options = argparse.ArgumentParser()
options.add_argument("--bootstrap", required=True)
options.add_argument("--topic", required=True)
options.add_argument("--out", required=True)
options.add_argument("--state", required=True)
chosen = options.parse_args()


class Visit(pw.Schema):
    eventTime: str
    browser: str


kafka = {"bootstrap.servers": chosen.bootstrap, "group.id": chosen.out, "auto.offset.reset": "earliest"}
lines = pw.io.kafka.read(kafka, topic=chosen.topic, format="json", schema=Visit, mode="static", name="visits")
visits = lines.select(pw.this.browser, at=pw.this.eventTime.dt.strptime("%Y-%m-%dT%H:%M:%S.%fZ"))
stats = visits.windowby(
    visits.at,
    window=pw.temporal.tumbling(timedelta(minutes=5)),
    instance=visits.browser,
    behavior=pw.temporal.common_behavior(cutoff=timedelta(minutes=20), keep_results=True),
).reduce(
    browser=pw.this._pw_instance,
    start=pw.this._pw_window_start.dt.timestamp(unit="ms"),
    count=pw.reducers.count(),
    last=pw.reducers.max(pw.this.at).dt.timestamp(unit="ms"),
)
pw.io.kafka.write(stats, {"bootstrap.servers": chosen.bootstrap}, chosen.out, format="json")
ready_at = time.time()
snapshots = pw.persistence.Config(pw.persistence.Backend.filesystem(chosen.state), snapshot_interval_ms=10_000)
pw.run(monitoring_level=pw.MonitoringLevel.NONE, persistence_config=snapshots)
print(json.dumps({"ready_at": ready_at, "done_at": time.time()}))
