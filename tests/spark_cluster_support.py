"""A Spark standalone cluster on this machine, started from the PySpark package: a master and two small workers."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyspark
import pytest

from broker_support import free_port

SPARK_HOME = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"


class Daemon:
    """A master or a worker, in one process group with the executors that it starts."""

    def __init__(self, name: str, *arguments: object, ready: str, java_options: str = "") -> None:
        settings = {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
        settings |= {"SPARK_DAEMON_JAVA_OPTS": java_options}
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

    def kill_executors(self) -> int:
        """Kill the executors of a worker, which then starts others; return how many there were."""
        found = 0
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                group = int((process / "stat").read_text().rpartition(")")[2].split()[2])
                if group == self.process.pid and b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
                    found += 1
        return found

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Cluster:
    """A running cluster. ``master`` is its URL; tests may kill a worker, or restart the master."""

    master: str
    start_master: Callable[[], Daemon]
    workers: list[Daemon] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._leader = self.start_master()

    def restart_master(self) -> None:
        """Kill the master and start it again; it recovers its applications and workers from a folder."""
        self._leader.kill()
        self._leader = self.start_master()


@pytest.fixture
def spark_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A master and two workers with one core and one gigabyte each."""
    daemons: list[Daemon] = []

    def start(name: str, *arguments: object, **options: str) -> Daemon:
        daemons.append(Daemon(name, *arguments, **options))
        return daemons[-1]

    try:
        port = free_port()
        place = ["--host", "127.0.0.1", "--webui-port", 0]
        recovery = {"recoveryMode": "FILESYSTEM", "recoveryDirectory": str(tmp_path / "master")}
        options = " ".join(f"-Dspark.deploy.{name}={value}" for name, value in recovery.items())
        elected = {"ready": "I have been elected leader", "java_options": options}
        master = partial(start, "master.Master", *place, "--port", port, **elected)
        cluster = Cluster(f"spark://127.0.0.1:{port}", master)
        for number in range(2):
            size = ["--cores", 1, "--memory", "1g", "--work-dir", tmp_path / f"worker{number}"]
            worker = start("worker.Worker", *place, *size, cluster.master, ready="Successfully registered with master")
            cluster.workers.append(worker)
        yield cluster
    finally:
        for daemon in reversed(daemons):
            daemon.kill()
