"""What jobs read from and write to: one Kafka broker and one PostgreSQL server for many stories."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from soak.processes import in_process

# The server asks nobody for it. It must not turn up in any file or message.
PASSWORD = "correct-horse-battery"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class KafkaService:
    """Started when first asked for."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self._data, self._port, self._running = folder / "kafka", port or free_port(), False
        self._was_used = False

    @classmethod
    def at(cls, address: str) -> KafkaService:
        """One that somebody else has started."""
        return cls(Path(), int(address.rpartition(":")[2]))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        if not self._running:
            told = in_process("broker", "start", "--port", self._port, "--data", self._data)
            assert told.status == 0, told.err
            self._running = self._was_used = True

    def mend(self) -> None:
        if self._was_used:
            self.start()

    def stop(self) -> None:
        if self._running:
            in_process("broker", "stop", "--data", self._data)
            self._running = False

    def kill(self) -> None:
        """``kill -9``."""
        from headwater.broker.process import status

        now = status(self._data)
        if now.pid is not None:
            os.kill(now.pid, signal.SIGKILL)
            while Path(f"/proc/{now.pid}").exists() and "Z" not in _state(now.pid):
                time.sleep(0.01)
        self._running = False

    def create(self, topic: str, partitions: int) -> None:
        told = in_process("topics", "create", topic, "--partitions", partitions, "--bootstrap", self.address)
        assert told.status == 0, told.err

    def send(self, topic: str, values: Sequence[bytes | None], partitions: int) -> list[tuple[int, int]]:
        """Partition and offset of each value, in turn over the partitions; all are there when this returns."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 20})
        found: list[tuple[int, int] | None] = [None] * len(values)

        def noted(place: int) -> Any:
            def on_delivery(error: Any, message: Any) -> None:
                assert error is None, error
                found[place] = (message.partition(), message.offset())

            return on_delivery

        for place, value in enumerate(values):
            producer.produce(topic, value, partition=place % partitions, on_delivery=noted(place))
        assert producer.flush(60) == 0
        return [held for held in found if held is not None]

    def read(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """Every key and value of a topic, each partition in its order."""
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
                    assert message is not None, f"{topic} does not give offset {position} of {end}"
                    assert message.error() is None, message.error()
                    found.append((message.key(), message.value()))
                    position = message.offset() + 1
        finally:
            consumer.close()
        return found


class PostgresService:
    """Started when first asked for, under another user if we are root."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._port = free_port()
        self._identity: dict[str, Any] = {}

    @property
    def url(self) -> str:
        return f"postgresql://tester:{PASSWORD}@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        if self._folder is not None:
            return
        self._folder = Path(tempfile.mkdtemp(prefix="soak-postgres-"))
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            self._identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(self._folder, user.pw_uid, user.pw_gid)
        self._do("initdb", "--username", "tester", "--auth", "trust", "--no-sync", "--encoding", "UTF8")
        self.bring_up()

    def bring_up(self) -> None:
        options = f"-c listen_addresses=127.0.0.1 -c port={self._port} -c unix_socket_directories={self._folder}"
        self._do(
            "pg_ctl", "start", "--log", f"{self._folder}/server.log", "--wait", "--options", f"{options} -c fsync=off"
        )

    def bring_down(self, mode: str = "immediate") -> None:
        """``immediate`` is as good as a crash."""
        self._do("pg_ctl", "stop", "--mode", mode)

    def mend(self) -> None:
        if self._folder is not None and not (self._folder / "data" / "postmaster.pid").exists():
            self.bring_up()

    def stop(self) -> None:
        if self._folder is not None:
            self.mend()
            self.bring_down()
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

    def _do(self, program: str, *arguments: str) -> None:
        assert self._folder is not None
        command = [str(_programs() / program), *arguments, "--pgdata", str(self._folder / "data")]
        settings = {**os.environ, "LC_ALL": "C"}
        subprocess.run(command, check=True, cwd=self._folder, env=settings, stdout=subprocess.DEVNULL, **self._identity)


def _programs() -> Path:
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).parent
    kept = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    if not kept:
        raise SystemExit("error: PostgreSQL is not installed\nhelp: apt-get install postgresql")
    return kept[-1].parent


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "Z"
