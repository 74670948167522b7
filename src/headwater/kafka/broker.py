"""The local broker as a background process: start it, check it, stop it.

Everything is in one data folder. The broker's command line names that folder, and this is how its process is
recognized: a process id alone may have been reused by another program.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from headwater.core.errors import ServiceUnreachable, SetupProblem
from headwater.jars.java import require_java
from headwater.jars.resolve import jar_paths
from headwater.kafka.broker_settings import (
    CLIENT_FILE,
    DEFAULT_DATA,
    DEFAULT_PORT,
    HOST,
    JVM_OPTIONS,
    LOCK_FILE,
    RECORD_FILE,
    SERVER_FILE,
    Security,
    ensure_certificates,
    local_connection,
    new_cluster_id,
    write_settings,
)
from headwater.kafka.clients import Cluster
from headwater.kafka.options import Connection

READY_SECONDS = 90.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.05
STACK_FRAME = re.compile(r"\s+(at |\.\.\. \d+ more)")


@dataclass(frozen=True)
class BrokerStatus:
    """The state of a local broker."""

    data: Path
    port: int
    pid: int | None
    ready: bool
    cluster_id: str | None
    security: Security

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the process exists; it may not accept connections yet."""
        return self.pid is not None

    @property
    def client_properties(self) -> Path | None:
        """The file with the options that clients need; None for a broker without security."""
        return None if self.security.protocol == "PLAINTEXT" else self.data / CLIENT_FILE

    def as_dict(self) -> dict[str, object]:
        """Return the status in the form that ``--json`` prints."""
        return {
            "running": self.running,
            "ready": self.ready,
            "bootstrap": self.bootstrap,
            "port": self.port,
            "security_protocol": self.security.protocol,
            "client_properties": str(self.client_properties) if self.client_properties else None,
            "pid": self.pid,
            "cluster_id": self.cluster_id,
            "data": str(self.data),
            "log": str(self.data / "logs" / "server.log"),
        }


def status(data: Path = DEFAULT_DATA) -> BrokerStatus:
    """Return the status of the broker of a data folder."""
    found = _found(data.resolve())
    return replace(found, ready=found.running and _is_ready(local_connection(found.data, found.port), found.cluster_id))


def default_connection(data: Path = DEFAULT_DATA) -> Connection:
    """Return the connection to the local broker if it is running, otherwise to Kafka's usual address."""
    found = _found(data.resolve())
    return local_connection(found.data, found.port) if found.running else Connection(f"{HOST}:{DEFAULT_PORT}")


