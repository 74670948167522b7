"""Services that stories share: a Kafka broker, a PostgreSQL server, and the workers that keep Spark running."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from soak.cells import Cell
from soak.processes import CURRENT_WORKER, Command, Worker, run_in_process

# The server does not check it. It must not appear in any file or message.
PASSWORD = "correct-horse-battery"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class KafkaService:
    """A local broker; ``start`` does nothing if it is running."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self._folder, self._data, self._port = folder, folder / "kafka", port or free_port()
        self.is_running = False

    @classmethod
    def at(cls, address: str) -> KafkaService:
        """Return a client for a broker that was started elsewhere."""
        return cls(Path(), int(address.rpartition(":")[2]))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        if not self.is_running:
            # In another process: the stories are forks of this one, in which Kafka's client must not have run.
            result = Command(
                ["broker", "start", "--port", str(self._port), "--data", str(self._data)], self._folder
            ).wait()
            assert result.status == 0, result.err
            self.is_running = True

    def stop(self) -> None:
        if self.is_running:
            Command(["broker", "stop", "--data", str(self._data)], self._folder).wait()
            self.is_running = False

    def end(self, *, crash: bool) -> None:
        self._kill() if crash else self.stop()

    def _kill(self) -> None:
        """``kill -9``."""
        from headwater.kafka.broker import status

        now = status(self._data)
        if now.pid is not None:
            os.kill(now.pid, signal.SIGKILL)
            while Path(f"/proc/{now.pid}").exists() and "Z" not in _process_state(now.pid):
                time.sleep(0.01)
        self.is_running = False

    def create(self, topic: str, partitions: int) -> None:
        result = run_in_process("topics", "create", topic, "--partitions", partitions, "--bootstrap", self.address)
        assert result.status == 0, result.err

    def send(self, topic: str, values: Sequence[bytes | None], partitions: int) -> list[tuple[int, int]]:
        """Send the values to the partitions in turn and return the partition and offset of each once all are acknowledged."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 20})
        found: list[tuple[int, int] | None] = [None] * len(values)

        def record_delivery(index: int) -> Any:
            def on_delivery(error: Any, message: Any) -> None:
                assert error is None, error
                found[index] = (message.partition(), message.offset())

            return on_delivery

        for index, value in enumerate(values):
            producer.produce(topic, value, partition=index % partitions, on_delivery=record_delivery(index))
        assert producer.flush(60) == 0
        return [position for position in found if position is not None]

    def read(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """Return every key and value of a topic, partition by partition, in order."""
        from confluent_kafka import Consumer, TopicPartition

        settings = {"bootstrap.servers": self.address, "group.id": "soak", "enable.auto.commit": False}
        consumer = Consumer({**settings, "isolation.level": "read_committed"})
        found: list[tuple[bytes | None, bytes | None]] = []
        try:
            known = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            for number in known:
                first, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
                consumer.assign([TopicPartition(topic, number, first)])
                position = first
                while position < end:
                    message = consumer.poll(30)
                    assert message is not None, f"{topic}: no record at offset {position} of {end} within 30 seconds"
                    assert message.error() is None, message.error()
                    found.append((message.key(), message.value()))
                    position = message.offset() + 1
        finally:
            consumer.close()
        return found


class PostgresService:
    """A local server; as root, it runs under the postgres user, because PostgreSQL refuses to run as root."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._port = free_port()
        self._identity: dict[str, Any] = {}
        self.is_running = False

    @property
    def url(self) -> str:
        return f"postgresql://tester:{PASSWORD}@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        if self._folder is None:
            self._create()
        if not self.is_running:
            options = f"-c listen_addresses=127.0.0.1 -c port={self._port} -c unix_socket_directories={self._folder}"
            log = f"{self._folder}/server.log"
            self._run_program("pg_ctl", "start", "--log", log, "--wait", "--options", f"{options} -c fsync=off")
            self.is_running = True

    def _create(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="soak-postgres-"))
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            self._identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(self._folder, user.pw_uid, user.pw_gid)
        self._run_program("initdb", "--username", "tester", "--auth", "trust", "--no-sync", "--encoding", "UTF8")

    def end(self, *, crash: bool) -> None:
        """Stop the server; the mode ``immediate`` is equivalent to a crash."""
        self._run_program("pg_ctl", "stop", "--mode", "immediate" if crash else "fast")
        self.is_running = False

    def stop(self) -> None:
        if self._folder is not None:
            if self.is_running:
                self.end(crash=True)
            shutil.rmtree(self._folder)
            self._folder = None

    def rows(self, table: str) -> list[dict[str, Any]]:
        import psycopg
        from psycopg import rows, sql

        with psycopg.connect(self.url, row_factory=rows.dict_row) as connection:
            connection.execute("SET TIME ZONE 'UTC'")
            exists = connection.execute("SELECT to_regclass(%s) AS it", (f'"{table}"',)).fetchone()
            if exists is None or exists["it"] is None:
                return []
            return connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))).fetchall()

    def _run_program(self, program: str, *arguments: str) -> None:
        assert self._folder is not None
        command = [str(_program_folder() / program), *arguments, "--pgdata", str(self._folder / "data")]
        settings = {**os.environ, "LC_ALL": "C"}
        subprocess.run(command, check=True, cwd=self._folder, env=settings, stdout=subprocess.DEVNULL, **self._identity)


@dataclass
class Services:
    """The services of all stories. A worker that is killed is replaced by one that was started in advance.

    ``python`` runs the workers, in an environment with ``spark``, the version of Spark that is tested.
    """

    folder: Path
    python: str
    spark: str
    kafka: KafkaService
    postgres: PostgresService
    _workers: list[Worker] = field(default_factory=list)
    _started: int = 0

    @classmethod
    def in_folder(cls, folder: Path, python: str, spark: str) -> Services:
        return cls(folder, python, spark, KafkaService(folder), PostgresService())

    def start(self, cells: Iterable[Cell]) -> None:
        """Start what stories of these cells need."""
        cells = list(cells)
        if any(cell.uses_kafka for cell in cells):
            self.kafka.start()
        if any(cell.sink == "postgresql" for cell in cells):
            self.postgres.start()
        if not self._workers or not self._workers[0].is_running:
            self.replace_worker()

    def kill_worker(self, *, python_only: bool) -> None:
        self._workers[0].kill(leader_only=python_only)
        self.replace_worker()

    def replace_worker(self) -> None:
        """Let the next worker take the commands, and start the one after it."""
        for worker in self._workers[:1]:
            worker.kill()
        self._workers = [worker for worker in self._workers[1:] if worker.is_running]
        while len(self._workers) < 2:
            self._workers.append(Worker(self.folder, self._started, self.python))
            self._started += 1
        draft = self.folder / f"{CURRENT_WORKER}.draft"
        draft.write_text(str(self._workers[0].address))
        draft.rename(self.folder / CURRENT_WORKER)

    def restart(self, service: str, *, crash: bool) -> None:
        """Stop a service that is running and start it again, half a second later after a crash."""
        server = self.kafka if service == "broker" else self.postgres
        if server.is_running:
            server.end(crash=crash)
            time.sleep(0.5 if crash else 0)
            server.start()

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
        self.kafka.stop()
        self.postgres.stop()


def _program_folder() -> Path:
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    if not installed:
        raise SystemExit("error: PostgreSQL is not installed\nhelp: apt-get install postgresql")
    return installed[-1].parent


def _process_state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "Z"
