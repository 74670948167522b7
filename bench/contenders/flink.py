"""Browser statistics in PyFlink: Flink SQL, checkpoints every ten seconds, and Flink's default state on the heap.

With ``--updates``, every record emits a new row, as the latency workload needs; without it, each window is emitted once,
when it is complete.
"""

from __future__ import annotations

import argparse
import json
import time

from pyflink.table import EnvironmentSettings, TableEnvironment

options = argparse.ArgumentParser()
options.add_argument("--bootstrap", required=True)
options.add_argument("--topic", required=True)
options.add_argument("--out", required=True)
options.add_argument("--checkpoint", required=True)
options.add_argument("--jars", required=True)
options.add_argument("--updates", action="store_true")
chosen = options.parse_args()

tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
settings = tables.get_config()
settings.set("pipeline.jars", ";".join(f"file://{jar}" for jar in chosen.jars.split(",")))
settings.set("parallelism.default", "2")
settings.set("table.local-time-zone", "UTC")
settings.set("execution.checkpointing.interval", "10 s")
settings.set("execution.checkpointing.storage", "filesystem")
settings.set("execution.checkpointing.dir", f"file://{chosen.checkpoint}")

bounded = "" if chosen.updates else "'scan.bounded.mode' = 'latest-offset',"
tables.execute_sql(f"""
    CREATE TABLE visits (
        userId INT, page STRING, eventTime TIMESTAMP_LTZ(3), browser STRING,
        WATERMARK FOR eventTime AS eventTime - INTERVAL '20' MINUTES
    ) WITH (
        'connector' = 'kafka', 'topic' = '{chosen.topic}', 'properties.bootstrap.servers' = '{chosen.bootstrap}',
        'properties.group.id' = '{chosen.out}', 'scan.startup.mode' = 'earliest-offset', {bounded}
        'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'
    )""")
key = ", PRIMARY KEY (browser, `start`) NOT ENFORCED" if chosen.updates else ""
connector = (
    "'connector' = 'upsert-kafka', 'key.format' = 'json'"
    if chosen.updates
    else "'connector' = 'kafka', 'key.format' = 'raw', 'key.fields' = 'browser'"
)
tables.execute_sql(f"""
    CREATE TABLE stats (
        browser STRING, `start` BIGINT, `count` BIGINT, `last` TIMESTAMP_LTZ(3){key}
    ) WITH (
        {connector}, 'topic' = '{chosen.out}', 'properties.bootstrap.servers' = '{chosen.bootstrap}',
        'value.format' = 'json', 'value.json.timestamp-format.standard' = 'ISO-8601'
    )""")
if chosen.updates:
    query = """
        SELECT browser, `start`, COUNT(*), MAX(eventTime)
        FROM (SELECT browser, CAST(eventTime AS TIMESTAMP_LTZ(3)) AS eventTime,
                     UNIX_TIMESTAMP(CAST(eventTime AS STRING)) / 300 * 300000 AS `start` FROM visits)
        GROUP BY browser, `start`"""
else:
    query = """
        SELECT browser, UNIX_TIMESTAMP(CAST(window_start AS STRING)) * 1000, COUNT(*), MAX(CAST(eventTime AS TIMESTAMP_LTZ(3)))
        FROM TABLE(TUMBLE(TABLE visits, DESCRIPTOR(eventTime), INTERVAL '5' MINUTES))
        GROUP BY browser, window_start, window_end"""
job = tables.execute_sql(f"INSERT INTO stats {query}")
client = job.get_job_client()
while client.get_job_status().result().name not in {"RUNNING", "FINISHED", "FAILED"}:
    time.sleep(0.02)
ready_at = time.time()
job.wait()
print(json.dumps({"ready_at": ready_at, "done_at": time.time()}))
