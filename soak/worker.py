"""A process that carries out headwater commands one after another in one JVM, because a JVM takes seconds to start.

The commands are the product's own, words and all; only the session that they ask for is there already. Started as
``python -m soak.worker FD FOLDER``: commands come on standard input, answers go to the file descriptor.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

from headwater.spark import session as product_session

MASTER = "local[2]"


class SharedSpark:
    """Gives every command a session of its own in the one JVM."""

    def __init__(self, folder: Path) -> None:
        self._start = product_session.start_session
        self._base = self._start("soak", master=MASTER, jars=("spark",), log=folder / "spark.log")
        self._latest: Any = None
        vars(product_session).update(start_session=self.start_session, stop_session=self.end)

    def start_session(self, _name: str, *, conf: dict[str, str] | None = None, **_: Any) -> Any:
        """What a command gets instead of a new Spark: the defaults of the product and its own settings."""
        self._latest = self._base.newSession()
        for key, value in {**product_session.default_conf(MASTER), **(conf or {})}.items():
            if self._latest.conf.isModifiable(key):
                self._latest.conf.set(key, value)
        self._latest.stop = self.end
        return self._latest

    def end(self, _: Any = None) -> None:
        """A process of its own would end here, and its state stores with it."""
        from headwater.spark.state_stores import unload_state_stores

        if self._latest is not None:
            for query in self._latest.streams.active:
                query.stop()
        unload_state_stores(self._base)

    @property
    def jvm_pid(self) -> int:
        return int(self._base._jvm.java.lang.ProcessHandle.current().pid())


def carry_out(arguments: list[str]) -> dict[str, Any]:
    from headwater.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    status = 0
    sys.argv = ["headwater", *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1 if ended.code else 0
    return {"status": status, "out": out.getvalue(), "err": err.getvalue()}


def serve(answers: Any, folder: Path) -> None:
    os.chdir(folder)
    spark = SharedSpark(folder)

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    answer({"ready": spark.jvm_pid})
    for line in sys.stdin:
        answer(carry_out(json.loads(line)))


if __name__ == "__main__":
    with os.fdopen(int(sys.argv[1]), "w") as held:
        serve(held, Path(sys.argv[2]))
