"""Where dropped records are kept: a topic, or a folder of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from headwater.core.errors import UsageProblem
from headwater.jobs.endpoints import Console, Files, Kafka
from headwater.jobs.uris import sink_from_uri


def save_records(spark: SparkSession, records: Sequence[dict[str, Any]], uri: str) -> None:
    """Each record as JSON with its reason and position, keyed by the position: saving it twice can be told apart."""
    sink = sink_from_uri(uri, Console())
    if not records:
        return
    rows = [(position_key(record), json.dumps(record, ensure_ascii=False)) for record in records]
    frame = spark.createDataFrame(rows, "key STRING, value STRING")
    match sink:
        case Kafka():
            options = {"kafka.bootstrap.servers": sink.servers, "topic": sink.topic, **sink.options}
            frame.write.format("kafka").options(**options).save()
        case Files():
            frame.select("value").coalesce(1).write.mode("append").text(sink.path)
        case _:
            raise UsageProblem(
                "bad-option",
                f"dropped records cannot be saved to {sink.kind}",
                remedy="kafka://HOST:PORT/TOPIC or files:DIR",
            )


def position_key(record: dict[str, Any]) -> str:
    """The same record has the same key whenever it is saved."""
    if record["kind"] == "kafka":
        return f"{record['topic']}/{record['partition']}/{record['offset']}"
    return f"{record['path']}:{record['line']}"
