"""A class-data archive: classes that the JVM maps into memory instead of loading them from hundreds of jars.

It shortens Spark's start by a third. It is created once for each Java and set of jars, by a JVM that starts Spark, runs a
small stream and archives at its exit the classes that it loaded. A JVM that cannot use the archive silently ignores it.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from headwater.jars.java import Java
from headwater.jars.resolve import cache_folder

QUIET_OPTIONS = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
TIMEOUT_SECONDS = 300.0
MIN_ARCHIVE_BYTES = 10_000_000


def archive_file(java: Java, jars: Sequence[str]) -> Path:
    """Return the path of the archive for these jars, which need not exist."""
    sizes = [(jar, Path(jar).stat().st_size) for jar in jars]
    about = json.dumps([java.version, str(java.command.resolve()), version("pyspark"), sys.prefix, sizes])
    return cache_folder() / "jvm" / f"{hashlib.sha256(about.encode()).hexdigest()[:16]}.jsa"


def options_for(archive: Path) -> list[str]:
    """Return the JVM options that use the archive; none if it does not exist."""
    if not archive.exists() or " " in str(archive):  # Spark splits its options at spaces
        return []
    return [f"-XX:SharedArchiveFile={archive}", *QUIET_OPTIONS]


def create_archive(archive: Path, jars: Sequence[str], *, report: Callable[[str], None] = lambda _: None) -> None:
    """Create the archive unless it exists. A failure is reported and not raised: Spark starts without it."""
    if archive.exists() or " " in str(archive):
        return
    report("creating a class archive, so that Spark starts faster (once, 160 MB)")
    draft = archive.with_name(f".{archive.name}.{os.getpid()}")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        remove_orphans(archive.parent)
        with tempfile.TemporaryDirectory(prefix="headwater-jvm-") as folder:
            command = [sys.executable, "-m", "headwater.spark.class_archive", str(draft)]
            subprocess.run(command, cwd=folder, timeout=TIMEOUT_SECONDS, capture_output=True, check=False)
        if draft.exists() and draft.stat().st_size > MIN_ARCHIVE_BYTES:
            _owners_file(archive).write_text(json.dumps([sys.prefix, *jars]))
            draft.replace(archive)
    except (OSError, subprocess.TimeoutExpired):
        report("the class archive could not be created; Spark starts at its usual speed")
    finally:
        with suppress(OSError):
            draft.unlink()


def remove_orphans(folder: Path) -> None:
    """Remove archives whose Python environment or jars no longer exist. Each takes 160 MB."""
    for archive in folder.glob("*.jsa"):
        owners = _owners_file(archive)
        if not owners.exists() or not all(Path(path).exists() for path in json.loads(owners.read_text())):
            archive.unlink(missing_ok=True)
            owners.unlink(missing_ok=True)


def _owners_file(archive: Path) -> Path:
    """Return the file that lists the environment and the jars that the archive was created for."""
    return archive.with_suffix(".json")


def _train(draft: str) -> None:
    """Do what most jobs do: decode, window, keep state, commit. Runs in a process and an empty folder of its own."""
    from pyspark.sql import functions as F  # noqa: PLC0415

    from headwater.jobs.endpoints import Files, Kafka  # noqa: PLC0415
    from headwater.spark.internals.gateway import close_jvm  # noqa: PLC0415
    from headwater.spark.reading import read_stream  # noqa: PLC0415
    from headwater.spark.session import start_session  # noqa: PLC0415

    schema = "user STRING, at TIMESTAMP"
    Path("input").mkdir()
    Path("input/0.json").write_text('{"user": "a", "at": "2024-05-01T10:00:00Z"}\n')
    options = {"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={draft}"}
    spark = start_session("class archive", conf=options, log=Path("spark.log"))
    read_stream(spark, Kafka("nothing", schema=schema))
    rows = read_stream(spark, Files(str(Path("input").absolute()), format="json", schema=schema))
    counted = rows.withWatermark("at", "10 minutes").groupBy(F.window("at", "5 minutes"), "user").count()
    writer = counted.writeStream.outputMode("update").option("checkpointLocation", str(Path("checkpoint").absolute()))
    writer.foreachBatch(lambda frame, _: frame.collect()).trigger(availableNow=True).start().awaitTermination()
    spark.stop()
    close_jvm(timeout=TIMEOUT_SECONDS)


if __name__ == "__main__":
    _train(sys.argv[1])
