"""The JVM that PySpark starts for us: quiet on the terminal, and deaf to signals that are meant for its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def starting_jvm(log: Path) -> Iterator[None]:
    """A JVM that starts inside this block writes its standard error to ``log`` for the rest of its life.

    It also ignores SIGTERM, as PySpark makes it ignore SIGINT: ``timeout``, systemd and others send it to every process
    that we have, and the JVM must live until the batch in hand is committed. It ends when its parent does.
    """
    from pyspark import SparkContext, java_gateway  # noqa: PLC0415

    if SparkContext._gateway is not None:
        yield
        return
    sys.stderr.flush()
    kept, popen = os.dup(2), java_gateway.Popen
    with log.open("ab") as out:
        os.dup2(out.fileno(), 2)
        java_gateway.Popen = _deaf_to_termination
        try:
            yield
        finally:
            java_gateway.Popen = popen
            os.dup2(kept, 2)
            os.close(kept)


def kill_jvm() -> None:
    """End Spark at once, whatever it is doing."""
    from pyspark import SparkContext  # noqa: PLC0415

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()


def _deaf_to_termination(
    command: list[str], *, preexec_fn: Callable[[], None], **settings: Any
) -> subprocess.Popen[bytes]:
    def before_exec() -> None:
        preexec_fn()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    return subprocess.Popen(command, preexec_fn=before_exec, **settings)  # noqa: PLW1509  PySpark does the same