def start(
    data: Path = DEFAULT_DATA,
    port: int | None = None,
    security: Security | None = None,
    *,
    on_fetch: Callable[[str], None] = lambda _: None,
) -> BrokerStatus:
    """Start the broker unless it is running, and return when it accepts requests.

    Without ``port`` and ``security`` it starts as it did last: at first on port 9092, without TLS and login.
    """
    data = data.resolve()
    _make_folder(data)
    with locked(data):
        now = _found(data)
        if now.pid is not None:
            if port not in (None, now.port) or security not in (None, now.security):
                raise SetupProblem(
                    "broker-running",
                    f"the broker of this folder is already running, on port {now.port} with {now.security.protocol}",
                    evidence={"data": data, "pid": now.pid},
                    remedy=f"headwater broker stop --data {data}, or use another --data for a second broker",
                )
            _wait_until_ready(now.pid, data, now.port)
            return status(data)
        port, security = port or now.port, security or now.security
        _wait_until_ended(_read_record(data).get("pid"), data)
        _require_free(port)
        java = require_java().command
        classes = ["-cp", str(jar_paths("broker", on_fetch=on_fetch)[0].parent / "*")]
        if security.tls:
            ensure_certificates(data, java)
        write_settings(data, port=port, controller_port=_free_port(), security=security)
        if now.cluster_id is None:
            _format(data, [str(java), *JVM_OPTIONS, *classes])
        command = [str(java), *JVM_OPTIONS, _marker(data), *classes, "kafka.Kafka", SERVER_FILE]
        with (data / "logs" / "console.log").open("wb") as console:
            process = subprocess.Popen(
                command,
                cwd=data,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            _write_record(data, pid=process.pid, port=port)
            _wait_until_ready(process.pid, data, port, process)
        except BaseException:
            process.kill()
            process.wait()
            _write_record(data, pid=None, port=port)
            raise
        return status(data)


def stop(data: Path = DEFAULT_DATA) -> int | None:
    """Stop the broker, wait until its process has ended, and return its process id; None if it was not running."""
    data = data.resolve()
    if not data.is_dir():
        return None
    with locked(data):
        return stop_process(data)


def stop_process(data: Path) -> int | None:
    """Stop the broker of a locked folder and return its process id; None if it was not running."""
    now = _found(data)
    if now.pid is None:
        return None
    os.kill(now.pid, signal.SIGTERM)
    if not _wait_until_ended(now.pid, data):
        os.kill(now.pid, signal.SIGKILL)
        _wait_until_ended(now.pid, data)
    _write_record(data, pid=None, port=now.port)
    return now.pid


def _found(data: Path) -> BrokerStatus:
    """Return the status according to the data folder and the process table, without querying the broker."""
    record = _read_record(data)
    pid = record.get("pid")
    return BrokerStatus(
        data=data,
        port=record.get("port") or DEFAULT_PORT,
        pid=pid if pid and _is_broker_of(pid, data) else None,
        ready=False,
        cluster_id=_cluster_id(data),
        security=Security.of(data),
    )


def _marker(data: Path) -> str:
    return f"-Dheadwater.broker={data}"


def _is_broker_of(pid: int, data: Path) -> bool:
    """Return whether the process with this id is the broker of this folder."""
    cmdline = Path(f"/proc/{pid}/cmdline")
    if Path("/proc/self").exists():
        try:
            return _marker(data).encode() in cmdline.read_bytes().split(b"\0")
        except OSError:
            return False
    listed = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return f"{_marker(data)} " in listed.stdout


def _is_ready(connection: Connection, cluster_id: str | None = None) -> bool:
    """Return whether the broker replies to a request. An open port is not enough: it opens before the broker is ready."""
    try:
        found = Cluster(connection).metadata()
    except ServiceUnreachable:
        return False
    return bool(found.brokers) and cluster_id in (None, found.cluster_id)


def _wait_until_ready(pid: int, data: Path, port: int, process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None if process else not _is_broker_of(pid, data):
            raise _did_not_start(data, "the broker's process ended during startup")
        if _is_ready(local_connection(data, port), _cluster_id(data)):
            return
        time.sleep(POLL_SECONDS)
    raise _did_not_start(data, f"the broker did not answer within {READY_SECONDS:.0f} seconds")


def _is_exiting(pid: int) -> bool:
    """Return whether a process has given up its memory, and with it its command line, but not yet all its ports."""
    process = Path(f"/proc/{pid}")
    try:
        if (process / "cmdline").read_bytes():
            return False
        threads = sum(1 for _ in (process / "task").iterdir())
        return threads > 1 or "\nState:\tZ" not in (process / "status").read_text()
    except OSError:
        return False


def _wait_until_ended(pid: int | None, data: Path) -> bool:
    deadline = time.monotonic() + STOP_SECONDS
    while pid is not None and (_is_broker_of(pid, data) or _is_exiting(pid)):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _format(data: Path, java: list[str]) -> None:
    command = [*java, "kafka.tools.StorageTool", "format", f"-t={new_cluster_id()}", "-c", SERVER_FILE]
    done = subprocess.run(command, cwd=data, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        (data / "logs" / "console.log").write_text(done.stdout + done.stderr)
        raise _did_not_start(data, "the broker's data folder could not be prepared")


def _did_not_start(data: Path, problem: str) -> SetupProblem:
    lines: list[str] = []
    for log in ("server.log", "console.log"):
        file = data / "logs" / log
        if file.is_file():
            text = file.read_text(errors="replace")
            lines += [line for line in text.splitlines() if line.strip() and not STACK_FRAME.match(line)][-8:]
    return SetupProblem(
        "broker-failed",
        problem,
        evidence={"log": data / "logs", "tail": "\n        ".join(["", *(line[:240] for line in lines)]) or "empty"},
        remedy="fix the cause shown in the log, then run `headwater broker start` again",
    )


def _require_free(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as failure:
            reason = failure.strerror or str(failure)
        else:
            return
    evidence: dict[str, object] = {"reason": reason}
    remedy = f"headwater broker start --port {_free_port()}"
    if _is_ready(Connection(f"{HOST}:{port}")):
        evidence["listening"] = "a Kafka broker"
        remedy += f", or use that one: --bootstrap {HOST}:{port}"
    raise SetupProblem("port-in-use", f"cannot listen on port {port} of {HOST}", evidence=evidence, remedy=remedy)


def _free_port() -> int:
    """Return a free port, which stays reserved until the broker listens on it.

    A connection that is closed here leaves the port in TIME_WAIT. For a minute, the kernel then gives it to no process
    that asks for any port, and still to a server that asks for this one.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, 0))
        listener.listen(1)
        port = int(listener.getsockname()[1])
        with socket.create_connection((HOST, port)):
            listener.accept()[0].close()
    return port


def _cluster_id(data: Path) -> str | None:
    try:
        lines = (data / "topics" / "meta.properties").read_text().splitlines()
    except OSError:
        return None
    return next((line.partition("=")[2] for line in lines if line.startswith("cluster.id=")), None)


def _make_folder(data: Path) -> None:
    try:
        (data / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise SetupProblem(
            "data-unwritable",
            "cannot create the broker's data folder",
            evidence={"data": data, "reason": failure.strerror or failure},
            remedy="headwater broker start --data DIR, with a writable folder",
        ) from None


def _read_record(data: Path) -> dict[str, int]:
    try:
        record = json.loads((data / RECORD_FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return {name: value for name, value in record.items() if isinstance(value, int)} if isinstance(record, dict) else {}


def _write_record(data: Path, *, pid: int | None, port: int) -> None:
    written = data / f"{RECORD_FILE}.new"
    written.write_text(json.dumps({"pid": pid, "port": port}) + "\n")
    written.rename(data / RECORD_FILE)


@contextmanager
def locked(data: Path) -> Iterator[None]:
    """Hold the lock of a data folder, which is created again if another process removes it in the meantime."""
    while True:
        with (data / LOCK_FILE).open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            if _is_open_file(stream.fileno(), data / LOCK_FILE):
                yield
                return
        _make_folder(data)


def _is_open_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
