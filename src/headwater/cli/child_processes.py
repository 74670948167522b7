"""Headwater commands in processes of their own, some of them in the background."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

POLL_SECONDS = 0.05


def command_line(*arguments: str) -> list[str]:
    """Return the command line of ``headwater ...`` on the current Python interpreter."""
    return [sys.executable, "-m", "headwater", *arguments]


def run_command(
    arguments: Sequence[str], *, timeout_seconds: float | None = None, ignore_interrupts: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return its output. With ``ignore_interrupts``, Ctrl-C does not reach it."""
    return subprocess.run(
        command_line(*arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
        start_new_session=ignore_interrupts,
    )


class BackgroundCommand:
    """A command that runs in the background, in a session of its own: Ctrl-C on the terminal reaches only its parent.

    Its process id and start time are written to ``record``, so that ``stop_orphans`` finds it after the parent was
    killed. A process id alone does not identify a process: the system reuses them.
    """

    def __init__(self, name: str, arguments: Sequence[str], *, record: Path, log: Path) -> None:
        self.name = name
        self.log = log
        self._record = record
        for folder in (record.parent, log.parent):
            folder.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command_line(*arguments),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._write_record()

    def _write_record(self) -> None:
        draft = self._record.with_suffix(".new")
        draft.write_text(json.dumps({"pid": self.pid, "started": process_start_time(self.pid)}))
        draft.rename(self._record)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """The exit status, or None while the command runs."""
        return self._process.poll()

    def terminate(self) -> None:
        """Send SIGTERM without waiting."""
        if self.exit_status is None:
            self._process.terminate()

    def stop(self, *, timeout_seconds: float) -> None:
        """Send SIGTERM, wait, and kill the process group if the command has not ended in time."""
        self.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_seconds)
        _kill_group(self.pid)
        self._process.wait()
        self._record.unlink(missing_ok=True)

    def log_tail(self, lines: int = 12) -> str:
        """Return the last lines of the command's output."""
        with suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""


def stop_orphans(records: Path, *, timeout_seconds: float) -> list[int]:
    """Stop the background commands that a killed parent left behind; return the process ids of those still running."""
    found = []
    for record in sorted(records.glob("*.json")):
        with suppress(OSError, ValueError, TypeError, KeyError):
            recorded = json.loads(record.read_text())
            pid, started = int(recorded["pid"]), recorded["started"]
            if started is not None and process_start_time(pid) == started:
                found.append(pid)
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_seconds
    while any(process_start_time(pid) for pid in found) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    for pid in found:
        _kill_group(pid)
    return found


def process_start_time(pid: int) -> str | None:
    """Return the start time of a process as the operating system reports it; None for no process or a zombie."""
    if Path("/proc/self/stat").exists():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] == "Z" else fields[19]
    listed = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return listed.stdout.strip() or None


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
