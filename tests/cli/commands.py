"""Commands in processes of their own, observed while they run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from broker_support import HEADWATER
from versions_support import COMPLETE, SPARK
from waiting_support import PATIENCE_SECONDS


class Running:
    """A ``headwater`` process in its own process group."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.lines: list[str] = []

    def wait_for(self, text: str) -> str:
        """Read standard error up to a line that contains the text, and return that line."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line.rstrip("\n"))
            if text in line:
                return line
        raise AssertionError(f"no {text!r} in {self.lines}")

    def signal_group(self, number: int) -> None:
        os.killpg(self._process.pid, number)

    def kill_python_alone(self) -> None:
        self._process.kill()

    def end(self) -> int:
        """Read the rest of standard error, wait for the end, and return the exit status."""
        assert self._process.stderr is not None
        self.lines += self._process.stderr.read().splitlines()
        return self._process.wait(timeout=PATIENCE_SECONDS)

    @property
    def errors(self) -> str:
        return "\n".join(self.lines)


@contextmanager
def running(folder: Path, *arguments: str, **environment: str) -> Iterator[Running]:
    """Start a command. Kill its process group when the block ends."""
    process = subprocess.Popen(
        [HEADWATER, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield Running(process)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def imported_by(*arguments: object) -> set[str]:
    """Run a command in a new process and return the names of the modules that it has imported."""
    code = (
        "import sys\n"
        "from headwater.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end: assert not end.code\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=True
    )
    assert done.stdout
    return set(done.stderr.splitlines()[-1].split())


def assert_no_stack_trace(text: str) -> None:
    for noise in ("Traceback", "at org.apache", "at java.", "py4j", "SQLSTATE", 'File "'):
        assert noise not in text, text


def lines_after_note(errors: str) -> list[str]:
    """Return the lines of standard error without the one that names what another PySpark than 4.2 lacks."""
    lines = errors.splitlines()
    has_note = bool(lines) and lines[0].startswith("note: PySpark ") and SPARK != COMPLETE
    return lines[1:] if has_note else lines
