"""Let a promoted fork continue in the sink of its original, so that readers see one table without a gap.

The sink then has what a single stream would have written: the rows of the original up to the batch of the fork, and
the rows of the fork since. What the original has written since leaves: the files of a file sink are set aside, a Delta
table gets a commit. The fork's own sink stays as it is, and gets the rows since then if the promotion is undone.

This is one change of the fork's checkpoint, applied by the executor, with the id of the promotion.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.record import JobRecord, read_job_record, sink_of, uri_kind
from headwater.core.errors import ChangeRefused, redact
from headwater.core.text import count
from headwater.lakehouse.delta_table import DeltaTable
from headwater.lakehouse.delta_takeover import Fork, TableTakeover, plan_delta_catch_up, plan_delta_takeover
from headwater.lakehouse.tables import RewindableTable, open_table
from headwater.timemachine.change import (
    Change,
    CommitToTable,
    Put,
    Step,
    fingerprint,
    new_change_id,
    set_aside,
)
from headwater.timemachine.executor import executor_for
from headwater.timemachine.file_takeover import (
    FileTakeover,
    bring_back_files,
    former_record,
    plan_file_takeover,
    share_files,
    steps_back,
)
from headwater.timemachine.journal import Entry, is_emptied, last_to_undo, read_entries, read_pending
from headwater.timemachine.tables import checkpointed
from headwater.timemachine.undo_checks import complete_steps

WITHOUT_ROWS = ("console", "noop", "memory")
_WHY_KEPT = {
    "kafka": "a topic cannot be renamed, and records that the original has written since the fork cannot be taken back; "
    "let consumers switch to the topic of the fork",
    "postgresql": "rows in PostgreSQL do not record which batch wrote them, so what the original has written since the fork "
    "cannot be taken out of its table",
    "iceberg": "an Iceberg table refers to data files by absolute paths, so the files of the fork would remain in its own "
    "table, whose maintenance may delete them; rename both tables in the catalog instead",
    "table": "only the catalog can rename a table; rename both tables there",
}


@dataclass(frozen=True)
class Takeover:
    """How a fork continues in the sink of its original. ``sink`` is a folder with a file sink, ``table`` a Delta table."""

    fork: FileTree = field(repr=False)
    change: Change
    own: FileTree = field(repr=False)
    """The fork's own sink, whose ``files`` the other one gets; ``files`` are paths."""
    files: tuple[str, ...]
    leaving: int
    sink: FileTree | None = field(default=None, repr=False)
    table: RewindableTable | None = field(default=None, repr=False)
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"files_from_fork": len(self.files), "files_set_aside": self.leaving}

    def carry_out(self) -> None:
        """Make the change, or finish it after an interruption. The caller holds the leases of both checkpoints."""
        if read_pending(self.fork) is not None:
            executor_for(self.fork, self.sink, self.table).resume()
            return
        self._share()
        executor_for(self.fork, self.sink, self.table).apply(self.change)

    def _share(self) -> None:
        """Make the files available before the change begins, so that the executor only moves them or refers to them."""
        if self.sink is not None:
            share_files(self.own, self.files, self.sink, self.change.change_id)
        elif isinstance(self.table, DeltaTable):
            for path in self.files:
                if not self.table.files.exists(path):
                    self.own.share(path, self.table.files)


def interrupted_takeover(fork: FileTree, promotion: str) -> Takeover | None:
    """Return the takeover of a promotion that was interrupted while files were moved; None if there is none."""
    pending = read_pending(fork)
    if pending is None or pending.change.change_id != promotion:
        return None
    sink, table = _opened(pending.change)
    return Takeover(fork, pending.change, fork, (), 0, sink, table)


def is_taken_over(fork: FileTree, promotion: str) -> bool:
    """Return whether the takeover of a promotion is complete."""
    return any(entry.change.change_id == promotion for entry in read_entries(fork))


def why_kept(original: JobRecord, fork: JobRecord) -> str | None:
    """Return why a fork keeps its own sink; None if it can continue in that of the original, or has the same."""
    kinds = uri_kind(original.sink), uri_kind(fork.sink)
    if original.sink is None or fork.sink is None:
        return "the sink of the original or of the fork is not recorded"
    if kinds[0] != kinds[1]:
        return f"the original writes to {kinds[0]}, and the fork to {kinds[1]}"
    if kinds[0] in ("files", "delta"):
        return None
    return _WHY_KEPT.get(str(kinds[0]), f"{kinds[0]} has no rows to continue")


