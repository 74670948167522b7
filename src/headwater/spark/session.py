"""The Spark session, with the settings that an expert would choose for streams."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headwater.jars.java import require_java
from headwater.jars.resolve import jar_paths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
DRIVER_OPTIONS = "spark.driver.extraJavaOptions"


def default_conf(master: str) -> dict[str, str]:
    """What Headwater sets where the user sets nothing; docs/reference/configuration.md says why, line by line."""
    conf = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(_shuffle_partitions(master)),
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # Spark's default manager starts a shell command for each permission change on a local disk; our lease does
        # what its stricter rename would do against a second writer.
        "spark.sql.streaming.checkpointFileManagerClass": f"{CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
        # A malformed CSV record must not depend on which columns the job happens to use.
        "spark.sql.csv.parser.columnPruning.enabled": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.ui.retainedExecutions": "20",
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.warehouse.dir": str(Path(".headwater/warehouse").absolute()),
        "spark.executorEnv.TZ": "UTC",
    }
    if master.startswith("local") or (urlsplit(master).hostname or "") in {"127.0.0.1", "localhost"}:
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if master.startswith("local"):
        conf |= {"spark.driver.memory": "2g"}
    return conf


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
    """Start Spark (or join the session of a surrounding spark-submit). ``jars`` names configurations of ``ivy.xml``."""
    require_java()
    paths = [str(path) for configuration in jars for path in jar_paths(configuration)]
    log = (log or Path(tempfile.gettempdir()) / f"headwater-{os.getpid()}.log").absolute()
    log.parent.mkdir(parents=True, exist_ok=True)
    settings = {**default_conf(master), **(conf or {})}
    settings[DRIVER_OPTIONS] = " ".join([*_driver_options(log), settings.get(DRIVER_OPTIONS, "")]).strip()
    if paths:
        where = "spark.driver.extraClassPath" if master.startswith("local") else "spark.jars"
        separator = os.pathsep if master.startswith("local") else ","
        settings[where] = separator.join([*paths, *filter(None, [settings.get(where)])])
    _same_python_and_clock_for_workers()
    from pyspark.sql import SparkSession  # noqa: PLC0415  the JVM's environment has to be set first

    builder = SparkSession.builder.appName(name)
    if not _inside_spark_submit():
        builder = builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _stderr_into(log):
        session = builder.getOrCreate()
    return session


def _driver_options(log: Path) -> list[str]:
    return [
        f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
        f"-Dheadwater.log={log}",
        "-XX:+UseParallelGC",
        "-Duser.timezone=UTC",
    ]


def _inside_spark_submit() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _same_python_and_clock_for_workers() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["TZ"] = "UTC"
    time.tzset()


@contextmanager
def _stderr_into(log: Path) -> Iterator[None]:
    """A JVM that starts inside this block writes its standard error to the log for the rest of its life."""
    from pyspark import SparkContext  # noqa: PLC0415

    if SparkContext._gateway is not None:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("ab") as out:
        os.dup2(out.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
