"""The JVM that PySpark launches: where its output goes, which signals reach it, how it ends.

Uses ``pyspark.java_gateway.Popen``, ``SparkContext._gateway`` and ``SparkContext._ensure_initialized``.

Seen on: PySpark 4.0.5, 4.1.4, 4.2.0, 4.3.0.
Without it: no session can be started; ``start_session`` fails with PySpark's own error.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


def probe() -> bool:
    from pyspark import SparkContext, java_gateway  # noqa: PLC0415

    return hasattr(java_gateway, "Popen") and hasattr(SparkContext, "_gateway")


@contextmanager
def starting_jvm(log: Path) -> Iterator[None]:
    """Send the standard error of a JVM that starts inside this block to ``log``, and make it ignore SIGTERM.

    PySpark already makes it ignore SIGINT. ``timeout``, systemd and others send SIGTERM to the whole process group, and
    the JVM has to live until the current batch is committed. It exits when its parent does. If the block is interrupted
    before PySpark is connected to it, it is killed, because nothing else could end it.
    """
    from pyspark import SparkContext, java_gateway  # noqa: PLC0415

    if SparkContext._gateway is not None:
        yield
        return
    sys.stderr.flush()
    original_stderr, popen = os.dup(2), java_gateway.Popen
    started: list[subprocess.Popen[bytes]] = []

    def start(command: list[str], **settings: Any) -> subprocess.Popen[bytes]:
        started.append(_popen_ignoring_sigterm(command, **settings))
        return started[-1]

    with log.open("ab") as out:
        os.dup2(out.fileno(), 2)
        java_gateway.Popen = start
        try:
            yield
        except BaseException:
            if SparkContext._gateway is None:
                for process in started:
                    process.kill()
            raise
        finally:
            java_gateway.Popen = popen
            os.dup2(original_stderr, 2)
            os.close(original_stderr)


def kill_jvm() -> None:
    """Kill the JVM, whatever it is doing."""
    from pyspark import SparkContext  # noqa: PLC0415

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()


def close_jvm(timeout: float) -> None:
    """Shut the gateway down and wait for the JVM to exit by itself."""
    from pyspark import SparkContext  # noqa: PLC0415

    assert SparkContext._gateway is not None, "Spark is running"
    jvm = SparkContext._gateway.proc
    SparkContext._gateway.shutdown()
    jvm.stdin.close()
    jvm.wait(timeout=timeout)


def conf_of_spark_submit() -> dict[str, str]:
    """Return the settings of a surrounding ``spark-submit``, whose JVM is already running; empty elsewhere."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def jvm_has_class(name: str) -> bool:
    """Return whether this process has no JVM yet, or one that can load a class."""
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark import SparkContext  # noqa: PLC0415

    if SparkContext._gateway is None:
        return True
    try:
        SparkContext._gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JError:
        return False
    return True


def has_class(spark: SparkSession, name: str) -> bool:
    """Return whether the JVM can load a class."""
    from py4j.protocol import Py4JError  # noqa: PLC0415

    jvm: Any = spark._jvm
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JError:
        return False
    return True


def is_stopped(spark: SparkSession) -> bool:
    """Return whether the session was stopped, or its JVM has died."""
    return is_context_stopped(spark.sparkContext)


def is_context_stopped(context: SparkContext) -> bool:
    """Return whether a Spark context was stopped, or its JVM has died."""
    from py4j.protocol import Py4JError  # noqa: PLC0415

    try:
        java: Any = context._jsc
        return java is None or bool(java.sc().isStopped())
    except (Py4JError, ConnectionError):
        return True


def first_class(spark: SparkSession, names: Sequence[str]) -> str | None:
    """Return the first of several names under which the JVM knows a class; Spark 4.1 moved some to other packages."""
    return next((name for name in names if has_class(spark, name)), None)


def print_line(spark: SparkSession, text: str) -> None:
    """Print on the JVM's standard output, in order with the output of Spark's console sink."""
    assert spark._jvm is not None
    spark._jvm.System.out.println(text)


def _popen_ignoring_sigterm(
    command: list[str], *, preexec_fn: Callable[[], None], **settings: Any
) -> subprocess.Popen[bytes]:
    def before_exec() -> None:
        preexec_fn()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    return subprocess.Popen(command, preexec_fn=before_exec, **settings)  # noqa: PLW1509  PySpark does the same
