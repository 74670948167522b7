"""A process that runs headwater commands one after another in one JVM, because a JVM takes seconds to start.

The commands are Headwater's own; only the Spark session is created in advance. Start it with
``python -m soak.worker FD FOLDER``: it reads commands from standard input and writes results to the file descriptor.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headwater.spark import session as product_session
from soak.processes import run_in_process

MASTER = "local[2]"


class SharedSpark:
    """Replaces Headwater's session functions: every command gets its own session in the shared JVM."""

    def __init__(self, folder: Path) -> None:
        self._start = product_session.start_session
        self._base = self._start("soak", master=MASTER, jars=("spark", "delta"), log=folder / "spark.log")
        self._latest: Any = None
        vars(product_session).update(start_session=self.start_session, stop_session=self.stop_session)

    def start_session(self, _name: str, *, conf: dict[str, str] | None = None, **_: Any) -> Any:
        """Return a new session with Headwater's defaults and the command's settings."""
        self._latest = self._base.newSession()
        for key, value in {**product_session.default_conf(MASTER), **(conf or {})}.items():
            if self._latest.conf.isModifiable(key):
                self._latest.conf.set(key, value)
        self._latest.stop = self.stop_session
        return self._latest

    def stop_session(self, _: Any = None) -> None:
        """Stop the session's queries and unload the state stores, which would end with the process of a single command."""
        from headwater.spark.internals.state_stores import unload_state_stores

        if self._latest is not None:
            for query in self._latest.streams.active:
                query.stop()
        unload_state_stores(self._base)

    @property
    def jvm_pid(self) -> int:
        return int(self._base._jvm.java.lang.ProcessHandle.current().pid())


def serve(answers: Any, folder: Path) -> None:
    os.chdir(folder)
    spark = SharedSpark(folder)

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    answer({"ready": spark.jvm_pid})
    for line in sys.stdin:
        answer(asdict(run_in_process(*json.loads(line))))


if __name__ == "__main__":
    with os.fdopen(int(sys.argv[1]), "w") as answers:
        serve(answers, Path(sys.argv[2]))