def have_same_sink(original: JobRecord, fork: JobRecord) -> bool:
    """Return whether both write to the same place."""
    return place_of(original.sink) == place_of(fork.sink)


def place_of(sink: str | None) -> str:
    """Return the URI of a sink without options; the table in a database is one of them, and stays."""
    place, _, options = (sink or "").partition("?")
    table = dict(parse_qsl(options)).get("table") if uri_kind(sink) == "postgresql" else None
    return f"{place}?table={table}" if table else place


def plan_takeover(fork: FileTree, original: FileTree, at: int | None, change_id: str) -> Takeover:
    """Plan how a fork at batch ``at`` continues in the sink of its original, which is of the same kind.

    Raise ``ChangeRefused`` if the sink would not have the right rows; keeping the fork's own sink is always possible.
    """
    theirs, ours = read_job_record(original), read_job_record(fork)
    if _options(theirs) != _options(ours):
        raise _refused(fork, ChangeRefused("sink-not-taken-over", "the sinks have different options"), theirs, ours)
    try:
        if uri_kind(theirs.sink) == "files":
            return _of_files(fork, original, at, change_id)
        return _of_table(fork, original, at, change_id)
    except ChangeRefused as refusal:
        raise _refused(fork, refusal, theirs, ours) from None


def _options(record: JobRecord) -> list[str]:
    return sorted((record.sink or "").partition("?")[2].split("&"))


def _refused(fork: FileTree, refusal: ChangeRefused, theirs: JobRecord, ours: JobRecord) -> ChangeRefused:
    return ChangeRefused(
        "sink-not-taken-over",
        f"the fork cannot continue in the sink of the original: {refusal.problem}",
        evidence={"original": redact(str(theirs.sink)), "fork": redact(str(ours.sink)), **refusal.evidence},
        remedy=f"headwater promote {fork.location} --keep-sink   (the fork keeps writing to its own)",
    )


def _of_files(fork: FileTree, original: FileTree, at: int | None, change_id: str) -> Takeover:
    seen = fingerprint(fork, sink_of(original))
    planned: FileTakeover = plan_file_takeover(fork, original, at, change_id)
    into = planned.into
    warning = (
        f"a stream that reads {into.location} finds {count(len(planned.files), 'new file')}: it reads the rows "
        f"{_since(at)} again, as the fork has written them"
    )
    change = _change(fork, original, (*planned.steps, *_record_steps(fork, original, change_id)), change_id)
    change = replace(change, fingerprint=seen, sink=into.location)
    return Takeover(
        fork,
        change,
        planned.own,
        planned.files,
        planned.leaving,
        sink=into,
        warnings=(warning,) if planned.files else (),
    )


def _since(at: int | None) -> str:
    return "of all batches" if at is None else f"since batch {at}"


def _of_table(fork: FileTree, original: FileTree, at: int | None, change_id: str) -> Takeover:
    table, own = (open_table(str(read_job_record(files).sink)) for files in (original, fork))
    assert isinstance(table, DeltaTable) and isinstance(own, DeltaTable)
    seen = fingerprint(fork, table=table)
    side = Fork(own, checkpointed(History(fork)), at, _mode(read_job_record(fork)))
    found: TableTakeover = plan_delta_takeover(table, checkpointed(History(original)), side, change_id=change_id)
    assert found.action is not None
    steps = (*_record_steps(fork, original, change_id), CommitToTable(found.action))
    change = replace(_change(fork, original, steps, change_id), fingerprint=seen, table=table.reference)
    warning = (
        f"streams that read {table.uri} fail when rows are removed (DELTA_SOURCE_IGNORE_DELETE), or with skipChangeCommits "
        f"do not see the rows that the fork has written {_since(at)}. If these are the same rows, as the comparison shows, let "
        "them pass the commit with skipChangeCommits once; otherwise start them from scratch"
    )
    return Takeover(
        fork,
        change,
        own.files,
        found.files,
        found.leaving,
        table=table,
        warnings=(warning,) if found.leaving or found.coming else (),
    )


def _mode(record: JobRecord) -> str:
    if record.mode == "complete":
        return "complete"
    is_merged = record.mode == "update" or any(option.startswith("merge_on=") for option in _options(record))
    return "merge" if is_merged else "append"


def _change(fork: FileTree, original: FileTree, steps: tuple[Step, ...], change_id: str) -> Change:
    details = {"original": original.location}
    about = f"continue in the sink of {original.location}"
    return Change(change_id, "promote", about, steps, to=History(fork).last_committed, details=details)


