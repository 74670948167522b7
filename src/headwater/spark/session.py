"""The Spark session, with the settings that an expert would choose for streams."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.logs import CheckpointLogs
from headwater.core.errors import SetupProblem
from headwater.jars.java import require_java
from headwater.jars.resolve import are_here, jar_paths
from headwater.spark.class_archive import archive_file, options_for
from headwater.spark.internals.gateway import conf_of_spark_submit, starting_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
OWN_JAR = Path(__file__).parent / "internals" / "headwater-spark.jar"
CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
# The second compiler waits ten times as long as it would: on few cores it takes one of them from small batches for minutes,
# while the loops over many records reach these counts at once.
PATIENT_COMPILER = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)


def default_conf(master: str, *, own_jvm: bool = True, own_python: bool = True) -> dict[str, str]:
    """What Headwater sets where the user sets nothing; docs/reference/configuration.md says why, line by line.

    A JVM that others started does not have our jar, and workers of another Python may not have this package.
    """
    conf = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(_shuffle_partitions(master)),
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # Spark's default manager starts a shell command for each permission change on a local disk; our lease does
        # what its stricter rename would do against a second writer.
        "spark.sql.streaming.checkpointFileManagerClass": f"{CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
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
    if _on_this_machine(master):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if master.startswith("local"):
        conf |= {"spark.driver.memory": "2g"}
        if own_jvm:
            conf |= {"spark.hadoop.fs.file.impl": "headwater.hadoop.ShellFreeLocalFileSystem"}
            if own_python:
                conf |= {"spark.python.daemon.module": "headwater.spark.internals.workers.daemon"}
    return conf


def _on_this_machine(master: str) -> bool:
    return master.startswith("local") or (urlsplit(master).hostname or "") in {"127.0.0.1", "localhost"}


def _shuffle_partitions(master: str) -> int:
    """Few: every one of them is a state store and a task in every batch. The first run of a checkpoint fixes them."""
    return max(2, min(8, os.cpu_count() or 2)) if master.startswith("local") else 8


def start_session(
    name: str,
    *,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    jars: Sequence[str] = ("spark",),
    log: Path | None = None,
) -> SparkSession:
    """Start Spark, or join the JVM of a surrounding spark-submit. ``jars`` names configurations of ``ivy.xml``."""
    java = require_java()
    log = (log or Path(tempfile.gettempdir()) / f"headwater-{os.getpid()}.log").absolute()
    log.parent.mkdir(parents=True, exist_ok=True)
    _same_python_and_clock_for_workers()
    _quiet_python_side()
    from pyspark.sql import SparkSession  # noqa: PLC0415  the JVM's environment has to be set first

    submitted = conf_of_spark_submit()
    master = submitted.get("spark.master", master)
    if _on_this_machine(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # Spark's UI, when it is asked for, asks nothing else
    given = {**submitted, "spark.master": master, **(conf or {})}
    settings = default_conf(master, own_jvm=not submitted, own_python=_workers_have_our_python(given)) | given
    is_ours = not submitted and master.startswith("local")
    paths = own_class_path(jars) if is_ours else [str(path) for name in jars for path in jar_paths(name)]
    if not submitted and not is_ours:
        paths.append(str(OWN_JAR))
    if not submitted:
        archive = options_for(archive_file(java, paths)) if is_ours else []
        settings[DRIVER_OPTIONS] = " ".join([*_driver_options(log), *archive, settings.get(DRIVER_OPTIONS, "")]).strip()
        _add_jars(settings, paths)
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _explained_start(log), starting_jvm(log):
        session = builder.getOrCreate()
    if submitted:
        for path in paths:
            session.sql(f"ADD JAR '{path}'")
    return session


@contextmanager
def _explained_start(log: Path) -> Iterator[None]:
    from headwater.spark.failures import SPARK_ERRORS, root_cause  # noqa: PLC0415  imports pyspark

    length = log.stat().st_size if log.exists() else 0
    try:
        yield
    except SPARK_ERRORS as error:
        complaint = _first_complaint(log.read_text(errors="replace")[length:])
        raise SetupProblem(
            "spark-start",
            "Spark does not start",
            evidence={"cause": complaint or root_cause(error), "log": log},
            remedy="check --master and --conf; the log has the whole story",
        ) from error


def _first_complaint(log: str) -> str | None:
    """What a JVM that did not come up said first."""
    for line in log.splitlines():
        if found := re.match(r"(?:Exception in thread \S+ )?(?:[\w.]+\.)?(\w*(?:Exception|Error|Invalid)\b.*)", line):
            return found[1]
    return None


def own_class_path(jars: Sequence[str] = ("spark",)) -> list[str]:
    """The jars of a JVM of ours on this machine. Kafka's come along where they are: one class archive then serves all jobs."""
    kafka = ["spark"] if "spark" in jars or are_here("spark") else []
    names = [*kafka, *(name for name in jars if name != "spark")]
    return [str(OWN_JAR), *(str(path) for name in names for path in jar_paths(name))]


def _add_jars(settings: dict[str, str], paths: Sequence[str]) -> None:
    local = settings["spark.master"].startswith("local")
    where, separator = ("spark.driver.extraClassPath", os.pathsep) if local else ("spark.jars", ",")
    if paths:
        settings[where] = separator.join([*paths, *filter(None, [settings.get(where)])])


def _driver_options(log: Path) -> list[str]:
    return [
        f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
        f"-Dheadwater.log={log}",
        "-XX:+UseParallelGC",
        *PATIENT_COMPILER,
        "-Duser.timezone=UTC",
    ]


def _same_python_and_clock_for_workers() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["TZ"] = "UTC"
    time.tzset()


def _workers_have_our_python(conf: Mapping[str, str]) -> bool:
    return conf.get("spark.pyspark.python", os.environ["PYSPARK_PYTHON"]) == sys.executable


def _quiet_python_side() -> None:
    """PySpark logs every exception that it raises, stack trace and all, and py4j every broken connection."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    for name in ("py4j", "py4j.clientserver", "py4j.java_gateway"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def stop_session(session: SparkSession) -> None:
    """Stop Spark; one that has died already is no problem any more."""
    from headwater.spark.failures import SPARK_ERRORS  # noqa: PLC0415

    with suppress(*SPARK_ERRORS, ConnectionError):
        session.stop()


@contextmanager
def temporary_settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Settings of a shared session that are taken back; a query keeps those that it started with."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


CHECKPOINT_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


@contextmanager
def in_its_format(spark: SparkSession, files: FileTree) -> Iterator[None]:
    """Have what the session starts or reads in this block use the format of a checkpoint that is there already."""
    with temporary_settings(spark, {CHECKPOINT_FORMAT: "2"} if CheckpointLogs(files).is_format_two else {}):
        yield
