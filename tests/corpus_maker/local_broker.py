"""A Kafka broker for the run, started with the `headwater` command."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HEADWATER = Path(sys.executable).with_name("headwater")


@contextmanager
def local_broker() -> Iterator[str]:
    """Yield host:port of a broker on this machine that runs until the block ends."""
    with tempfile.TemporaryDirectory() as data, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        subprocess.run([HEADWATER, "broker", "start", "--port", str(port), "--data", data], check=True)
        try:
            yield f"127.0.0.1:{port}"
        finally:
            subprocess.run([HEADWATER, "broker", "stop", "--data", data], check=True)
