"""``headwater log``: the batches of a checkpoint."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import INSPECT, JsonLines, app
from headwater.cli.checkpoint_options import CheckpointsOrRoots, note_promotion, warn_if_interrupted
from headwater.cli.output import json_line, json_text, note, say
from headwater.core.text import count

if TYPE_CHECKING:
    from headwater.checkpoint.filetree import FileTree
    from headwater.checkpoint.history import Batch, History
    from headwater.fleet.fleet import Fleet
    from headwater.timemachine.journal import Entry
    from headwater.views.batch_table import TableLayout

POLL_SECONDS = 1.0


@app.command(rich_help_panel=INSPECT)
def log(
    checkpoints: CheckpointsOrRoots,
    number: Annotated[
        int | None, typer.Option("-n", "--number", metavar="N", min=1, help="Show only the newest N batches.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Show only batches planned since a time: 2026-07-01T10:30:00Z, 10:30 or 15m (ago)."
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new batches as they appear, until Ctrl-C.")
    ] = False,
    as_json: JsonLines = False,
) -> None:
    """Show every batch of a checkpoint, or one line for each checkpoint below a folder.

    Shows when each batch was planned, what it read, its watermark, whether you can rewind to it, and its restore points.
    LAG is how far the watermark was behind the system clock. With several sources, UNREAD is the number of records in
    Kafka that each of them had not read, if that was recorded, and a line below the table names the source that holds
    the watermark back. Does not start Spark.

    For a folder or bucket with checkpoints below it, or for several checkpoints, shows each stream in one line, those
    with problems first: whether it runs, its last batch, rates, lag, the delay of its watermark, the rows of its state and
    their growth, and what is wrong. Rates, growth and DROPPED are those of the last batches. A star marks a batch that is
    not committed.

    Example:
      headwater log browser-stats-stateful -n 20
      headwater log s3://bucket/checkpoints
    """
    from headwater.checkpoint.history import History
    from headwater.checkpoint.revisions import time_ms
    from headwater.fleet.roots import fleet_of, one_checkpoint, refuse_options

    files = one_checkpoint(checkpoints)
    if files is None:
        fleet = fleet_of(checkpoints)
        refuse_options({"-n": number, "--since": since, "--follow": follow}, "log")
        _show_streams(fleet, as_json=as_json)
        return
    note_promotion(checkpoints[0], files)
    warn_if_interrupted(files)
    since_ms = time_ms(since, not_after_ms=time.time_ns() // 1_000_000) if since else None
    history = History(files)
    batches = history.batches(last=number, since_ms=since_ms)
    printer = _Printer(as_json=as_json)
    printer.show(history, batches)
    if not batches and not follow:
        note("no batches since then" if since else "no batches yet")
    _note_failure(history)
    if follow:
        _follow(files, printer, {(batch.batch_id, batch.status) for batch in batches}, since_ms)


def _note_failure(history: History) -> None:
    """Print a note if the last run failed and no process runs on the checkpoint."""
    from headwater.checkpoint.failures import failure_of_last_run
    from headwater.checkpoint.lease import live_lease

    failure = failure_of_last_run(history.files, history.logs.logged_at_ms)
    if failure is not None and live_lease(history.files) is None:
        note(f"warning: {failure}")


def _show_streams(fleet: Fleet, *, as_json: bool) -> None:
    from headwater.views.fleet import StreamView, edge_lines, table_lines

    snapshot, now_ms = fleet.refresh(), time.time_ns() // 1_000_000
    for problem in snapshot.problems:
        note(f"warning: {problem}")
    if not snapshot.is_complete:
        note("warning: there are too many folders to search all of them; name the ones that contain checkpoints")
    views = [StreamView(stream, now_ms) for stream in snapshot.by_trouble(now_ms)]
    edges = snapshot.edges()
    if as_json:
        for view in views:
            json_line(view.as_dict(edges))
        return
    for line in table_lines(views, shutil.get_terminal_size().columns if sys.stdout.isatty() else None):
        say(line)
    if edges:
        say()
        for line in edge_lines(edges):
            say(line)
    note(count(len(views), "checkpoint"))


def _follow(files: FileTree, printer: _Printer, seen: set[tuple[int, str]], since_ms: int | None) -> None:
    """Print a batch when it is planned and again when it is committed."""
    from headwater.checkpoint.history import History

    newest = max((batch for batch, _ in seen), default=-1)
    while True:
        time.sleep(POLL_SECONDS)
        history = History(files)
        fresh = [number for number in history.batch_ids if number >= newest]
        changed = [batch for batch in map(history.batch, fresh) if (batch.batch_id, batch.status) not in seen]
        if since_ms is not None:
            changed = [batch for batch in changed if batch.planned_at_ms is None or batch.planned_at_ms >= since_ms]
        printer.show(history, changed)
        seen |= {(batch.batch_id, batch.status) for batch in changed}
        newest = max([newest, *fresh])


def _added_batches(files: FileTree) -> dict[int, Entry]:
    """Return the batches that changes have added. Most checkpoints have no journal, whose modules then stay unread."""
    from headwater.checkpoint.layout import HEADWATER_FOLDER

    if not files.exists(HEADWATER_FOLDER):
        return {}
    from headwater.timemachine.journal import added_batches

    return added_batches(files)


class _Printer:
    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.layout: TableLayout | None = None
        self.last_hold: str | None = None

    def show(self, history: History, batches: list[Batch]) -> None:
        if not batches:
            return
        from headwater.checkpoint.restore_points import names_by_batch, restore_points
        from headwater.checkpoint.watermark_hold import watermark_holds

        added = _added_batches(history.files)
        points = restore_points(history.files)
        kept = names_by_batch(points, history.committed_at_ms)
        if self.as_json:
            from headwater.views.batches import batch_as_dict

            holds = watermark_holds(history.logs, [batch.batch_id for batch in batches])
            rows = [
                batch_as_dict(batch, holds.get(batch.batch_id), added.get(batch.batch_id), kept.get(batch.batch_id, ()))
                for batch in batches
            ]
            say("\n".join(map(json_text, rows)))
            return
        is_first = self.layout is None
        self._table(batches, added, kept)
        others = len(points) - sum(map(len, kept.values()))
        if others and is_first:
            found = f"{count(others, 'restore point')} of batches that are no longer in the log"
            note(f"{found}: headwater kept {history.files.location}")
        newest = batches[-1].batch_id
        hold = str(watermark_holds(history.logs, [newest]).get(newest, ""))
        if hold and hold != self.last_hold:
            say(hold)
        self.last_hold = hold

    def _table(self, batches: list[Batch], added: dict[int, Entry], kept: dict[int, list[str]]) -> None:
        from headwater.views.batch_table import COLUMNS, batch_cells, table_layout

        rows = [batch_cells(batch, added.get(batch.batch_id), kept.get(batch.batch_id, ())) for batch in batches]
        if self.layout is None:
            self.layout = table_layout(rows, shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
            say(self.layout.line(COLUMNS))
        for row in rows:
            say(self.layout.line(row))
