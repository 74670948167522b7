"""The Spark session, with settings that suit streams."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit
from weakref import WeakSet

from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.logs import CheckpointLogs
from headwater.core.errors import SetupProblem
from headwater.jars.java import require_java
from headwater.jars.own_jar import HEADWATER_JAR
from headwater.jars.resolve import is_cached, jar_paths
from headwater.jobs.job import Job
from headwater.spark.class_archive import archive_file, options_for
from headwater.spark.failures import SPARK_ERRORS, root_cause
from headwater.spark.internals import workers
from headwater.spark.internals.file_manager import file_manager_class
from headwater.spark.internals.gateway import conf_of_spark_submit, has_class, jvm_has_class, starting_jvm
from headwater.spark.internals.hadoop_defaults import remove_unused_defaults
from headwater.spark.table_formats import DELTA_EXTENSION, ICEBERG_CATALOG, format_settings, formats_of

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
LOCAL_FILE_SYSTEM = "headwater.hadoop.ShellFreeLocalFileSystem"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
DEFAULT_MASTER = "local[*]"
# A class of each jar configuration that a session may lack.
CLASS_IN_JARS = {
    "spark": "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    "s3": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "postgres": "org.postgresql.Driver",
    "delta": DELTA_EXTENSION,
    "iceberg": ICEBERG_CATALOG,
}
DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
# Ten times the default thresholds of the optimizing compiler. On few cores it would occupy one of them for minutes while
# batches are small; loops over many records reach even these counts quickly.
COMPILER_OPTIONS = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)


def default_conf(master: str, *, own_jvm: bool = True, own_python: bool = True) -> dict[str, str]:
    """Return Headwater's defaults; docs/reference/configuration.md explains each of them.

    Without ``own_jvm``, another program started the JVM, which lacks Headwater's jar. Without ``own_python``, workers
    run another Python, which may lack this package.
    """
    conf = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(_shuffle_partitions(master)),
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.adaptive.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.ui.retainedExecutions": "20",
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.warehouse.dir": str(Path(".headwater/warehouse").absolute()),
        "spark.executorEnv.TZ": "UTC",
    }
    if manager := file_manager_class():
        conf |= {"spark.sql.streaming.checkpointFileManagerClass": manager}
    if _on_this_machine(master):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if master.startswith("local"):
        conf |= {"spark.driver.memory": "2g"}
        if own_jvm:
            conf |= {"spark.hadoop.fs.file.impl": LOCAL_FILE_SYSTEM}
            if own_python and workers.probe():
                conf |= workers.LOCAL_SETTINGS
    elif master.startswith("spark://") and own_jvm and workers.probe():
        conf |= workers.CLUSTER_SETTINGS
    return conf


def _on_this_machine(master: str) -> bool:
    return master.startswith("local") or (urlsplit(master).hostname or "") in {"127.0.0.1", "localhost"}


def _shuffle_partitions(master: str) -> int:
    """Return a small number: each partition adds a state store, and a task to every batch. A checkpoint's first run fixes it."""
    return max(2, min(8, os.cpu_count() or 2)) if master.startswith("local") else 8


