"""Commands in a process that stays for the whole test run, so that they share a JVM and its compiled code.

Each command has its own output, exit status and Spark session. Tests of signals, of the start of a process and of its end
use ``headwater`` and ``running`` instead.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cli.running import Ran

SHARE_SESSION = ["(share a session)"]
"""In a list of commands: those that follow use one session, instead of a session each."""


def run_all(folder: Path, *commands: list[str], stdin: str = "", own_jvm: bool = False) -> list[Ran]:
    """Run the commands one after another in a folder, each with the same standard input.

    With ``own_jvm`` they get a process of their own: a JVM gets its jars when it starts.
    """
    process = _CommandProcess() if own_jvm else _shared_process()
    try:
        return process.run({"folder": str(folder), "stdin": stdin, "commands": commands})
    finally:
        if own_jvm:
            process.close()


class _CommandProcess:
    """The process that runs the commands: one request and one response per line."""

    def __init__(self) -> None:
        self.environment = _environment()
        paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        responses, response_end = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(response_end)],
            stdin=subprocess.PIPE,
            text=True,
            pass_fds=[response_end],
            env={**self.environment, "PYTHONPATH": os.pathsep.join(paths)},
        )
        os.close(response_end)
        self._responses = os.fdopen(responses)

    def run(self, request: dict[str, object]) -> list[Ran]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        response = self._responses.readline()
        assert response, "the process that runs commands has ended"
        return [Ran(**result) for result in json.loads(response)]

    @property
    def is_usable(self) -> bool:
        return self._process.poll() is None and self.environment == _environment()

    def close(self) -> None:
        self._process.communicate()
        self._responses.close()


_processes: list[_CommandProcess] = []


def _shared_process() -> _CommandProcess:
    """Return the running process. A change of the environment, such as another S3 server, needs a new one."""
    if not _processes or not _processes[-1].is_usable:
        _close_processes()
        _processes.append(_CommandProcess())
    return _processes[-1]


@atexit.register
def _close_processes() -> None:
    while _processes:
        _processes.pop().close()


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


def _serve(response_end: int) -> None:
    requests, responses = sys.stdin, os.fdopen(response_end, "w")
    with tempfile.NamedTemporaryFile("a+") as out, tempfile.NamedTemporaryFile("a+") as errors:
        # A JVM keeps the descriptors that it was started with, so that they stay the same for all commands.
        os.dup2(out.fileno(), 1)
        os.dup2(errors.fileno(), 2)
        for line in requests:
            request = json.loads(line)
            _change_folder(request["folder"])
            with _modules_and_session_of_a_request():
                results = [
                    vars(_run_one(request["stdin"], arguments, Path(out.name), Path(errors.name)))
                    for arguments in request["commands"]
                    if arguments != SHARE_SESSION or _start_shared_session()
                ]
            print(json.dumps(results), file=responses, flush=True)


def _change_folder(folder: str) -> None:
    """Change the working directory, also of Hadoop's file system in a JVM that is already running."""
    os.chdir(folder)
    jvm = getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_jvm", None)
    if jvm is not None:
        jvm.java.lang.System.setProperty("user.dir", folder)
        jvm.org.apache.hadoop.fs.FileSystem.closeAll()


@contextlib.contextmanager
def _modules_and_session_of_a_request() -> Iterator[None]:
    """Forget the modules that commands imported from their folder, and stop the session that they share."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    from headwater.spark.session import active_session, stop_session

    if session := active_session():
        stop_session(session)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        file = Path(getattr(sys.modules[name], "__file__", None) or "/")
        if file.is_relative_to(Path.cwd()):
            del sys.modules[name]


def _start_shared_session() -> bool:
    """Start a session that the following commands find, and return that there is no output of it."""
    from headwater.spark.session import start_session

    start_session("shared", conf={"spark.sql.shuffle.partitions": "2"}, log=Path("shared.log"))
    return False


def _run_one(stdin: str, arguments: list[str], out: Path, errors: Path) -> Ran:
    """Run a command and return what this process and the JVM printed in the meantime."""
    from headwater.cli.main import main

    before = out.stat().st_size, errors.stat().st_size
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    sys.argv = ["headwater", *arguments]
    status = 0
    try:
        main()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0
    sys.stdout.flush()
    sys.stderr.flush()
    printed = [file.read_bytes()[start:].decode() for file, start in zip((out, errors), before, strict=True)]
    return Ran(status, *printed)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
