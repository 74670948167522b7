"""Commands of ours that run beside this one, and are found again when this one was killed before it could stop them."""

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


def command_line(*words: str) -> list[str]:
    """``headwater ...`` with the Python that runs now."""
    return [sys.executable, "-m", "headwater", *words]


class Child:
    """One command in a session of its own, so that a Ctrl-C on the terminal reaches only its parent.

    Its process id and its start time are kept in ``record``: together they name a process, a number alone does not.
    """

    def __init__(self, name: str, words: Sequence[str], *, record: Path, log: Path) -> None:
        self.name = name
        self.log = log
        self._record = record
        for folder in (record.parent, log.parent):
            folder.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command_line(*words),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._write_record()

    def _write_record(self) -> None:
        written = self._record.with_suffix(".new")
        written.write_text(json.dumps({"pid": self.process.pid, "started": started(self.process.pid)}))
        written.rename(self._record)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""
        return self.process.poll()

    def ask_to_stop(self) -> None:
        if self.exit_status is None:
            self.process.terminate()

    def stop(self, *, patience_seconds: float) -> None:
        """Ask, wait, and end all of its processes if it does not listen."""
        self.ask_to_stop()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(patience_seconds)
        _end_group(self.process.pid)
        self.process.wait()
        self._record.unlink(missing_ok=True)

    def last_words(self, lines: int = 12) -> str:
        """The end of what it printed."""
        with suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""


def stop_leftovers(records: Path, *, patience_seconds: float) -> list[int]:
    """Stop the children of a parent that was killed; the ids of those that were still there."""
    found = []
    for record in sorted(records.glob("*.json")):
        with suppress(OSError, ValueError, TypeError, KeyError):
            held = json.loads(record.read_text())
            if held["started"] is not None and started(int(held["pid"])) == held["started"]:
                found.append(int(held["pid"]))
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + patience_seconds
    while any(started(pid) for pid in found) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    for pid in found:
        _end_group(pid)
    return found


def started(pid: int) -> str | None:
    """When a process began, as the operating system tells it; None when there is no such process, or only its zombie."""
    if Path("/proc/self/stat").exists():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] == "Z" else fields[19]
    listed = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return listed.stdout.strip() or None


def _end_group(leader: int) -> None:
    """A child leads its process group; what it left behind there goes with it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