def _record_steps(fork: FileTree, original: FileTree, change_id: str) -> Iterator[Step]:
    record = replace(read_job_record(fork), sink=read_job_record(original).sink)
    yield set_aside(change_id, "checkpoint", JOB_FILE)
    yield Put("checkpoint", JOB_FILE, record.to_bytes())


@dataclass(frozen=True)
class TakeoverUndo:
    """How both streams get their sinks back. ``newer`` are batches that the fork has run in the original's sink."""

    fork: FileTree = field(repr=False)
    change: Change
    done: Change
    newer: tuple[int, ...]
    sink: FileTree | None = field(default=None, repr=False)
    table: RewindableTable | None = field(default=None, repr=False)

    def carry_out(self) -> None:
        """Give both streams their sinks back, or finish that after an interruption. The caller holds the leases."""
        executor = executor_for(self.fork, self.sink, self.table)
        if read_pending(self.fork) is not None:
            executor.resume()
            return
        if self.sink is not None:
            bring_back_files(self.fork, self.sink, self.done)
        elif isinstance(self.table, DeltaTable):
            self._bring_back_rows(self.table)
        executor.apply(self.change)

    def _bring_back_rows(self, table: DeltaTable) -> None:
        own = open_table(str(former_record(self.fork, self.done).sink))
        action = self.done.table_action
        assert isinstance(own, DeltaTable) and action is not None
        query = checkpointed(History(self.fork))
        found = plan_delta_catch_up(own, table, query, table.applied_at(action), change_id=self.change.change_id)
        if found.action is None:
            return
        for path in found.files:
            if not own.files.exists(path):
                table.files.share(path, own.files)
        own.apply(found.action)


def plan_takeover_undo(fork: FileTree, promotion: str, *, keep_foreign: bool = False) -> TakeoverUndo | None:
    """Plan to undo the takeover with the id of a promotion; None if there was none, or if it is undone already."""
    pending = read_pending(fork)
    if pending is not None and pending.change.undoes == promotion:
        done = _entry(fork, promotion).change
        sink, table = _opened(pending.change)
        return TakeoverUndo(fork, pending.change, done, (), sink, table)
    if pending is not None and pending.change.change_id == promotion:
        raise ChangeRefused(
            "interrupted-operation",
            "cannot undo the promotion: it was interrupted while the fork took over the sink",
            evidence={"fork": fork.location, "change": pending.change.about},
            remedy=f"headwater rewind {fork.location} --abort, then repeat this command",
        )
    entry = last_to_undo(fork)
    known = {one.change.change_id for one in read_entries(fork)} - {one.change.undoes for one in read_entries(fork)}
    if promotion not in known:
        return None
    if entry is None or entry.change.change_id != promotion:
        raise ChangeRefused(
            "changed-since",
            "cannot undo the promotion: the fork has been changed since",
            evidence={"fork": fork.location, "last change": entry.change.about if entry else "none"},
            remedy=f"headwater undo {fork.location}, then repeat this command",
        )
    done, change_id = entry.change, new_change_id("undo")
    if is_emptied(fork, done):
        raise ChangeRefused(
            "quarantine-emptied",
            "cannot undo the promotion: headwater compact has removed the files that it set aside",
            evidence={"fork": fork.location, "change": done.change_id},
        )
    sink, table = _opened(done)
    seen = fingerprint(fork, sink, table)
    steps: tuple[Step, ...] = tuple(steps_back(fork, sink, done, change_id))
    if table is not None and done.table_action is not None:
        back = table.plan_undo(
            checkpointed(History(fork)), done.table_action, change_id=change_id, keep_foreign=keep_foreign
        )
        steps = (*((CommitToTable(back.action),) if back.action else ()), *steps)
    roots: dict[Any, FileTree] = {"checkpoint": fork, **({"sink": sink} if sink else {})}
    steps = complete_steps(roots, steps, done)
    change = Change(
        change_id,
        "undo",
        f"undo the promotion {done.change_id}",
        steps,
        seen,
        sink.location if sink else None,
        done.to,
        undoes=done.change_id,
        table=table.reference if table else None,
    )
    limit = -1 if done.to is None else done.to
    newer = tuple(number for number in History(fork).logs.commits.ids if number > limit)
    return TakeoverUndo(fork, change, done, newer, sink, table)


def _entry(fork: FileTree, change_id: str) -> Entry:
    return next(entry for entry in read_entries(fork) if entry.change.change_id == change_id)


def _opened(change: Change) -> tuple[FileTree | None, RewindableTable | None]:
    sink = open_files(change.sink) if change.sink else None
    return sink, open_table(change.table) if change.table else None
