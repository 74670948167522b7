"""Settings: the effect of each of Headwater's defaults, measured by putting one at a time back to Spark's.

    python -m bench --workload settings [--records 5000000] [--rounds 3] [--only all,shuffle-partitions,file-manager]

There are two numbers for each: records a second in batches of 200,000, and milliseconds for a small batch of 1,000 records.
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path
from typing import Any

from bench.broker import create_topic, delete_topics, ensure_visits_topic
from bench.checkpoints import read_stream_times
from bench.contender import Command, Contender, RunContext, program, run_rounds, run_to_end, select
from bench.engines import headwater
from bench.tables import best, describe_conditions, format_number, markdown_table, median, wrap
from bench.throughput import BATCH

STATE = "spark.sql.streaming.stateStore"
CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
SMALL_RECORDS = 40_000
SMALL_BATCH = 1_000
LIMIT_SECONDS = 900.0

WITHOUT_JAR = "without jar"  # not a setting: Headwater's behavior in a JVM without its jar

# Names with the prefix spark. are session settings, those with kafka. are source options.
SPARK_DEFAULTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "all": ("all of Headwater's defaults", ()),
    "shuffle-partitions": ("200 shuffle partitions", ("spark.sql.shuffle.partitions=200",)),
    "rocksdb": (
        "HDFS-backed state instead of RocksDB",
        (f"{STATE}.providerClass=org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",),
    ),
    "changelog": ("full snapshots instead of changelogs", (f"{STATE}.rocksdb.changelogCheckpointing.enabled=false",)),
    "file-manager": (
        "Spark's default checkpoint file manager",
        (f"spark.sql.streaming.checkpointFileManagerClass={CHECKPOINTING}.FileContextBasedCheckpointFileManager",),
    ),
    "chmod": (
        "a chmod process for every file",
        ("spark.hadoop.fs.file.impl=org.apache.hadoop.fs.LocalFileSystem",),
    ),
    "adaptive": ("adaptive execution on", ("spark.sql.adaptive.enabled=true",)),
    "parallel-gc": ("G1 instead of ParallelGC", ("spark.driver.extraJavaOptions=-XX:-UseParallelGC -XX:+UseG1GC",)),
    "compiler": (
        "the JIT compiler's default thresholds",
        (
            "spark.driver.extraJavaOptions=-XX:Tier4InvocationThreshold=5000 -XX:Tier4MinInvocationThreshold=600 "
            "-XX:Tier4CompileThreshold=15000 -XX:Tier4BackEdgeThreshold=40000",
        ),
    ),
    "interpreted": (
        "projections and predicates interpreted, not compiled",
        ("spark.sql.codegen.factoryMode=NO_CODEGEN",),
    ),
    "memory": ("1 GB of JVM memory instead of 2", ("spark.driver.memory=1g",)),
    "ui": ("Spark UI on", ("spark.ui.enabled=true",)),
    "json": ("JSON decoded with Spark's functions", (WITHOUT_JAR,)),
    "kafka-wait": ("Kafka's default fetch wait (500 ms)", ("kafka.fetch.max.wait.ms=500",)),
    "kafka-poll": ("500 records per poll", ("kafka.max.poll.records=500",)),
    "kafka-fetch": ("1 MB per fetch", ("kafka.max.partition.fetch.bytes=1048576",)),
}


def contenders(batch: int) -> list[Contender]:
    def command(context: RunContext, settings: tuple[str, ...]) -> Command:
        conf = [word for setting in settings if setting.startswith("spark.") for word in ("--conf", setting)]
        options = [setting for setting in settings if setting.startswith("kafka.")]
        source = "".join(f"&{option}" for option in [f"maxOffsetsPerTrigger={batch}", *options])
        usual = headwater(context, "--trigger", "available-now", *conf, source=source)
        return program("without_jar.py", *usual.argv[1:]) if WITHOUT_JAR in settings else usual

    return [
        Contender(slug, name, "", lambda context, settings=settings: command(context, settings))
        for slug, (name, settings) in SPARK_DEFAULTS.items()
    ]


def run(bootstrap: str, work: Path, *, records: int, rounds: int, only: list[str]) -> dict[str, Any]:
    """Measure throughput and the time of a small batch for every choice of settings."""
    large = ensure_visits_topic(bootstrap, records)
    small = ensure_visits_topic(bootstrap, SMALL_RECORDS)

    def measure_batches(contender: Contender, topic: str, size: int) -> tuple[float, ...]:
        context = RunContext(work / "run", bootstrap, topic, f"bench-settings-{contender.slug}", size)
        delete_topics(bootstrap, context.out)
        create_topic(bootstrap, context.out)
        try:
            run_to_end(contender, context, seconds=LIMIT_SECONDS)
            return read_stream_times(context.checkpoint).batch_seconds
        finally:
            delete_topics(bootstrap, context.out)
            shutil.rmtree(context.folder, ignore_errors=True)

    small_batch_contenders = {one.slug: one for one in contenders(SMALL_BATCH)}

    def run_once(contender: Contender, _: int) -> dict[str, Any]:
        seconds = sum(measure_batches(contender, large, records))
        batches = measure_batches(small_batch_contenders[contender.slug], small, SMALL_RECORDS)
        warm = batches[len(batches) // 4 :]
        return {"records_per_second": round(records / seconds), "small_batch_ms": round(statistics.median(warm) * 1000)}

    rows = run_rounds(select(contenders(BATCH), only), rounds, run_once)
    return {"records": records, "contenders": rows}


def format_table(result: dict[str, Any]) -> str:
    baseline = next((row for row in result["contenders"] if row["slug"] == "all"), None)
    rows = []
    for row in result["contenders"]:
        speed, small = median(row, "records_per_second"), median(row, "small_batch_ms")
        reference = median(baseline, "records_per_second") if baseline else None
        ratio = f"{speed / reference:.2f}" if speed and reference else ""
        rows.append(
            (
                row["name"],
                format_number(speed),
                format_number(best(row, "records_per_second")),
                ratio,
                format_number(small),
            )
            if row["runs"]
            else (row["name"], "did not run", "", "", "")
        )
    head = ("changed default", "records/s: median", "best", "relative", "ms for 1,000 records")
    title = (
        f"The stateful browser statistics over {result['records']:,} visits in batches of {BATCH:,}, and the median small "
        f"batch of {SMALL_BATCH:,} records. In a run this short, JIT compilation takes a larger share than in the throughput "
        "workload, so records/s are lower."
    )
    return "\n\n".join([wrap(title), markdown_table(head, rows), describe_conditions(result)])


def summarize(result: dict[str, Any]) -> str:
    measured = [row for row in result["contenders"] if row["runs"]]
    return (
        f"settings: {len(measured)} of {len(result['contenders'])} settings measured over {result['records']:,} visits"
    )


def draw_plots(result: dict[str, Any]) -> dict[str, str]:  # noqa: ARG001  the interface of a workload
    return {}
