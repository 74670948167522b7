"""A process that runs headwater commands side by side in one JVM, because a JVM takes seconds to start.

The commands are Headwater's own; only the Spark session is created in advance. Start it with
``python -m soak.worker SOCKET LOG``. Each connection to the socket carries one command and its result.
"""

from __future__ import annotations

import io
import json
import signal
import socketserver
import sys
import threading
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyspark

from headwater.cli import main as command_line
from headwater.spark import session as product_session
from soak import attached
from soak.cells import FREQUENT_SNAPSHOTS, table_formats_on
from soak.loaded_stores import LoadedStores
from soak.processes import CommandResult, run_main

MASTER = "local[2]"


class SharedSpark:
    """Replaces Headwater's session functions: every command gets its own session in the shared JVM."""

    def __init__(self, log: Path) -> None:
        self._start = product_session.start_session
        jars = ("spark", *table_formats_on(pyspark.__version__))
        # The first query decides how often the state stores of all of them are maintained.
        self._base = self._start("soak", master=MASTER, conf=FREQUENT_SNAPSHOTS, jars=jars, log=log)
        self.stores = LoadedStores(self._base)
        self._of_thread = threading.local()
        vars(product_session).update(
            start_session=self.start_session, stop_session=self.stop_session, active_session=self.open_session
        )

    def open_session(self) -> Any:
        """Return a session of this command alone, for the commands that use whatever session there is."""
        return self.start_session("")

    def start_session(self, _name: str, *, conf: dict[str, str] | None = None, **_: Any) -> Any:
        """Return a new session with Headwater's defaults and the command's settings."""
        session = self._base.newSession()
        for key, value in {**product_session.default_conf(MASTER), **(conf or {})}.items():
            if session.conf.isModifiable(key):
                session.conf.set(key, value)
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)
        session.stop = self.stop_session
        self._of_thread.latest = session
        return session

    def stop_session(self, _: Any = None) -> None:
        """Stop the queries of the command, as the end of its process would."""
        session = getattr(self._of_thread, "latest", None)
        for query in session.streams.active if session is not None else ():
            query.stop()


class OutputOfThread(io.TextIOBase):
    """Standard output or standard error, with a buffer for each thread that runs a command."""

    def __init__(self) -> None:
        self._of_thread = threading.local()

    def begin(self) -> None:
        self._of_thread.buffer = io.StringIO()

    def end(self) -> str:
        text: str = self._of_thread.buffer.getvalue()
        del self._of_thread.buffer
        return text

    def write(self, text: str) -> int:
        buffer = getattr(self._of_thread, "buffer", None)
        return int(buffer.write(text)) if buffer is not None else len(text)

    def writable(self) -> bool:
        return True


def serve(address: str, log: Path) -> None:
    out, err = OutputOfThread(), OutputOfThread()
    spark = SharedSpark(log)
    set_handler = signal.signal

    def set_handler_of_main_thread(number: int, handler: Any) -> Any:
        return set_handler(number, handler) if threading.current_thread() is threading.main_thread() else None

    vars(signal).update(signal=set_handler_of_main_thread)  # signals are for whole processes
    # Typer keeps the arguments of a converted command, so that commands side by side need one each.
    vars(command_line).update(_root_of=command_line._root_of.__wrapped__)
    vars(sys).update(stdout=out, stderr=err)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            request = json.loads(self.rfile.readline())
            out.begin()
            err.begin()
            verb, *rest = request["arguments"]
            is_program = verb == attached.VERB
            try:
                status = attached.run_attached(spark.start_session, rest) if is_program else run_main([verb, *rest])
                spark.stop_session()
                spark.stores.wait_until_unloaded(request["folder"])
            except Exception:  # the story shows it
                traceback.print_exc()
                status = 1
            answer = asdict(CommandResult(status, out.end(), err.end()))
            self.wfile.write(json.dumps(answer).encode() + b"\n")

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True
        request_queue_size = 64

    draft = f"{address}.draft"  # there from the moment on which connections are accepted
    with Server(draft, Handler) as server:
        Path(draft).rename(address)
        server.serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
