"""Real Kafka brokers for tests, started and stopped with Headwater's own command."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import pytest

from headwater.cli.main import main
from headwater.kafka.clients import Cluster
from headwater.kafka.options import Connection

HEADWATER = Path(sys.executable).with_name("headwater")
# Set by `make matrix` for a PySpark on which Headwater starts nothing.
BROKER_COMMAND = Path(os.environ.get("MATRIX_BROKER_COMMAND") or HEADWATER)
USER, PASSWORD = "ann", 'correct "horse" \\battery'
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def headwater(
    *arguments: object,
    stdin: str | bytes = b"",
    cwd: Path | None = None,
    timeout: float = 300,
    env: Mapping[str, str] | None = None,
    command: Path = HEADWATER,
) -> subprocess.CompletedProcess[str]:
    """Run the installed command as a user does; return its output and exit status. ``env`` is added to the environment."""
    done = subprocess.run(
        [command, *map(str, arguments)],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        cwd=cwd,
        timeout=timeout,
        check=False,
        env={**os.environ, **(env or {})},
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def run_here(
    *arguments: object, stdin: str = "", cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, without the half second that another interpreter needs for its imports.

    Output of C libraries, which write to the descriptors themselves, is captured as well.
    """
    command = ["headwater", *map(str, arguments)]
    held = pytest.MonkeyPatch()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as err:
        saved = os.dup(1), os.dup(2)
        try:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            lines = io.TextIOWrapper(io.BytesIO(stdin.encode()))
            for name, value in {"argv": command, "stdin": lines, "stdout": out, "stderr": err}.items():
                held.setattr(sys, name, value)
            for name, value in (env or {}).items():
                held.setenv(name, value)
            if cwd is not None:
                held.chdir(cwd)
            status = 0
            try:
                main()
            except SystemExit as ended:
                status = ended.code if isinstance(ended.code, int) else 0
        finally:
            held.undo()
            for signal_number, handler in handlers.items():
                signal.signal(signal_number, handler)
            for number, descriptor in enumerate(saved, start=1):
                os.dup2(descriptor, number)
                os.close(descriptor)
        printed = []
        for file in (out, err):
            file.flush()
            file.seek(0)
            printed.append(file.read())
    return subprocess.CompletedProcess(command, status, *printed)


def free_port() -> int:
    """Return a port on which nothing listens.

    A connection that is closed here leaves the port in TIME_WAIT. For a minute, the kernel then gives it to no process
    that asks for any port, and still to a server that asks for this one.
    """
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        address: tuple[str, int] = listener.getsockname()
        with socket.create_connection(address):
            listener.accept()[0].close()
    return address[1]


@dataclass(frozen=True)
class Broker:
    """Address, data folder and connection options of a running broker."""

    bootstrap: str
    data: Path
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def connection(self) -> Connection:
        """The connection for functions of ``headwater.kafka``."""
        return Connection(self.bootstrap, self.options)

    @property
    def arguments(self) -> list[str]:
        """The command-line options that select this broker."""
        options = [word for name, value in self.options.items() for word in ("--option", f"{name}={value}")]
        return ["--bootstrap", self.bootstrap, *options]

    def uri(self, topic: str, **options: str) -> str:
        """Return the URI of a topic as a source or sink, with the connection options."""
        query = "&".join(f"{name}={quote(value)}" for name, value in {**options, **self.options}.items())
        return f"kafka://{self.bootstrap}/{topic}" + (f"?{query}" if query else "")

    def produce(self, topic: str, *lines: str, partition: int | None = None) -> None:
        """Write each line as a record."""
        where = [] if partition is None else ["--partition", str(partition)]
        text = "".join(f"{line}\n" for line in lines)
        done = run_here("produce", topic, *self.arguments, *where, stdin=text)
        assert done.returncode == 0, done.stderr

    def configure(self, topic: str, **settings: object) -> None:
        """Set options of a topic, such as ``retention_ms``."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        entries = [
            ConfigEntry(name.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        cluster = Cluster(self.connection)
        cluster.client.incremental_alter_configs([resource])[resource].result()

    def consume(self, topic: str, count: int, timeout: float = 120) -> list[str]:
        """Return the values of a topic from its beginning."""
        limits = ["--from-beginning", "--count", count, "--timeout", timeout]
        done = run_here("consume", topic, *self.arguments, *limits)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


def login(password: str, user: str = USER) -> str:
    """Return a ``sasl.jaas.config`` for a user name and a password."""
    escaped = password.replace("\\", "\\\\").replace('"', '\\"')
    return f'{PLAIN_MODULE} required username="{user}" password="{escaped}";'


@contextmanager
def _started(data: Path, *arguments: object) -> Iterator[str]:
    port = free_port()
    start = ("broker", "start", "--port", port, "--data", data, *arguments)
    started = headwater(*start, timeout=300, command=BROKER_COMMAND)
    assert started.returncode == 0, started.stderr
    pid = int((data / "broker.json").read_text().split('"pid": ')[1].split(",")[0])
    try:
        yield f"127.0.0.1:{port}"
    finally:
        stopped = headwater("broker", "stop", "--data", data, command=BROKER_COMMAND)
        if stopped.returncode:
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker without TLS and login for all tests of a session; each test uses topic names of its own."""
    data = tmp_path_factory.mktemp("kafka")
    with _started(data) as bootstrap:
        yield Broker(bootstrap, data)


@pytest.fixture(scope="session")
def secured_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that requires TLS and a login, with the options that a Spark source needs for it."""
    data = tmp_path_factory.mktemp("secured-kafka")
    options = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": login(PASSWORD),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(data / "tls" / "ca.pem"),
    }
    with _started(data, "--tls", "--sasl-plain", f"{USER}:{PASSWORD}") as bootstrap:
        yield Broker(bootstrap, data, options)
