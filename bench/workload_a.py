"""Workload A, throughput: visits in Kafka to browser statistics per 5-minute window in Kafka."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

from bench import oracle
from bench.broker import HEADWATER, create_topic, delete_topics, visits_topic
from bench.contender import PROGRAMS, UTC, Arena, Command, Contender, Failed, chosen, program, run_to_end, take_turns
from bench.environments import PACKAGES, compiled, jars_of, python_of
from bench.spark_times import stream_times
from headwater.jars.resolve import jar_paths

BATCH = 200_000
LIMIT_SECONDS = 1200.0


def spark_jars() -> str:
    return ",".join(str(path) for path in jar_paths("spark"))


def _kafka(arena: Arena) -> list[str]:
    return ["--bootstrap", arena.bootstrap, "--topic", arena.topic]


def tutorial(arena: Arena, *more: str) -> Command:
    options = ["--out", arena.out, "--checkpoint", str(arena.checkpoint), "--jars", spark_jars()]
    return program("tutorial.py", *_kafka(arena), *options, *more)


def headwater(
    arena: Arena, *more: str, source: str = "", sink: str = "", job: str = "browser-stats-stateful"
) -> Command:
    words = [
        HEADWATER,
        "run",
        job,
        "--source",
        f"kafka://{arena.bootstrap}/{arena.topic}?startingOffsets=earliest{source}",
    ]
    words += ["--sink", f"kafka://{arena.bootstrap}/{arena.out}{sink}", "--checkpoint", str(arena.checkpoint), *more]
    return Command(words, UTC)


def _drained(arena: Arena, source: str = "") -> Command:
    return headwater(arena, "--trigger", "available-now", source=source)


def _into_nothing(arena: Arena, *more: str) -> Command:
    return program("into_nothing.py", *_kafka(arena), "--checkpoint", str(arena.checkpoint), *more)


def _batch(arena: Arena) -> Command:
    return program("spark_batch.py", *_kafka(arena), "--out", arena.out, "--jars", spark_jars())


def flink(arena: Arena, *more: str) -> Command:
    jars = ",".join(str(path) for path in jars_of("flink"))
    options = ["--out", arena.out, "--checkpoint", str(arena.checkpoint), "--jars", jars]
    command = program("flink.py", *_kafka(arena), *options, *more, python=python_of("flink"))
    return Command(command.words, {"TZ": "UTC"})


def kafka_streams(arena: Arena, threads: int, records: int) -> Command:
    numbers = [str(threads), str(records)]
    words = ["java", "-cp", compiled("StreamsStats"), "StreamsStats"]
    return Command([*words, arena.bootstrap, arena.topic, arena.out, str(arena.folder / "state"), *numbers])


def _bytewax(arena: Arena, file: str, *, recovery: bool = False) -> Command:
    python = python_of("bytewax")
    where = {"TZ": "UTC", "BENCH_BOOTSTRAP": arena.bootstrap, "BENCH_TOPIC": arena.topic, "BENCH_OUT": arena.out}
    flow = f"{PROGRAMS / file}:flow"
    if not recovery:
        return Command([python, "-m", "bytewax.run", flow], where)
    store = str(arena.folder / "recovery")
    made = f"mkdir -p {store} && {python} -m bytewax.recovery {store} 1"
    return Command(["sh", "-c", f"{made} && exec {python} -m bytewax.run -r {store} -s 10 -b 0 {flow}"], where)


def _peer(name: str, file: str, arena: Arena, **env: str) -> Command:
    options = ["--out", arena.out, "--state", str(arena.folder / "state")]
    command = program(file, *_kafka(arena), *options, python=python_of(name))
    return Command(command.words, {"TZ": "UTC", **env})


def _version(peer: str) -> str:
    return PACKAGES[peer][0].partition("==")[2]


CONTENDERS = (
    Contender("headwater", "Headwater, one batch", "durable: RocksDB and changelog", _drained),
    Contender(
        "headwater-200k",
        "Headwater, batches of 200,000",
        "durable: RocksDB and changelog",
        lambda arena: _drained(arena, f"&maxOffsetsPerTrigger={BATCH}"),
    ),
    Contender("tutorial", "tutorial PySpark, one batch", "durable: HDFS-backed", tutorial),
    Contender(
        "tutorial-200k",
        "tutorial PySpark, batches of 200,000",
        "durable: HDFS-backed",
        lambda arena: tutorial(arena, "--max-offsets", str(BATCH)),
    ),
    Contender("spark-batch", "Spark batch job", "none: a batch job", _batch),
    Contender(
        "nothing-json", "Kafka and from_json into nothing", "none", lambda arena: _into_nothing(arena, "--decode")
    ),
    Contender(
        "nothing-json-tuned",
        "Kafka and from_json into nothing, Headwater's consumer options",
        "none",
        lambda arena: _into_nothing(arena, "--decode", "--tuned"),
    ),
    Contender("nothing", "Kafka into nothing", "none", _into_nothing),
    Contender("flink", f"PyFlink {_version('flink')}", "durable: heap, checkpoints every 10 s", flink),
    Contender(
        "streams-1",
        "Kafka Streams 4.3.1, 1 thread",
        "durable: RocksDB and changelog topic",
        lambda arena: kafka_streams(arena, 1, arena.records),
    ),
    Contender(
        "streams-2",
        "Kafka Streams 4.3.1, 2 threads",
        "durable: RocksDB and changelog topic",
        lambda arena: kafka_streams(arena, 2, arena.records),
    ),
    Contender(
        "bytewax",
        f"Bytewax {_version('bytewax')}",
        "none",
        lambda arena: _bytewax(arena, "bytewax_stats.py"),
        most_records=1_000_000,
    ),
    Contender(
        "bytewax-hand",
        f"Bytewax {_version('bytewax')}, windows by hand",
        "none",
        lambda arena: _bytewax(arena, "bytewax_by_hand.py"),
    ),
    Contender(
        "bytewax-hand-recovery",
        f"Bytewax {_version('bytewax')}, windows by hand, recovery on",
        "durable: snapshots every 10 s",
        lambda arena: _bytewax(arena, "bytewax_by_hand.py", recovery=True),
    ),
    Contender(
        "pathway",
        f"Pathway {_version('pathway')}, 2 threads",
        "durable: snapshots every 10 s",
        lambda arena: _peer("pathway", "pathway_stats.py", arena, PATHWAY_THREADS="2"),
    ),
    Contender(
        "quix",
        f"Quix Streams {_version('quixstreams')}",
        "durable: RocksDB and changelog topic",
        lambda arena: _peer("quixstreams", "quix.py", arena),
        most_records=500_000,
    ),
)


def run(bootstrap: str, work: Path, *, records: int, rounds: int, only: list[str]) -> dict[str, Any]:
    """All contenders in turns on one topic (the slowest on a shorter one); every answer is judged."""
    wanted: dict[str, tuple[Path, dict[oracle.Key, oracle.Bounds]]] = {}

    def run_once(contender: Contender, number: int) -> dict[str, Any]:
        size = min(records, contender.most_records or records)
        topic = visits_topic(bootstrap, size)
        if topic not in wanted:
            file = oracle.records_of(bootstrap, topic, work / "oracle")
            wanted[topic] = file, oracle.bounds(file)
        arena = Arena(work / "run", bootstrap, topic, f"bench-a-{contender.slug}-{number}", size)
        return measured_run(contender, arena, *wanted[topic])

    return {
        "records": records,
        "batch_records": BATCH,
        "contenders": take_turns(chosen(CONTENDERS, only), rounds, run_once),
    }


def measured_run(
    contender: Contender, arena: Arena, records: Path, bounds: dict[oracle.Key, oracle.Bounds]
) -> dict[str, Any]:
    """One run of one contender: what it cost, and whether it is right."""
    delete_topics(arena.bootstrap, arena.out)
    create_topic(arena.bootstrap, arena.out)
    try:
        measured = run_to_end(contender, arena, seconds=LIMIT_SECONDS)
        is_stream = (arena.checkpoint / "offsets").is_dir()
        said = vars(stream_times(arena.checkpoint)) if is_stream else measured.said
        if "done_at" not in said:
            raise Failed(f"did not say when it began and ended: {json.dumps(said)}")
        found: dict[str, Any] = {
            "records": arena.records,
            "start_seconds": round(said["ready_at"] - measured.started_at, 2),
            "seconds": round(said["done_at"] - said["ready_at"], 2),
            "records_per_second": round(arena.records / (said["done_at"] - said["ready_at"])),
            "with_start": round(arena.records / (said["done_at"] - measured.started_at)),
            "cpu_seconds": measured.cpu_seconds,
            "peak_megabytes": measured.peak_megabytes,
        }
        if is_stream:
            found["batches"] = said["batches"]
        if not contender.slug.startswith("nothing"):
            answer = oracle.written(arena.bootstrap, arena.out)
            found |= oracle.judge(answer, bounds)
            if is_stream:
                found["exact"] = answer == oracle.exact_answer(records, arena.checkpoint)
                found["correct"] = found["correct"] and found["exact"]
        return found
    finally:
        delete_topics(arena.bootstrap, arena.out)
        with contextlib.suppress(OSError):
            shutil.rmtree(arena.folder)
