"""What each of Headwater's settings brings: all of them, then all but one, in turns.

    python -m bench --workload settings [--records 5000000] [--rounds 3] [--only all,shuffle-partitions,file-manager]

Two numbers for each: records a second in batches of 200,000, and milliseconds for a small batch of 1,000 records.
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path
from typing import Any

from bench import workload_a
from bench.broker import create_topic, delete_topics, visits_topic
from bench.contender import Arena, Command, Contender, chosen, program, run_to_end, take_turns
from bench.spark_times import stream_times
from bench.words import best, markdown, measured_on, median, number

STATE = "spark.sql.streaming.stateStore"
CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
SMALL_RECORDS = 40_000
SMALL_BATCH = 1_000
LIMIT_SECONDS = 900.0

BY_FUNCTIONS = "by functions"  # not a setting: what happens in a JVM without Headwater's jar

# Names with spark. are settings of the session, those with kafka. options of the source.
WITHOUT: dict[str, tuple[str, tuple[str, ...]]] = {
    "all": ("Headwater as it is", ()),
    "shuffle-partitions": ("200 shuffle partitions", ("spark.sql.shuffle.partitions=200",)),
    "rocksdb": (
        "HDFS-backed state instead of RocksDB",
        (f"{STATE}.providerClass=org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",),
    ),
    "changelog": ("whole snapshots instead of changelogs", (f"{STATE}.rocksdb.changelogCheckpointing.enabled=false",)),
    "file-manager": (
        "Spark's usual checkpoint file manager",
        (f"spark.sql.streaming.checkpointFileManagerClass={CHECKPOINTING}.FileContextBasedCheckpointFileManager",),
    ),
    "chmod": (
        "a chmod process for every file",
        ("spark.hadoop.fs.file.impl=org.apache.hadoop.fs.LocalFileSystem",),
    ),
    "adaptive": ("adaptive execution on", ("spark.sql.adaptive.enabled=true",)),
    "parallel-gc": ("G1 instead of ParallelGC", ("spark.driver.extraJavaOptions=-XX:-UseParallelGC -XX:+UseG1GC",)),
    "compiler": (
        "Java's second compiler as eager as it is",
        (
            "spark.driver.extraJavaOptions=-XX:Tier4InvocationThreshold=5000 -XX:Tier4MinInvocationThreshold=600 "
            "-XX:Tier4CompileThreshold=15000 -XX:Tier4BackEdgeThreshold=40000",
        ),
    ),
    "interpreted": (
        "projections and predicates interpreted, not compiled",
        ("spark.sql.codegen.factoryMode=NO_CODEGEN",),
    ),
    "memory": ("1 GB for the JVM instead of 2", ("spark.driver.memory=1g",)),
    "ui": ("Spark's own page on", ("spark.ui.enabled=true",)),
    "json": ("JSON by Spark's functions", (BY_FUNCTIONS,)),
    "kafka-wait": ("Kafka's wait for records", ("kafka.fetch.max.wait.ms=500",)),
    "kafka-poll": ("500 records a poll", ("kafka.max.poll.records=500",)),
    "kafka-fetch": ("1 MB a fetch", ("kafka.max.partition.fetch.bytes=1048576",)),
}


def contenders(batch: int) -> list[Contender]:
    def command(arena: Arena, settings: tuple[str, ...]) -> Command:
        words = [word for setting in settings if setting.startswith("spark.") for word in ("--conf", setting)]
        options = [setting for setting in settings if setting.startswith("kafka.")]
        source = "".join(f"&{option}" for option in [f"maxOffsetsPerTrigger={batch}", *options])
        usual = workload_a.headwater(arena, "--trigger", "available-now", *words, source=source)
        return program("by_functions.py", *usual.words[1:]) if BY_FUNCTIONS in settings else usual

    return [
        Contender(slug, name, "", lambda arena, settings=settings: command(arena, settings))
        for slug, (name, settings) in WITHOUT.items()
    ]


def run(bootstrap: str, work: Path, *, records: int, rounds: int, only: list[str]) -> dict[str, Any]:
    """Both measures for every choice of settings."""
    large = visits_topic(bootstrap, records)
    small = visits_topic(bootstrap, SMALL_RECORDS)

    def drained(contender: Contender, topic: str, size: int) -> tuple[float, ...]:
        arena = Arena(work / "run", bootstrap, topic, f"bench-settings-{contender.slug}", size)
        delete_topics(bootstrap, arena.out)
        create_topic(bootstrap, arena.out)
        try:
            run_to_end(contender, arena, seconds=LIMIT_SECONDS)
            return stream_times(arena.checkpoint).batch_seconds
        finally:
            delete_topics(bootstrap, arena.out)
            shutil.rmtree(arena.folder, ignore_errors=True)

    little = {one.slug: one for one in contenders(SMALL_BATCH)}

    def run_once(contender: Contender, _: int) -> dict[str, Any]:
        whole = sum(drained(contender, large, records))
        batches = drained(little[contender.slug], small, SMALL_RECORDS)
        warm = batches[len(batches) // 4 :]
        return {"records_per_second": round(records / whole), "small_batch_ms": round(statistics.median(warm) * 1000)}

    rows = take_turns(chosen(contenders(workload_a.BATCH), only), rounds, run_once)
    return {"records": records, "contenders": rows}


def table(result: dict[str, Any]) -> str:
    whole = next((row for row in result["contenders"] if row["slug"] == "all"), None)
    rows = []
    for row in result["contenders"]:
        speed, small = median(row, "records_per_second"), median(row, "small_batch_ms")
        against = median(whole, "records_per_second") if whole else None
        ratio = f"{speed / against:.2f}" if speed and against else ""
        rows.append(
            (row["name"], number(speed), number(best(row, "records_per_second")), ratio, number(small))
            if row["runs"]
            else (row["name"], "did not run", "", "", "")
        )
    head = ("everything as it is, but", "records/s: median", "best", "of the whole", "ms for 1,000 records")
    title = (
        f"**Settings, one at a time**: the stateful browser statistics over {result['records']:,} visits in batches of "
        f"{workload_a.BATCH:,}, and the median small batch of {SMALL_BATCH:,}."
    )
    return "\n\n".join([title, markdown(head, rows), measured_on(result)])


def summary(result: dict[str, Any]) -> str:
    return f"settings: {len(result['contenders'])} choices measured"


def plots(result: dict[str, Any]) -> dict[str, str]:  # noqa: ARG001  one of the reports
    return {}
