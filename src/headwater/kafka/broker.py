"""The broker as a background process: started, found again, stopped.

Everything is in one data folder, and the process says on its command line which folder it serves. That is how it is
known again: a process id alone may by now belong to somebody else.
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
from headwater.kafka import clients
from headwater.kafka.broker_settings import (
    DEFAULT_DATA,
    DEFAULT_PORT,
    HOST,
    JVM_OPTIONS,
    new_cluster_id,
    server_properties,
)

READY_SECONDS = 90.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.05
STACK_FRAME = re.compile(r"\s+(at |\.\.\. \d+ more)")


@dataclass(frozen=True)
class BrokerStatus:
    """A local broker as it is now."""

    data: Path
    port: int
    pid: int | None
    ready: bool
    cluster_id: str | None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        return self.pid is not None

    def as_dict(self) -> dict[str, object]:
        return {
            "running": self.running,
            "ready": self.ready,
            "bootstrap": self.bootstrap,
            "port": self.port,
            "pid": self.pid,
            "cluster_id": self.cluster_id,
            "data": str(self.data),
            "log": str(self.data / "logs" / "server.log"),
        }


def status(data: Path = DEFAULT_DATA) -> BrokerStatus:
    found = _found(data.resolve())
    return replace(found, ready=found.running and _answers(found.port, found.cluster_id))


def default_bootstrap(data: Path = DEFAULT_DATA) -> str:
    """The local broker's address if it runs, else Kafka's usual one."""
    found = _found(data.resolve())
    return found.bootstrap if found.running else f"{HOST}:{DEFAULT_PORT}"


def start(
    data: Path = DEFAULT_DATA, port: int | None = None, *, on_fetch: Callable[[str], None] = lambda _: None
) -> BrokerStatus:
    """Start the broker, or find it running; either way it answers when this returns.

    Without a port it listens where it listened last, at first on 9092.
    """
    data = data.resolve()
    _make_folder(data)
    with _lock(data):
        now = _found(data)
        if now.pid is not None:
            if port not in (None, now.port):
                raise SetupProblem(
                    "broker-running",
                    f"the broker of this folder already runs, on port {now.port}",
                    evidence={"data": data, "pid": now.pid},
                    remedy=f"headwater broker stop --data {data}, or use another --data for a second broker",
                )
            _wait_until_ready(now.pid, data, now.port)
            return status(data)
        port = port or now.port
        _require_free(port)
        java = require_java().command
        classes = ["-cp", str(jar_paths("broker", on_fetch=on_fetch)[0].parent / "*")]
        (data / "server.properties").write_text(server_properties(port=port, controller_port=_free_port()))
        if now.cluster_id is None:
            _format(data, [str(java), *JVM_OPTIONS, *classes])
        command = [str(java), *JVM_OPTIONS, _mark(data), *classes, "kafka.Kafka", "server.properties"]
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
    """Stop the broker and wait until it is gone. The id of the process that was stopped, or None if none ran."""
    data = data.resolve()
    if not data.is_dir():
        return None
    with _lock(data):
        now = _found(data)
        if now.pid is None:
            return None
        os.kill(now.pid, signal.SIGTERM)
        if not _wait_until_gone(now.pid, data):
            os.kill(now.pid, signal.SIGKILL)
            _wait_until_gone(now.pid, data)
        _write_record(data, pid=None, port=now.port)
        return now.pid


def _found(data: Path) -> BrokerStatus:
    """What the data folder and the process table tell, without asking the broker."""
    record = _read_record(data)
    pid = record.get("pid")
    return BrokerStatus(
        data=data,
        port=record.get("port") or DEFAULT_PORT,
        pid=pid if pid and _serves(pid, data) else None,
        ready=False,
        cluster_id=_cluster_id(data),
    )


def _mark(data: Path) -> str:
    return f"-Dheadwater.broker={data}"


def _serves(pid: int, data: Path) -> bool:
    """Whether the process with this id is the broker of this folder."""
    cmdline = Path(f"/proc/{pid}/cmdline")
    if Path("/proc/self").exists():
        try:
            return _mark(data).encode() in cmdline.read_bytes().split(b"\0")
        except OSError:
            return False
    listed = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return f"{_mark(data)} " in listed.stdout


def _answers(port: int, cluster_id: str | None = None) -> bool:
    """A metadata request, not only an open port: the port opens before the broker can serve, or may be another's."""
    bootstrap = f"{HOST}:{port}"
    try:
        found = clients.cluster(clients.admin(bootstrap), bootstrap)
    except ServiceUnreachable:
        return False
    return bool(found.brokers) and cluster_id in (None, found.cluster_id)


def _wait_until_ready(pid: int, data: Path, port: int, process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None if process else not _serves(pid, data):
            raise _did_not_start(data, "the broker ended while it started")
        if _answers(port, _cluster_id(data)):
            return
        time.sleep(POLL_SECONDS)
    raise _did_not_start(data, f"the broker did not answer within {READY_SECONDS:.0f} seconds")


def _wait_until_gone(pid: int, data: Path) -> bool:
    deadline = time.monotonic() + STOP_SECONDS
    while _serves(pid, data):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _format(data: Path, java: list[str]) -> None:
    command = [*java, "kafka.tools.StorageTool", "format", f"-t={new_cluster_id()}", "-c", "server.properties"]
    done = subprocess.run(command, cwd=data, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        (data / "logs" / "console.log").write_text(done.stdout + done.stderr)
        raise _did_not_start(data, "the broker's data folder could not be prepared")


def _did_not_start(data: Path, problem: str) -> SetupProblem:
    lines: list[str] = []
    for log in ("server.log", "console.log"):
        file = data / "logs" / log
        if file.is_file():
            said = file.read_text(errors="replace").splitlines()
            lines += [line for line in said if line.strip() and not STACK_FRAME.match(line)][-8:]
    return SetupProblem(
        "broker-failed",
        problem,
        evidence={"log": data / "logs", "tail": "\n        ".join(["", *(line[:240] for line in lines)]) or "empty"},
        remedy="the log's last lines say why; then `headwater broker start` again",
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
    if _answers(port):
        evidence["there"] = "a Kafka broker answers on it"
        remedy += f", or use that one: --bootstrap {HOST}:{port}"
    raise SetupProblem("port-in-use", f"port {port} of {HOST} cannot be used", evidence=evidence, remedy=remedy)


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


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
            "cannot make the broker's data folder",
            evidence={"data": data, "reason": failure.strerror or failure},
            remedy="headwater broker start --data DIR, with a folder that can be written",
        ) from None


def _read_record(data: Path) -> dict[str, int]:
    try:
        record = json.loads((data / "broker.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return {name: value for name, value in record.items() if isinstance(value, int)} if isinstance(record, dict) else {}


def _write_record(data: Path, *, pid: int | None, port: int) -> None:
    written = data / "broker.json.new"
    written.write_text(json.dumps({"pid": pid, "port": port}) + "\n")
    written.rename(data / "broker.json")


@contextmanager
def _lock(data: Path) -> Iterator[None]:
    with (data / "lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
