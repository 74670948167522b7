"""The web server of the page."""

from __future__ import annotations

import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from nicegui import ui

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.locate import open_checkpoint
from headwater.core.errors import SetupProblem
from headwater.fleet.fleet import Fleet
from headwater.kafka.options import Connection
from headwater.web.access import WILDCARDS, AccessOptions
from headwater.web.fleet_page import STREAM_PATH, FleetPage
from headwater.web.fleet_watch import FleetWatch
from headwater.web.gate import VISITOR, Gate, Visitor
from headwater.web.page import Actions, Page, SharedCheckpoint
from headwater.web.permalink import Place
from headwater.web.records_pane import FindRecords
from headwater.web.relatives import KnownStream, Relatives, known_streams
from headwater.web.state_cache import FindViewRows
from headwater.web.watch import WatchedCheckpoint

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 8765
STOP_SECONDS = 10.0
POLL_END_SECONDS = 5.0
UNUSED_SECONDS, UPKEEP_SECONDS = 120.0, 15.0


@dataclass(frozen=True)
class ServedCheckpoint:
    """A checkpoint to show: its name on the page, and a function that opens it, called until it exists."""

    name: str
    open: Callable[[], FileTree]
    connection: Connection | None = None
    """The connection to the job's source, if the caller knows more than the checkpoint records, such as a password."""


class PageServer:
    """A server for the page. Binds its port on creation. At most one per process: NiceGUI's pages are global.

    It serves the page of some checkpoints or, with ``fleet``, a page of all streams and one for each of them.
    """

    def __init__(
        self,
        checkpoints: Sequence[ServedCheckpoint] = (),
        *,
        fleet: FleetWatch | None = None,
        host: str = LOOPBACK,
        port: int | None = None,
        access: AccessOptions | None = None,
        find_records: FindRecords | None = None,
        find_view_rows: FindViewRows | None = None,
    ) -> None:
        self._socket = bind_socket(host, port)
        self._shared = [
            SharedCheckpoint(WatchedCheckpoint(one.name, one.open), one.connection, find_view_rows)
            for one in checkpoints
        ]
        self._watched = [one.watched for one in self._shared]
        self._fleet = fleet
        self._streams = OpenStreams(fleet.fleet, find_view_rows) if fleet else None
        self._relatives = Relatives(self._known_streams)
        self._access = access or AccessOptions()
        self._policy = self._access.policy(secrets.token_urlsafe(24), host, int(self._socket.getsockname()[1]))
        self._find_records = find_records
        self._server = self._create_server()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="headwater page", daemon=True)

    @property
    def url(self) -> str:
        """The URL of the page, with its token, if a token is what opens it."""
        host = _own_address() if self._policy.host in WILDCARDS else self._policy.host
        shown = f"[{host}]" if ":" in host else host
        scheme = "https" if self._policy.is_https else "http"
        token = f"?token={self._policy.token}" if self._policy.uses_token else ""
        return f"{scheme}://{shown}:{self._policy.port}/{token}"

    def start(self) -> None:
        """Serve from a thread, which leaves signal handlers alone and ends with the process."""
        for watched in self._watched:
            watched.start()
        self._thread.start()
        threading.Thread(target=self._close_unused, name="headwater upkeep", daemon=True).start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(STOP_SECONDS)
        self._stopped.set()
        for watched in self._watched:
            watched.stop()
        if self._streams is not None:
            self._streams.close()
        self._relatives.close()
        if self._fleet is not None:
            self._fleet.stop()
        deadline = time.monotonic() + POLL_END_SECONDS
        for watched in self._watched:
            watched.join(deadline - time.monotonic())

    def _close_unused(self) -> None:
        """Stop polling what readers have left, also if no other reader comes."""
        while not self._stopped.wait(UPKEEP_SECONDS):
            if self._streams is not None:
                self._streams.close_unused()
            self._relatives.close_unused()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

    def _create_server(self) -> uvicorn.Server:
        config = uvicorn.Config(
            Gate(self._application(), self._policy),
            log_level="error",
            access_log=False,
            lifespan="on",
            ws_max_size=4_000_000,
            timeout_graceful_shutdown=5,
            server_header=False,
            proxy_headers=False,  # the gate decides whom to believe
            ssl_certfile=self._access.tls_cert,
            ssl_keyfile=self._access.tls_key,
        )
        return uvicorn.Server(config)

    def _application(self) -> FastAPI:
        # Serve the page only, without FastAPI's documentation and schema.
        app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
        if self._fleet is None:
            ui.page("/")(self._checkpoints_page)
        else:
            ui.page("/")(self._fleet_page)
            ui.page(STREAM_PATH)(self._stream_page)
        ui.run_with(app, title="Headwater", dark=None, show_welcome_message=False, reconnect_timeout=30.0)
        logging.getLogger("nicegui").setLevel(logging.ERROR)
        return app

    def _checkpoints_page(self, request: Request) -> None:
        visitor: Visitor = request.scope[VISITOR]
        place = Place.from_query(request.query_params)
        Page(
            self._shared, visitor, _actions(visitor), self._find_records, relatives=self._relatives, place=place
        ).build()

    def _fleet_page(self, request: Request) -> None:
        assert self._fleet is not None
        FleetPage(self._fleet, request.scope[VISITOR]).build()

    def _stream_page(self, request: Request, name: str = "") -> None:
        assert self._streams is not None
        shared = self._streams.get(name)
        if shared is None:
            raise HTTPException(404, "there is no such stream")
        visitor: Visitor = request.scope[VISITOR]
        place = Place.from_query(request.query_params)
        Page(
            [shared],
            visitor,
            _actions(visitor),
            self._find_records,
            relatives=self._relatives,
            home="/",
            place=place,
            path=STREAM_PATH,
        ).build()

    def _known_streams(self) -> list[KnownStream]:
        if self._fleet is None:
            return known_streams(self._watched)
        streams = self._fleet.fleet.snapshot.streams
        return [KnownStream(one.name, one.location, one.summary.forked_from) for one in streams]


def _actions(visitor: Visitor) -> Actions | None:
    if not visitor.may_change:
        return None
    from headwater.web.change_dialog import ChangeButtons  # noqa: PLC0415  a read-only page does not load it

    return lambda files, selected: ChangeButtons(files, selected, visitor).build()


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


class OpenStreams:
    """Returns what readers of a stream's page share, and closes what no page has used for a while."""

    def __init__(self, fleet: Fleet, find_view_rows: FindViewRows | None = None) -> None:
        self._fleet = fleet
        self._find_view_rows = find_view_rows
        self._open: dict[str, SharedCheckpoint] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> SharedCheckpoint | None:
        """Return a stream by its name in the fleet; None if there is none."""
        files = self._fleet.files_of(name)
        if files is None:
            return None
        with self._lock:
            if name not in self._open:
                location = files.location
                watched = WatchedCheckpoint(name, lambda: open_checkpoint(location))
                watched.start()
                self._open[name] = SharedCheckpoint(watched, None, self._find_view_rows)
            self._open[name].used_at = time.monotonic()
            return self._open[name]

    def close_unused(self) -> None:
        """Stop watching those that no page has shown lately."""
        with self._lock:
            self._close(lambda shared: time.monotonic() - shared.used_at > UNUSED_SECONDS)

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            self._close(lambda _: True)

    def _close(self, is_unused: Callable[[SharedCheckpoint], bool]) -> None:
        for name in [name for name, shared in self._open.items() if is_unused(shared)]:
            self._open.pop(name).watched.stop()
