"""Ask the process that runs on a checkpoint to stop: a request file beside the lease, which the holder answers.

Any machine that reaches the checkpoint can make a request. It names the lease that it was made for, so it never stops a
later run. A holder reads it within a second or two, answers, and releases the lease when its current batch is committed.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import HEADWATER_FOLDER
from headwater.checkpoint.lease import Lease, awaited_lease, held_lease, record_end
from headwater.checkpoint.signs_of_life import signs_of_life
from headwater.core.errors import CheckpointBusy

REQUEST = f"{HEADWATER_FOLDER}/stop.json"
ANSWER = f"{HEADWATER_FOLDER}/stopping.json"
ANSWER_SECONDS = 15.0
POLL_SECONDS, REMOTE_POLL_SECONDS = 0.2, 1.0
CHECK_SECONDS, REMOTE_CHECK_SECONDS = 0.5, 2.0

OnWait = Callable[[Lease, float], None]


@dataclass(frozen=True)
class StopRequest:
    """A request to the holder of one lease. With ``now`` it does not wait for the current batch."""

    request_id: str
    lease: dict[str, Any]
    now: bool
    requested_by: str
    requested_at_ms: int

    @classmethod
    def to_holder_of(cls, lease: Lease, *, now: bool) -> StopRequest:
        """Return a new request."""
        return cls(uuid.uuid4().hex, lease.identity, now, _this_user(), time.time_ns() // 1_000_000)

    def to_bytes(self) -> bytes:
        """Return the contents of the request file."""
        return json.dumps(self.__dict__).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> StopRequest | None:
        """Parse a request file; None if it is corrupt."""
        try:
            value = json.loads(data)
            return cls(
                str(value["request_id"]),
                dict(value["lease"]),
                value["now"] is True,
                str(value["requested_by"]),
                int(value["requested_at_ms"]),
            )
        except (ValueError, TypeError, KeyError, RecursionError):
            return None


def _this_user() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # an id without a name, as in some containers
        user = str(os.getuid())
    return f"{user} on {socket.gethostname()}"


class StopRequests:
    """What the holder of a lease checks while it runs. A store that cannot be reached never fails the run."""

    def __init__(self, files: FileTree, lease: Lease) -> None:
        self._files = files
        self._lease = lease
        self._next_check = 0.0
        self._answered: str | None = None
        # A request that an earlier run did not see, or an answer of that run.
        self._remove()

    def poll(self) -> StopRequest | None:
        """Return the request that is made to this lease, if the time has come to look for one, and answer it."""
        now = time.monotonic()
        if now < self._next_check:
            return None
        local = self._files.local_path() is not None
        self._next_check = now + (CHECK_SECONDS if local else REMOTE_CHECK_SECONDS)
        with suppress(Exception):
            request = _read_request(self._files)
            if request is not None and request.lease == self._lease.identity:
                self._answer(request)
                return request
        return None

    def _answer(self, request: StopRequest) -> None:
        if self._answered != request.request_id:
            answer = {"request_id": request.request_id, "answered_at_ms": time.time_ns() // 1_000_000}
            self._files.write(ANSWER, json.dumps(answer).encode())
            self._answered = request.request_id

    def _remove(self) -> None:
        for path in (REQUEST, ANSWER):
            with suppress(Exception):
                if self._files.exists(path):
                    self._files.remove(path)


def request_stop(files: FileTree, *, now: bool = False) -> tuple[StopRequest, Lease] | None:
    """Ask the process that runs on a checkpoint to stop; return None if there is none.

    Raise ``CheckpointBusy`` if what seems to be running cannot be asked.
    """
    lease = awaited_lease(files)
    if lease is None:
        _refuse_unknown_query(files)
        return None
    if lease.holder.startswith("headwater "):
        raise CheckpointBusy(
            "not-a-job",
            f"{lease.holder} is changing this checkpoint, and no job is running",
            evidence={"process": lease.process},
            remedy=lease.remedy,
        )
    request = StopRequest.to_holder_of(lease, now=now)
    files.write(REQUEST, request.to_bytes())
    return request, lease


def _refuse_unknown_query(files: FileTree) -> None:
    signs = signs_of_life(History(files))
    if signs:
        raise CheckpointBusy(
            "not-attached",
            "a query may be running that Headwater cannot stop: no process holds the checkpoint's lease",
            evidence={"signs": "; ".join(signs), "checkpoint": files.location},
            remedy="stop the query in its own program; once that program calls headwater.attach(spark), headwater stop works",
        )


def wait_until_stopped(
    files: FileTree,
    request: StopRequest,
    lease: Lease,
    *,
    timeout: float | None = None,
    on_wait: OnWait = lambda lease, seconds: None,  # noqa: ARG005
) -> bool:
    """Wait until the holder has released the lease; return False if it is still finishing its batch after ``timeout``.

    Raise ``CheckpointBusy`` and withdraw the request if the holder does not answer.
    """
    started, answered = time.monotonic(), False
    pause = POLL_SECONDS if files.local_path() is not None else REMOTE_POLL_SECONDS
    while True:
        current = held_lease(files)
        if current is None or current.identity != lease.identity:
            _withdraw(files, request)
            if current is None:
                record_end(files)  # an attached program does not
            return True
        waited = time.monotonic() - started
        answered = answered or _is_answered(files, request)
        if timeout is not None and waited >= timeout:
            return False
        if not answered and waited >= ANSWER_SECONDS:
            _withdraw(files, request)
            raise CheckpointBusy(
                "no-answer",
                f"{lease.holder} does not answer the request to stop",
                evidence={"process": lease.process, "waited": f"{waited:.0f} s", "checkpoint": files.location},
                remedy=f"{lease.remedy}; a process from an earlier release of Headwater does not answer such requests",
            )
        on_wait(lease, waited)
        time.sleep(pause)


def _is_answered(files: FileTree, request: StopRequest) -> bool:
    try:
        value = json.loads(files.read(ANSWER))
    except (OSError, ValueError):
        return False
    return isinstance(value, dict) and value.get("request_id") == request.request_id


def _withdraw(files: FileTree, request: StopRequest) -> None:
    """Remove a request and its answer, but not a later request."""
    with suppress(OSError):
        if _read_request(files) == request:
            files.remove(REQUEST)
    with suppress(OSError):
        if _is_answered(files, request):
            files.remove(ANSWER)


def _read_request(files: FileTree) -> StopRequest | None:
    try:
        return StopRequest.from_bytes(files.read(REQUEST))
    except (FileNotFoundError, NotADirectoryError):
        return None
