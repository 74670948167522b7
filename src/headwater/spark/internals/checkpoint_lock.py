"""A file lock held by the JVM, which is the process that writes the checkpoint.

If only Python held it, a killed Python process would release the lock while its JVM finishes a batch. A process loses all
its locks on a file when it closes any handle of it, so the JVM's system properties list the files that it has locked, and
nothing opens those. ``headwater.streaming.LeasedFolder``, the Java class that locks checkpoints of attached queries, does the
same.

Seen on: PySpark 4.0.5, 4.2.0, 4.3.0.
Without it (no Py4J: Spark Connect): a run cannot lock a checkpoint on a local disk, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession


def probe(spark: SparkSession) -> bool:
    return getattr(spark, "_jvm", None) is not None


@contextmanager
def locked_by_jvm(spark: SparkSession, path: Path) -> Iterator[bool]:
    """Hold an exclusive lock on a file while the block runs; yield False if another process holds it."""
    assert spark._jvm is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    registry = spark._jvm.java.lang.System.getProperties()
    key = f"headwater.lock.{path.resolve()}"
    if registry.putIfAbsent(key, "job") is not None:
        yield False
        return
    handle = None
    try:
        handle = spark._jvm.java.io.RandomAccessFile(str(path), "rw")
        yield handle.getChannel().tryLock() is not None
    finally:
        with suppress(Py4JError, OSError):  # a JVM that died has released the lock
            if handle is not None:
                handle.close()
            registry.remove(key)
