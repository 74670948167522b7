"""A class-data archive: classes that a JVM maps into memory instead of loading them from hundreds of jars.

It takes a third off Spark's start. It is made once for each Java and set of jars, by a JVM that starts Spark, runs a small
stream and writes down at its end what it loaded. A JVM for which it does not fit starts without it and says nothing.
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

SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
MOST_SECONDS = 300.0
ENOUGH_BYTES = 10_000_000


def archive_file(java: Java, jars: Sequence[str]) -> Path:
    """Where the archive for these jars is, or would be."""
    sizes = [(jar, Path(jar).stat().st_size) for jar in jars]
    about = json.dumps([java.version, str(java.command.resolve()), version("pyspark"), sys.prefix, sizes])
    return cache_folder() / "jvm" / f"{hashlib.sha256(about.encode()).hexdigest()[:16]}.jsa"


def options_for(archive: Path) -> list[str]:
    """What tells a JVM to use an archive; nothing where there is none."""
    if not archive.exists() or " " in str(archive):  # Spark splits its options at spaces
        return []
    return [f"-XX:SharedArchiveFile={archive}", *SILENT]


def make_archive(archive: Path, jars: Sequence[str], *, on_work: Callable[[str], None] = lambda _: None) -> None:
    """Make it if it is not there. That it cannot be made is no mistake: Spark starts without it."""
    if archive.exists() or " " in str(archive):
        return
    on_work("preparing a faster start of Spark (once, 150 MB)")
    draft = archive.with_name(f".{archive.name}.{os.getpid()}")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        remove_orphans(archive.parent)
        with tempfile.TemporaryDirectory(prefix="headwater-jvm-") as folder:
            command = [sys.executable, "-m", "headwater.spark.class_archive", str(draft)]
            subprocess.run(command, cwd=folder, timeout=MOST_SECONDS, capture_output=True, check=False)
        if draft.exists() and draft.stat().st_size > ENOUGH_BYTES:
            _note_of(archive).write_text(json.dumps([sys.prefix, *jars]))
            draft.replace(archive)
    except (OSError, subprocess.TimeoutExpired):
        on_work("a faster start of Spark could not be prepared; it starts as usual")
    finally:
        with suppress(OSError):
            draft.unlink()


def remove_orphans(folder: Path) -> None:
    """Archives of environments that are gone: nobody will use them again, and each has 160 MB."""
    for archive in folder.glob("*.jsa"):
        note = _note_of(archive)
        if not note.exists() or not all(Path(place).exists() for place in json.loads(note.read_text())):
            archive.unlink(missing_ok=True)
            note.unlink(missing_ok=True)


def _note_of(archive: Path) -> Path:
    return archive.with_suffix(".json")


def _train(draft: str) -> None:
    """What most jobs do: decode, window, keep state, commit. Runs in an empty folder and in a process of its own."""
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
    close_jvm(timeout=MOST_SECONDS)


if __name__ == "__main__":
    _train(sys.argv[1])
