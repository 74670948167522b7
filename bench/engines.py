"""Commands that run the engines: Headwater, tutorial PySpark, and the peers."""

from __future__ import annotations

from bench.broker import HEADWATER
from bench.contender import PROGRAMS, SPARK_ENV, Command, RunContext, program
from bench.environments import compile_peer, peer_jars, peer_python, spark_python
from headwater.jars.resolve import jar_paths


def spark_jars() -> str:
    return ",".join(str(path) for path in jar_paths("spark"))


def _kafka_options(context: RunContext) -> list[str]:
    return ["--bootstrap", context.bootstrap, "--topic", context.topic]


def tutorial(context: RunContext, *more: str) -> Command:
    options = ["--out", context.out, "--checkpoint", str(context.checkpoint), "--jars", spark_jars()]
    return program("tutorial.py", *_kafka_options(context), *options, *more)


def headwater(
    context: RunContext, *more: str, source: str = "", sink: str = "", job: str = "browser-stats-stateful"
) -> Command:
    argv = [
        HEADWATER,
        "run",
        job,
        "--source",
        f"kafka://{context.bootstrap}/{context.topic}?startingOffsets=earliest{source}",
    ]
    argv += [
        "--sink",
        f"kafka://{context.bootstrap}/{context.out}{sink}",
        "--checkpoint",
        str(context.checkpoint),
        *more,
    ]
    return Command(argv, SPARK_ENV)


def headwater_on(version: str, context: RunContext, *more: str) -> Command:
    """Run the browser statistics with another version of PySpark."""
    python = spark_python(version)
    command = headwater(context, *more)
    env = {"TZ": "UTC", "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    return Command([python, "-m", "headwater", *command.argv[1:]], env)


def headwater_drain(context: RunContext, source: str = "") -> Command:
    """Run the browser statistics over everything in the topic, then stop."""
    return headwater(context, "--trigger", "available-now", source=source)


def noop(context: RunContext, *more: str) -> Command:
    return program("noop.py", *_kafka_options(context), "--checkpoint", str(context.checkpoint), *more)


def spark_batch(context: RunContext) -> Command:
    return program("spark_batch.py", *_kafka_options(context), "--out", context.out, "--jars", spark_jars())


def flink(context: RunContext, *more: str) -> Command:
    jars = ",".join(str(path) for path in peer_jars("flink"))
    options = ["--out", context.out, "--checkpoint", str(context.checkpoint), "--jars", jars]
    command = program("flink.py", *_kafka_options(context), *options, *more, python=peer_python("flink"))
    return Command(command.argv, {"TZ": "UTC"})


def kafka_streams(context: RunContext, threads: int, records: int) -> Command:
    numbers = [str(threads), str(records)]
    argv = ["java", "-cp", compile_peer("StreamsStats"), "StreamsStats"]
    return Command([*argv, context.bootstrap, context.topic, context.out, str(context.folder / "state"), *numbers])


def bytewax(context: RunContext, file: str, *, recovery: bool = False) -> Command:
    python = peer_python("bytewax")
    env = {"TZ": "UTC", "BENCH_BOOTSTRAP": context.bootstrap, "BENCH_TOPIC": context.topic, "BENCH_OUT": context.out}
    flow = f"{PROGRAMS / file}:flow"
    if not recovery:
        return Command([python, "-m", "bytewax.run", flow], env)
    store = str(context.folder / "recovery")
    create_store = f"mkdir -p {store} && {python} -m bytewax.recovery {store} 1"
    return Command(["sh", "-c", f"{create_store} && exec {python} -m bytewax.run -r {store} -s 10 -b 0 {flow}"], env)


def pathway(context: RunContext) -> Command:
    return _python_peer("pathway", "pathway_stats.py", context, PATHWAY_THREADS="2")


def quix(context: RunContext) -> Command:
    return _python_peer("quixstreams", "quix.py", context)


def _python_peer(name: str, file: str, context: RunContext, **env: str) -> Command:
    options = ["--out", context.out, "--state", str(context.folder / "state")]
    command = program(file, *_kafka_options(context), *options, python=peer_python(name))
    return Command(command.argv, {"TZ": "UTC", **env})
