"""``headwater ui``: the live page of one or more checkpoints."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.app import INSPECT, app
from headwater.cli.checkpoint_options import CheckpointsOrRoots
from headwater.cli.child_processes import run_command
from headwater.cli.output import note, say
from headwater.core.errors import HeadwaterError, JobFailed
from headwater.core.text import displayable

if TYPE_CHECKING:
    from headwater.checkpoint.filetree import FileTree
    from headwater.web.fleet_watch import FleetWatch
    from headwater.web.server import ServedCheckpoint

LATE_TIMEOUT_SECONDS = 180.0
VIEW_TIMEOUT_SECONDS = 60.0


@app.command(rich_help_panel=INSPECT)
def ui(
    checkpoints: CheckpointsOrRoots,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; default: 8765, or a free port.", show_default=False)
    ] = None,
    host: Annotated[
        str,
        typer.Option(help="Address to listen on. Any address other than loopback needs --tls-cert or --behind-proxy."),
    ] = "127.0.0.1",
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Allow rewind and undo from the page, which is otherwise read-only.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Start even if a checkpoint does not exist yet.")] = False,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate chain in PEM format: serve the page over HTTPS.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Private key of --tls-cert.")] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A reverse proxy encrypts the connection and is the only client.")
    ] = False,
    public_name: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Host name by which browsers address the page. Can be repeated."),
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Users who log in, instead of the token; headwater passwd writes it."),
    ] = None,
    trust_user_header: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Header in which the reverse proxy names the user, instead of the token."),
    ] = None,
    proxy_from: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS", help="Address or network of the reverse proxy; default: loopback.", show_default=False
        ),
    ] = None,
) -> None:
    """Serve a live page for one or more checkpoints, until Ctrl-C.

    The page shows the batches, the watermark, the state as of any batch, what changed, and the history of a key. Its URL
    contains a token, without which access is denied. The alert rules of headwater.toml are evaluated as well, for streams
    whose job does not evaluate them.

    For folders or buckets with checkpoints below them, the page is a table of all streams, those with problems first,
    and a graph of those that feed each other. A click on a stream opens its page.

    The page is read-only without --allow-changes. With --password-file or --trust-user-header the journal of a checkpoint
    records the name of the user who changed it.

    Example:
      headwater ui browser-stats-stateful
      headwater ui /data/checkpoints s3://bucket/checkpoints
    """
    from headwater.alerts.rules import load_config
    from headwater.web.access import AccessOptions, check_access

    load_config()  # a mistake in headwater.toml is reported before the page is served
    access = AccessOptions(
        allow_changes=allow_changes,
        tls_cert=tls_cert,
        tls_key=tls_key,
        behind_proxy=behind_proxy,
        public_names=tuple(public_name or ()),
        password_file=password_file,
        user_header=trust_user_header,
        proxies=tuple(proxy_from or ()),
    )
    check_access(access, host)
    fleet = _fleet(checkpoints, wait=wait)

    from headwater.web.server import PageServer

    server = PageServer(
        [] if fleet else [_served(name, checkpoint) for checkpoint, name in page_names(checkpoints).items()],
        fleet=fleet,
        host=host,
        port=port,
        access=access,
        find_records=find_dropped_records,
        find_view_rows=find_view_rows,
    )
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    server.start()
    say(server.url)
    with watching_alerts(lambda: [one.location for one in fleet.snapshot.streams] if fleet else checkpoints):
        stop.wait()
    server.stop()


def _fleet(names: list[str], *, wait: bool) -> FleetWatch | None:
    """Return the fleet, which is being read already, if a name is a folder above checkpoints; None if none is."""
    from headwater.checkpoint.locate import candidates
    from headwater.core.errors import CheckpointUnreadable
    from headwater.fleet.fleet import Fleet
    from headwater.fleet.roots import open_or_root
    from headwater.web.fleet_watch import FleetWatch

    roots: list[str] = []
    has_root = False
    for name in names:
        try:
            found = open_or_root(name)
        except CheckpointUnreadable:
            if not wait:
                raise
            roots += candidates(name)  # it appears among the others as soon as it exists
        else:
            has_root |= isinstance(found, str)
            roots.append(found if isinstance(found, str) else found.location)
    if not has_root:
        return None
    watch = FleetWatch(Fleet(roots))
    watch.start()
    return watch


@contextmanager
def watching_alerts(checkpoints: Callable[[], Iterable[str]]) -> Iterator[None]:
    """Evaluate the rules of ``headwater.toml`` while the block runs. ``checkpoints`` are asked for at each evaluation."""
    from headwater.alerts.rules import load_config
    from headwater.alerts.watching import watch_page
    from headwater.checkpoint.locate import open_checkpoint

    def opened() -> dict[str, Callable[[], FileTree]]:
        return {name: partial(open_checkpoint, name) for name in checkpoints()}

    with watch_page(load_config(), opened, note) or nullcontext():
        yield


def page_names(checkpoints: Iterable[str]) -> dict[str, str]:
    """Return a name for each checkpoint: its folder, with as many folders above it as make the name unique."""
    parts = {checkpoint: _parts(checkpoint) for checkpoint in checkpoints}
    names = {}
    for checkpoint, own in parts.items():
        others = [other for other in parts.values() if other != own]
        depth = 1
        while depth < len(own) and any(other[-depth:] == own[-depth:] for other in others):
            depth += 1
        names[checkpoint] = displayable("/".join(own[-depth:]))
    return names


def _parts(checkpoint: str) -> list[str]:
    location = checkpoint.rstrip("/") or checkpoint
    return location.split("/") if "://" in location else str(Path(location)).split("/")


def _served(name: str, checkpoint: str) -> ServedCheckpoint:
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.web.server import ServedCheckpoint

    return ServedCheckpoint(name, lambda: open_checkpoint(checkpoint))


def find_dropped_records(location: str, batch: int) -> list[dict[str, Any]]:
    """Return what ``headwater late`` finds for a batch. Runs it in a process of its own, because it starts Spark."""
    arguments = ["late", location, "--batch", str(batch), "--json"]
    too_slow = JobFailed(
        "late-too-slow",
        f"the records of batch {batch} were not found within {LATE_TIMEOUT_SECONDS:.0f} seconds",
        remedy=f"headwater {' '.join(arguments)}",
    )
    failed = JobFailed("late-failed", "cannot read the records of this batch", remedy=too_slow.remedy)
    return _rows_printed_by(arguments, LATE_TIMEOUT_SECONDS, too_slow, failed)


def find_view_rows(location: str, batch: int) -> list[dict[str, Any]]:
    """Return what ``headwater state --view`` prints for a batch. Runs it in a process of its own, which loads the job."""
    arguments = ["state", location, "--view", "--at", str(batch), "--json"]
    failed = JobFailed(
        "state-view-failed",
        f"the job's state_view gave no result within {VIEW_TIMEOUT_SECONDS:.0f} seconds, or ended with an error",
        remedy=f"headwater {' '.join(arguments)}",
    )
    return _rows_printed_by(arguments, VIEW_TIMEOUT_SECONDS, failed, failed)


def _rows_printed_by(
    arguments: list[str], timeout_seconds: float, too_slow: JobFailed, failed: JobFailed
) -> list[dict[str, Any]]:
    """Return the JSON Lines that a command prints. Raise the error that it prints, or one of the given ones."""
    try:
        done = run_command(arguments, timeout_seconds=timeout_seconds)
    except subprocess.TimeoutExpired:
        raise too_slow from None
    if done.returncode:
        raise _printed_error(done.stderr) or failed
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _printed_error(stderr: str) -> HeadwaterError | None:
    """Return the error that another process printed as JSON; None if it printed none."""
    last = stderr.strip().splitlines()[-1] if stderr.strip() else ""
    try:
        error = json.loads(last)
        return JobFailed(error["error"], error["problem"], evidence=error.get("evidence"), remedy=error.get("help"))
    except (ValueError, KeyError, TypeError):
        return None
