"""A Spark standalone cluster on this machine, started from the PySpark package: a master and two small workers."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
import pytest

from broker_support import free_port

SPARK_HOME = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"


class Daemon:
    """A master or a worker, in one process group with the executors that it starts."""

    def __init__(self, name: str, *arguments: object, ready: str) -> None:
        settings = {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
        self.process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), f"{DEPLOY}.{name}", *map(str, arguments)],
            env={**os.environ, **settings},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._wait_for(ready)

    def _wait_for(self, ready: str) -> None:
        assert self.process.stderr is not None
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if ready in line:
                # Keep reading, because a full pipe would block the daemon.
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return
        raise AssertionError("".join(lines))

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Cluster:
    """A running cluster. ``master`` is its URL; tests may kill a worker."""

    master: str
    workers: list[Daemon] = field(default_factory=list)


@pytest.fixture
def spark_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A master and two workers with one core and one gigabyte each."""
    daemons: list[Daemon] = []

    def start(name: str, *arguments: object, ready: str) -> Daemon:
        daemons.append(Daemon(name, *arguments, ready=ready))
        return daemons[-1]

    try:
        port = free_port()
        place = ["--host", "127.0.0.1", "--webui-port", 0]
        start("master.Master", *place, "--port", port, ready="I have been elected leader")
        cluster = Cluster(f"spark://127.0.0.1:{port}")
        for number in range(2):
            size = ["--cores", 1, "--memory", "1g", "--work-dir", tmp_path / f"worker{number}"]
            worker = start("worker.Worker", *place, *size, cluster.master, ready="Successfully registered with master")
            cluster.workers.append(worker)
        yield cluster
    finally:
        for daemon in reversed(daemons):
            daemon.kill()