def start_session(
    name: str,
    *,
    master: str = DEFAULT_MASTER,
    conf: Mapping[str, str] | None = None,
    jars: Sequence[str] = ("spark",),
    log: Path | None = None,
) -> SparkSession:
    """Start Spark, or use the JVM of a surrounding spark-submit. ``jars`` names configurations of ``ivy.xml``."""
    java = require_java()
    log = (log or Path(tempfile.gettempdir()) / f"headwater-{os.getpid()}.log").absolute()
    log.parent.mkdir(parents=True, exist_ok=True)
    _set_worker_environment()
    _silence_python_loggers()
    submitted = conf_of_spark_submit()
    # The JVM of a spark-submit, or of a session that the program has stopped, lacks Headwater's jar and options.
    own_jvm = not submitted and jvm_has_class(LOCAL_FILE_SYSTEM)
    master = submitted.get("spark.master", master)
    if _on_this_machine(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # Spark's UI reads its address from nowhere else
    given = {**submitted, "spark.master": master, **(conf or {})}
    defaults = default_conf(master, own_jvm=own_jvm, own_python=_workers_use_this_python(given))
    settings = defaults | given
    if len(plugins := {one["spark.plugins"] for one in (defaults, given) if one.get("spark.plugins")}) > 1:
        settings["spark.plugins"] = ",".join(sorted(plugins))
    settings |= format_settings(jars, settings, settings["spark.sql.shuffle.partitions"])
    if own_jvm:
        class_path = local_class_path(jars) if master.startswith("local") else []
        archive = options_for(archive_file(java, class_path)) if class_path else []
        settings[DRIVER_OPTIONS] = " ".join([*_driver_options(log), *archive, settings.get(DRIVER_OPTIONS, "")]).strip()
        others = [path for path in (*_paths(jars), str(HEADWATER_JAR)) if path not in class_path]
        _put_first(settings, "spark.driver.extraClassPath", os.pathsep, class_path)
        _put_first(settings, "spark.jars", ",", others)
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _explained_start(log), starting_jvm(log), _same_interrupt_handler():
        session = builder.getOrCreate()
    _own_contexts.add(session.sparkContext)
    remove_unused_defaults(session)
    if settings.get("spark.python.daemon.module") == workers.CLUSTER_SETTINGS["spark.python.daemon.module"]:
        session.sparkContext.environment.update(workers.python_path_on_executors(HEADWATER_JAR))
    if not own_jvm:
        add_jars(session, jars)
    return session


def _paths(jars: Sequence[str]) -> list[str]:
    return [str(path) for name in jars for path in jar_paths(name)]


def add_jars(session: SparkSession, jars: Sequence[str]) -> None:
    """Add the jars of the named configurations to a running session that lacks them."""
    for path in _paths([name for name in jars if not has_class(session, CLASS_IN_JARS[name])]):
        session.sql(f"ADD JAR '{path}'")


def jars_for(job: Job, checkpoint: str = "", dead_letters: str | None = None) -> list[str]:
    """Return the jar configurations that a job needs, so that a first run on files downloads nothing.

    ``dead_letters`` is the URI of a further sink.
    """
    ends = [*job.sources.values(), *(static.table for static in job.statics.values()), job.writes]
    paths = [checkpoint, *(getattr(end, "path", "") for end in ends)]
    more = (dead_letters or job.dead_letters or "").partition(":")[0]
    kafka = "kafka" in {more, *(end.kind for end in ends)}
    needed = {
        "spark": kafka,
        "s3": any(path.startswith("s3a://") for path in paths),
        "postgres": any(static.table.kind == "postgresql" for static in job.statics.values()),
    }
    return [*(name for name, is_needed in needed.items() if is_needed), *formats_of(job, dead_letters)]


def jars_for_location(location: str) -> list[str]:
    """Return the jar configurations with which Spark reads and writes the files of a tree."""
    return ["s3"] if location.startswith(("s3://", "s3a://")) else []


@contextmanager
def own_or_active_session(
    name: str, *, conf: Mapping[str, str] | None = None, jars: Sequence[str] = (), log: Path | None = None
) -> Iterator[SparkSession]:
    """Yield the session that this process already has, or start one and stop it at the end.

    An existing session gets the settings of ``conf`` that can be changed at run time, and UTC, while the block runs.
    """
    active = active_session()
    if active is not None:
        wanted = {"spark.sql.session.timeZone": "UTC", **(conf or {})}
        with temporary_settings(active, {key: text for key, text in wanted.items() if active.conf.isModifiable(key)}):
            yield active
        return
    session = start_session(name, conf=conf, jars=jars, log=log)
    try:
        yield session
    finally:
        stop_session(session)


def active_session() -> SparkSession | None:
    """Return the session of this process; None if there is none."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


_own_contexts: WeakSet[SparkContext] = WeakSet()


def is_own(session: SparkSession) -> bool:
    """Return whether Headwater started Spark, so that it has Headwater's settings."""
    return session.sparkContext in _own_contexts


@contextmanager
def _same_interrupt_handler() -> Iterator[None]:
    """Keep the program's handler for Ctrl-C: PySpark's own cancels the batches of all queries, which fail then."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


@contextmanager
def _explained_start(log: Path) -> Iterator[None]:
    length = log.stat().st_size if log.exists() else 0
    try:
        yield
    except SPARK_ERRORS as error:
        logged = _first_logged_error(log.read_text(errors="replace")[length:])
        raise SetupProblem(
            "spark-start",
            "Spark did not start",
            evidence={"cause": logged or root_cause(error), "log": log},
            remedy="check --master, --conf and the log",
        ) from error


def _first_logged_error(log: str) -> str | None:
    for line in log.splitlines():
        if found := re.match(r"(?:Exception in thread \S+ )?(?:[\w.]+\.)?(\w*(?:Exception|Error|Invalid)\b.*)", line):
            return found[1]
    return None


def local_class_path(jars: Sequence[str] = ("spark",)) -> list[str]:
    """Return the beginning of the class path of a JVM that Headwater starts on this machine.

    One class archive serves all jobs, because it is the same for all of them: with Kafka's jars whenever they are in the
    cache, and without those of other configurations, which Spark loads when it runs.
    """
    return [str(HEADWATER_JAR), *_paths(["spark"] if "spark" in jars or is_cached("spark") else [])]


def _put_first(settings: dict[str, str], name: str, separator: str, paths: Sequence[str]) -> None:
    if paths:
        settings[name] = separator.join([*paths, *filter(None, [settings.get(name)])])


def _driver_options(log: Path) -> list[str]:
    return [
        f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
        f"-Dheadwater.log={log}",
        "-XX:+UseParallelGC",
        *COMPILER_OPTIONS,
        "-Duser.timezone=UTC",
    ]


def _set_worker_environment() -> None:
    """Have Spark's Python workers use this interpreter and UTC."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["TZ"] = "UTC"
    time.tzset()


def _workers_use_this_python(conf: Mapping[str, str]) -> bool:
    return conf.get("spark.pyspark.python", os.environ["PYSPARK_PYTHON"]) == sys.executable


def _silence_python_loggers() -> None:
    """Silence PySpark, which logs every exception that it raises with its stack trace, and Py4J's connection errors."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415  PySpark 3.5 does not have it

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    for name in ("py4j", "py4j.clientserver", "py4j.java_gateway"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def stop_session(session: SparkSession) -> None:
    """Stop Spark, also if its process has already died."""
    with suppress(*SPARK_ERRORS, ConnectionError):
        session.stop()


@contextmanager
def temporary_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set options of a shared session while the block runs. A query keeps the options that it started with."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


CHECKPOINT_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


@contextmanager
def matching_checkpoint_format(spark: SparkSession, files: FileTree, batch: int | None = None) -> Iterator[None]:
    """Make what starts or reads inside the block use the format of an existing checkpoint, as of a batch or of the last one.

    A migration to format 2 leaves earlier batches in format 1.
    """
    logs = CheckpointLogs(files)
    commit = None if batch is None else logs.commits.get(batch)
    unique_ids = logs.is_format_two if commit is None else commit.state_unique_ids is not None
    settings = {CHECKPOINT_FORMAT: "2"} if unique_ids else {CHECKPOINT_FORMAT: "1"} if logs.is_format_two else {}
    with temporary_settings(spark, settings):
        yield
