"""The lease of a running job, held by the JVM: that is the process which writes the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.lease import LOCK, RECORD, Lease, kept_alive, refuse_if_held
from headwater.checkpoint.local_tree import LocalTree
from headwater.core.errors import CheckpointBusy

GONE = (Py4JError, OSError)


@contextmanager
def running_on(spark: SparkSession, files: FileTree, job: str) -> Iterator[None]:
    """Hold the lease while the block runs."""
    check_free(files, job)
    lease = Lease.of_this_process(job)
    if not isinstance(files, LocalTree):
        with kept_alive(files, lease):
            yield
        return
    assert spark._jvm is not None
    path = files.path_of(LOCK)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = spark._jvm.java.io.RandomAccessFile(str(path), "rw")
    try:
        if handle.getChannel().tryLock() is None:
            refuse_if_held(files, _wish(job))
            raise CheckpointBusy("checkpoint-busy", f"{_wish(job)}: another process was quicker", remedy="try again")
        files.write(RECORD, lease.to_bytes())
        yield
    finally:
        with suppress(*GONE):  # a JVM that died has let go of the lock
            handle.close()


def check_free(files: FileTree, job: str) -> None:
    """Refuse when somebody works on the checkpoint; the JVM of a predecessor that was just killed may still be at it."""
    refuse_if_held(files, _wish(job))


def _wish(job: str) -> str:
    return f"cannot run {job}"
