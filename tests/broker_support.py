"""A real broker for tests, started and stopped through the product's own command."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

HEADWATER = Path(sys.executable).with_name("headwater")


def headwater(
    *arguments: object, stdin: str | bytes = b"", cwd: Path | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run the installed command as a user would, and give what it said and its exit status."""
    done = subprocess.run(
        [HEADWATER, *map(str, arguments)],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        cwd=cwd,
        timeout=timeout,
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Broker:
    """Where the session's broker listens and keeps its data."""

    bootstrap: str
    data: Path

    def produce(self, topic: str, *lines: str, partition: int | None = None) -> None:
        where = [] if partition is None else ["--partition", str(partition)]
        text = "".join(f"{line}\n" for line in lines)
        done = headwater("produce", topic, "--bootstrap", self.bootstrap, *where, stdin=text)
        assert done.returncode == 0, done.stderr

    def consume(self, topic: str, count: int, timeout: float = 20) -> list[str]:
        limits = ["--from-beginning", "--count", count, "--timeout", timeout]
        done = headwater("consume", topic, "--bootstrap", self.bootstrap, *limits)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests of a session; tests keep apart by the names of their topics."""
    data = tmp_path_factory.mktemp("kafka")
    port = free_port()
    started = headwater("broker", "start", "--port", port, "--data", data, timeout=300)
    assert started.returncode == 0, started.stderr
    pid = int((data / "broker.json").read_text().split('"pid": ')[1].split(",")[0])
    try:
        yield Broker(f"127.0.0.1:{port}", data)
    finally:
        stopped = headwater("broker", "stop", "--data", data)
        if stopped.returncode:
            os.kill(pid, signal.SIGKILL)
