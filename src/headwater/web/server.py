"""Serves the page, on loopback, behind its gate."""

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
from headwater.web.gate import WILDCARDS, Admission, Gate
from headwater.web.page import Actions, Page, Shown
from headwater.web.records_pane import FindRecords
from headwater.web.watch import Watched

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 8765
STOP_SECONDS = 10.0


@dataclass(frozen=True)
class Place:
    """A checkpoint to show: its name on the page, and how it is opened (again and again until it is there)."""

    name: str
    opened: Callable[[], FileTree]


class PageServer:
    """Made with its port bound, so that ``url`` holds. One for each process: NiceGUI has its pages in one place."""

    def __init__(
        self,
        places: Sequence[Place],
        *,
        host: str = LOOPBACK,
        port: int | None = None,
        allow_changes: bool = False,
        find_records: FindRecords | None = None,
    ) -> None:
        self._socket = bound(host, port)
        self._watched = [Watched(place.name, place.opened) for place in places]
        self._admission = Admission(secrets.token_urlsafe(24), host, int(self._socket.getsockname()[1]))
        self._allow_changes = allow_changes
        self._find_records = find_records
        self._server = self._make_server()
        self._thread = threading.Thread(target=self._serve, name="headwater page", daemon=True)

    @property
    def url(self) -> str:
        host = _own_address() if self._admission.host in WILDCARDS else self._admission.host
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self._admission.port}/?token={self._admission.token}"

    def start(self) -> None:
        """Serve in a thread of its own: signals stay with whoever has them, and the page ends with the process."""
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

    def _make_server(self) -> uvicorn.Server:
        app = _application(self._watched, allow_changes=self._allow_changes, find_records=self._find_records)
        config = uvicorn.Config(
            Gate(app, self._admission),
            log_level="error",
            access_log=False,
            lifespan="on",
            ws_max_size=4_000_000,
            timeout_graceful_shutdown=2,
            server_header=False,
        )
        return uvicorn.Server(config)


def _application(watched: Sequence[Watched], *, allow_changes: bool, find_records: FindRecords | None) -> FastAPI:
    # Neither documentation nor schema: the page is the only thing that is served.
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    shown = [Shown(held) for held in watched]
    actions = _actions() if allow_changes else None

    def root() -> None:
        Page(shown, actions, find_records).build()

    ui.page("/")(root)
    ui.run_with(app, title="Headwater", dark=None, show_welcome_message=False, reconnect_timeout=30.0)
    logging.getLogger("nicegui").setLevel(logging.ERROR)
    return app


def _actions() -> Actions:
    """The changing half of the page is not even loaded unless it was asked for."""
    from headwater.web.change_dialog import ChangeButtons  # noqa: PLC0415

    return lambda files, selected: ChangeButtons(files, selected).build()


def bound(host: str, port: int | None) -> socket.socket:
    """A socket that listens on the port, or, where none was asked for, on the usual one or any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for tried in (DEFAULT_PORT, 0) if port is None else (port,):
        held = socket.socket(family, socket.SOCK_STREAM)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind((host, tried))
            held.listen(128)
        except OSError as error:
            held.close()
            reason = error.strerror or str(error)
        else:
            return held
    raise SetupProblem(
        "port-in-use",
        f"the page cannot be served on {host} port {port if port is not None else DEFAULT_PORT}",
        evidence={"reason": reason},
        remedy="choose another one with --port, or leave it out",
    )


def _own_address() -> str:
    """The address under which this machine is reached from outside; nothing is sent to find it."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return LOOPBACK
