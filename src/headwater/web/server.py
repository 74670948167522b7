"""The web server of the page."""

from __future__ import annotations

import logging
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI
from nicegui import ui

from headwater.checkpoint.filetree import FileTree
from headwater.core.errors import SetupProblem
from headwater.kafka.options import Connection
from headwater.web.gate import WILDCARDS, AccessPolicy, Gate
from headwater.web.page import Actions, Page, SharedCheckpoint
from headwater.web.records_pane import FindRecords
from headwater.web.state_cache import FindViewRows
from headwater.web.watch import WatchedCheckpoint

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 8765
STOP_SECONDS = 10.0


@dataclass(frozen=True)
class ServedCheckpoint:
    """A checkpoint to show: its name on the page, and a function that opens it, called until it exists."""

    name: str
    open: Callable[[], FileTree]
    connection: Connection | None = None
    """The connection to the job's source, if the caller knows more than the checkpoint records, such as a password."""


class PageServer:
    """A server for the page. Binds its port on creation. At most one per process: NiceGUI's pages are global."""

    def __init__(
        self,
        checkpoints: Sequence[ServedCheckpoint],
        *,
        host: str = LOOPBACK,
        port: int | None = None,
        allow_changes: bool = False,
        find_records: FindRecords | None = None,
        find_view_rows: FindViewRows | None = None,
    ) -> None:
        self._socket = bind_socket(host, port)
        self._shared = [
            SharedCheckpoint(WatchedCheckpoint(one.name, one.open), one.connection, find_view_rows)
            for one in checkpoints
        ]
        self._watched = [one.watched for one in self._shared]
        self._policy = AccessPolicy(secrets.token_urlsafe(24), host, int(self._socket.getsockname()[1]))
        self._allow_changes = allow_changes
        self._find_records = find_records
        self._server = self._create_server()
        self._thread = threading.Thread(target=self._serve, name="headwater page", daemon=True)

    @property
    def url(self) -> str:
        """The URL of the page, with its token."""
        host = _own_address() if self._policy.host in WILDCARDS else self._policy.host
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self._policy.port}/?token={self._policy.token}"

    def start(self) -> None:
        """Serve from a thread, which leaves signal handlers alone and ends with the process."""
        for watched in self._watched:
            watched.start()
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(STOP_SECONDS)
        for watched in self._watched:
            watched.stop()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

    def _create_server(self) -> uvicorn.Server:
        app = _application(self._shared, allow_changes=self._allow_changes, find_records=self._find_records)
        config = uvicorn.Config(
            Gate(app, self._policy),
            log_level="error",
            access_log=False,
            lifespan="on",
            ws_max_size=4_000_000,
            timeout_graceful_shutdown=5,
            server_header=False,
        )
        return uvicorn.Server(config)


def _application(
    checkpoints: Sequence[SharedCheckpoint], *, allow_changes: bool, find_records: FindRecords | None
) -> FastAPI:
    # Serve the page only, without FastAPI's documentation and schema.
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    actions = _actions() if allow_changes else None

    def root() -> None:
        Page(checkpoints, actions, find_records).build()

    ui.page("/")(root)
    ui.run_with(app, title="Headwater", dark=None, show_welcome_message=False, reconnect_timeout=30.0)
    logging.getLogger("nicegui").setLevel(logging.ERROR)
    return app


def _actions() -> Actions:
    from headwater.web.change_dialog import ChangeButtons  # noqa: PLC0415  a read-only page does not load it

    return lambda files, selected: ChangeButtons(files, selected).build()


def bind_socket(host: str, port: int | None) -> socket.socket:
    """Return a socket that listens on the port; if none is given, on the default port or else a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in (DEFAULT_PORT, 0) if port is None else (port,):
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
            listener.listen(128)
        except OSError as error:
            listener.close()
            reason = error.strerror or str(error)
        else:
            return listener
    raise SetupProblem(
        "port-in-use",
        f"cannot serve the page on {host} port {port if port is not None else DEFAULT_PORT}",
        evidence={"reason": reason},
        remedy="choose another --port, or leave it out to use a free one",
    )


def _own_address() -> str:
    """Return the address of this machine on its network. No packet is sent to find it."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return LOOPBACK
