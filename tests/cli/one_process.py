"""Several commands in one process, so that they share a JVM. Each has its own output and exit status."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from cli.running import Ran

SHARE_SESSION = ["(share a session)"]
"""In a list of commands: those that follow use one session, instead of a session each."""


def run_all(folder: Path, *commands: list[str], stdin: str = "", timeout: float = 850) -> list[Ran]:
    """Run the commands one after another in a folder, each with the same standard input."""
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps([stdin, commands]),
        capture_output=True,
        text=True,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
        },
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Ran(**result) for result in json.loads(done.stdout)]


def _run_one(stdin: str, arguments: list[str]) -> Ran:
    """Run a command with the output of the entire process redirected, including that of the JVM."""
    from headwater.cli.main import main

    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        saved = os.dup(1), os.dup(2)
        os.dup2(out.fileno(), 1)
        os.dup2(errors.fileno(), 2)
        sys.argv = ["headwater", *arguments]
        status = 0
        try:
            main()
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(saved[0], 1)
            os.dup2(saved[1], 2)
        out.seek(0)
        errors.seek(0)
        return Ran(status, out.read(), errors.read())


if __name__ == "__main__":
    text, commands = json.load(sys.stdin)
    results = []
    for arguments in commands:
        if arguments == SHARE_SESSION:
            from headwater.spark.session import start_session

            start_session("shared", conf={"spark.sql.shuffle.partitions": "2"}, log=Path("shared.log"))
        else:
            results.append(vars(_run_one(text, arguments)))
    print(json.dumps(results))
