"""Forks: a second checkpoint that continues from a batch of the first, with a query id of its own.

The original is only read. ``plan_adoption`` is the way back: it plans how a checkpoint takes over the batches that Spark
wrote in a fork of it.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.checkpoint.file_logs import FileSinkLog, LogNames, log_with
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.flow_record import DELTA_LOG
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import (
    COMMITS,
    HEADWATER_FOLDER,
    METADATA,
    OFFSETS,
    PLANS_FILE,
    SINK_LOG,
    SOURCES,
    STATE,
    covered_by_hadoop_crc,
    hadoop_crc_of,
    join,
)
from headwater.checkpoint.locate import absolute_path, open_files
from headwater.checkpoint.migrated import FOLDER as MIGRATED
from headwater.checkpoint.operator_metadata import is_operator_metadata, with_schemas_in
from headwater.checkpoint.plan_record import plans_file, read_plans
from headwater.checkpoint.record import FILES, sink_of, uri_kind
from headwater.checkpoint.restore_points import FOLDER as KEPT
from headwater.checkpoint.restore_points import RestorePoint, locate_batch
from headwater.checkpoint.runs import RUNS_FILE, read_runs, runs_file
from headwater.core.errors import ChangeRefused, HeadwaterError, UsageProblem
from headwater.core.ids import BatchId
from headwater.lakehouse.tables import (
    TABLE_NAMES,
    TABLE_URIS,
    RewindableTable,
    TableCopy,
    new_table_folder,
    parse_table_uri,
)
from headwater.timemachine.change import Change, Move, Put, Step, new_change_id, set_aside
from headwater.timemachine.compacted_log import empty_log
from headwater.timemachine.cuts import (
    cut_batch_logs,
    cut_sources,
    cut_state,
    entries_before,
    entry_without_files,
    metadata_before,
    must_replan,
)
from headwater.timemachine.earlier_layout import history_before
from headwater.timemachine.journal import refuse_if_pending
from headwater.timemachine.relocate import Place
from headwater.timemachine.seed_record import SEED_FILE, was_seeded
from headwater.timemachine.startable import needs_next_offsets
from headwater.timemachine.tables import checkpointed, first_to_undo, pinned_version, table_of

ORIGIN_FILE = f"{HEADWATER_FOLDER}/forked_from.json"
ORIGINAL_LOG = f"{HEADWATER_FOLDER}/original_sink_log"
"""What the log of the original's file sink lists up to the batch of the fork, for a promotion: Spark compacts that log."""
UNFINISHED = b"headwater: this fork is incomplete; remove it and fork again\n"


@dataclass(frozen=True)
class ForkPlan:
    """The files that a fork shares with its origin, and those that are written. ``at`` None is an empty stream."""

    origin: FileTree = field(repr=False)
    into: FileTree = field(repr=False)
    sink: FileTree | None = field(repr=False)
    at: int | None
    shared: tuple[str, ...]
    written: dict[str, bytes] = field(repr=False)
    sink_log: dict[str, bytes] = field(repr=False)
    warnings: tuple[str, ...]
    table: TableCopy | None = None
    """The copy of the original's table; ``sink`` is then its folder."""

    def apply(self) -> None:
        """Write the fork. Until it is complete, ``metadata`` contains a notice that keeps Spark from starting on it."""
        self._refuse_existing()
        self.into.write(METADATA, UNFINISHED)
        for path in self.shared:
            self.origin.share(path, self.into)
        for path, data in self.written.items():
            if path != METADATA:
                self.into.write(path, data)
        if self.sink is not None:
            for name, data in self.sink_log.items():
                self.sink.write(f"{SINK_LOG}/{name}", data)
            for path, data in (self.table.files if self.table else {}).items():
                self.sink.write(path, data)
        origin = {"checkpoint": origin_of(self), "at": self.at, "forked_at_ms": int(time.time() * 1000)}
        self.into.write(ORIGIN_FILE, json.dumps(origin).encode())
        self.into.write(METADATA, self.written[METADATA])

    def _refuse_existing(self) -> None:
        if self.into.entries(""):
            if Place.of(self.into.spark_uri()) == Place.of(self.origin.spark_uri()):
                raise UsageProblem(
                    "bad-option",
                    f"cannot fork {self.into.location} into itself",
                    remedy="choose another folder, which may be new or empty",
                )
            raise ChangeRefused(
                "not-empty",
                f"cannot fork into {self.into.location}: the folder is not empty",
                remedy=f"choose another folder, or remove {self.into.location} first",
            )
        if self.sink is not None and (self.sink.entries(SINK_LOG) or (self.table and self.sink.entries(""))):
            raise ChangeRefused(
                "not-empty",
                f"cannot use {self.sink.location} as the sink of a fork: another stream writes to it",
                remedy="choose another table" if self.table else "choose another folder: --sink files:DIR",
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "at": self.at,
            "shared": len(self.shared),
            "written": sorted(self.written),
            "sink_log": sorted(self.sink_log),
            "table": None if self.table is None else {"version": self.table.version, "shared": self.table.shared.files},
            "warnings": list(self.warnings),
        }


def origin_of(plan: ForkPlan) -> str:
    """Return the path or URL of the checkpoint, also if one of its restore points is forked."""
    location = plan.origin.location.partition(f"/{KEPT}/")[0]
    return location if plan.origin.local_path() is None else str(Path(location).absolute())


def plan_query_fork(
    files: FileTree, into: str, *, at: str = "HEAD", sink: str | None = None, copy_of: str | None = None
) -> ForkPlan:
    """Plan a fork of a query at a revision, into a folder or URL.

    ``sink`` is a new sink for the fork: ``files:DIR``, or the URI of a new table for a copy of the original's as of that
    batch. The original's table is ``copy_of``, by default the one that ``headwater run`` recorded. For the rest see
    ``plan_fork``.
    """
    refuse_if_pending(files)
    new_table = parse_table_uri(sink)
    if sink is not None and new_table is None and not sink.startswith(FILES):
        raise UsageProblem(
            "bad-option",
            f"--sink takes a file sink or {TABLE_NAMES}; other sinks need no preparation",
            remedy=f"--sink files:DIR   (or {TABLE_URIS})",
        )
    located = locate_batch(files, at)
    target = open_files(into if "://" in into else absolute_path(into))
    if new_table is None:
        kept = files.subtree(located.point.sink_place) if located.point and located.point.sink else None
        own = sink_of(files, sink) if sink else None
        return plan_fork(located.files, target, at=located.batch_id, sink=own, kept_log=kept)
    table = table_of(files, copy_of)
    if table is not None and uri_kind(table.uri) != new_table.kind:
        raise UsageProblem(
            "bad-option",
            f"a copy of {table.uri} cannot be {new_table.sink}: the formats differ",
            remedy=f"--sink {uri_kind(table.uri)}:…",
        )
    return plan_fork(
        located.files,
        target,
        at=located.batch_id,
        sink=new_table_folder(new_table),
        table=table,
        new_table=True,
        pinned=None if located.point is None or table is None else _pinned(files, located.point, table),
    )


def _pinned(files: FileTree, point: RestorePoint, table: RewindableTable) -> int | None:
    """Return the version of the table that a restore point recorded, if its batches may have run again since."""
    return pinned_version(files, point, table) if first_to_undo(files, point) <= point.batch_id else None


def plan_fork(
    files: FileTree,
    into: FileTree,
    *,
    at: int | None,
    keep_next: bool = False,
    sink: FileTree | None = None,
    table: RewindableTable | None = None,
    new_table: bool = False,
    kept_log: FileTree | None = None,
    pinned: int | None = None,
) -> ForkPlan:
    """Plan a fork of a checkpoint into an empty folder, with batch ``at`` as its last one; None for no batches.

    ``keep_next`` includes the recorded offsets of the next batch, so that it runs with them, as a replay needs it.
    ``sink`` is a new file sink for the fork. It gets an empty log, because Spark expects entries of earlier batches. With
    ``new_table`` it is the folder of a new table instead, which gets the contents of ``table`` as of the batch, if that
    is given; ``pinned`` is the version with the batch that a restore point recorded. ``kept_log`` has the log of the
    original's file sink, if a restore point has kept it.
    """
    next_batch = 0 if at is None else at + 1
    history = history_before(History(files), next_batch)
    files = history.files
    if at is not None:
        _refuse_unreachable(history, at)
    must_keep_next = at is not None and needs_next_offsets(history, at) and not must_replan(history, next_batch)
    replan = not (keep_next or must_keep_next)
    left_out = set(cut_batch_logs(files, next_batch, replan=replan)) | set(cut_state(history, next_batch))
    written = metadata_before(history, next_batch)
    for name, cut in cut_sources(history, next_batch, replan=replan).items():
        folder = f"{SOURCES}/{name}"
        aside = {join(folder, log_file) for log_file in cut.aside}
        left_out |= aside | {hadoop_crc_of(path) for path in aside}
        written |= {join(folder, log_file): data for log_file, data in cut.written.items()}
    shared = [path for path in spark_paths(files) if path not in left_out and path not in written]
    for path in shared:
        metadata = relocated_metadata(files, path, into)
        if metadata is not None and metadata != files.read(path):
            written[path] = metadata
    shared = [path for path in shared if path not in written and covered_by_hadoop_crc(path) not in written]
    query_id = str(uuid.uuid4())
    written[METADATA] = json.dumps({"id": query_id}).encode()
    written |= _records(files, next_batch)
    warnings = _sink_warnings(history, sink is not None)
    if must_keep_next and not keep_next:
        warnings.append(f"batch {next_batch} runs with its recorded offsets, without which Spark could not start")
    if not new_table:
        written |= _original_log(history, next_batch, kept_log) if sink is not None else {}
        sink_log = {} if sink is None else _empty_sink_log(next_batch, sink_of(files))
        return ForkPlan(files, into, sink, at, tuple(shared), written, sink_log, tuple(warnings))
    copy = None
    if table is not None and at is not None and sink is not None:
        copy = table.plan_copy(checkpointed(history), at, query_id=query_id, into=sink, pinned=pinned)
        warnings += copy.warnings
    else:
        warnings.append(f"the new table starts empty: rows of batches before {next_batch} are not in it")
    return ForkPlan(files, into, sink if copy else None, at, tuple(shared), written, {}, tuple(warnings), copy)


def _records(files: FileTree, next_batch: int) -> dict[str, bytes]:
    """Return what a fork keeps of Headwater's own files: what the state means, what was deployed when, and its seed."""
    found = {SEED_FILE: files.read(SEED_FILE)} if was_seeded(files) else {}
    if plans := [plan for plan in read_plans(files) if plan.since_batch < next_batch]:
        found[PLANS_FILE] = plans_file(plans)
    if runs := [run for run in read_runs(files) if run.next_batch < next_batch]:
        found[RUNS_FILE] = runs_file(runs)
    return found


def _original_log(history: History, next_batch: int, kept: FileTree | None) -> dict[str, bytes]:
    """Return the record of what the original's file sink has up to the fork; none if it has no log, or cannot be told."""
    with suppress(HeadwaterError, OSError):
        sink = kept or sink_of(history.files)
        log = FileSinkLog(sink) if sink is not None and next_batch > 0 else None
        if log is not None and log.names.ids:
            return {ORIGINAL_LOG: log_with(entries_before(history, log, next_batch))}
    return {}


def plan_adoption(
    files: FileTree, scratch: str, scratch_files: FileTree, sink: FileTree | None, *, verb: str, about: str, seen: str
) -> Change:
    """Plan how a checkpoint takes over what Spark added to a fork of it, in the folder ``scratch`` of the checkpoint.

    The log of a file sink gets an entry for each new batch, because Spark expects one when it compacts the log. ``seen`` is
    the fingerprint of the checkpoint from before it was forked.
    """
    history, result = History(files), History(scratch_files)
    last = history.last_committed
    added = [number for number in result.batch_ids if last is None or number > last]
    if not added:
        raise ChangeRefused("nothing-done", f"Spark's {verb} wrote no new batch", remedy="try again with --debug")
    change_id = new_change_id(verb)
    logged = [entry for number in added for entry in (entry_without_files(sink, number) if sink else {}).items()]
    return Change(
        change_id,
        verb,
        about,
        (
            *_adoption_steps(files, scratch, scratch_files, change_id),
            *(Put("sink", f"{SINK_LOG}/{name}", data) for name, data in logged),
        ),
        seen,
        sink.location if sink else None,
        to=last,
        details={"added": added, "replan": True},
    )


def _adoption_steps(files: FileTree, scratch: str, scratch_files: FileTree, change_id: str) -> Iterator[Step]:
    old = set(spark_paths(files))
    paths = sorted(spark_paths(scratch_files))
    relocated = {path: data for path in paths if (data := relocated_metadata(scratch_files, path, files)) is not None}
    # A checksum beside a relocated file is that of the original.
    stale = {hadoop_crc_of(path) for path, data in relocated.items() if data != scratch_files.read(path)}
    for path in paths:
        data = relocated.get(path)
        if path in stale:
            continue
        if path in old:
            if data is None or data == files.read(path):
                continue
            yield set_aside(change_id, "checkpoint", path)
        if data is None:
            yield Move("checkpoint", f"{scratch}/{path}", path)
        else:
            yield Put("checkpoint", path, data)


def spark_paths(files: FileTree) -> Iterator[str]:
    """Yield the files that Spark wrote, except for the identity of the query, and those that migrations replaced."""
    for entry in files.entries(""):
        if entry.is_folder and entry.name != HEADWATER_FOLDER:
            for folder, names in files.tree(entry.name).items():
                yield from (join(folder, name) for name in names)
    for folder, names in files.tree(MIGRATED).items():
        yield from (join(folder, name) for name in names)


def connector_paths(files: FileTree) -> Iterator[str]:
    """Yield the files of connectors, such as Delta's schema log: ``foreign_paths`` without outputs that are kept there."""
    found = list(foreign_paths(files))
    outputs = {path.partition("/")[0] for path in found if {SINK_LOG, DELTA_LOG} & {*path.split("/")}}
    yield from (path for path in found if path.partition("/")[0] not in outputs)


def foreign_paths(files: FileTree) -> Iterator[str]:
    """Yield the files of ``spark_paths`` that no batch cuts, because their format is not that of Spark's own logs."""
    for entry in files.entries(""):
        if entry.is_folder and entry.name not in (OFFSETS, COMMITS, STATE, HEADWATER_FOLDER):
            for folder, names in files.tree(entry.name).items():
                if entry.name != SOURCES or folder.count("/") > 1:  # the logs of sources are cut
                    yield from (join(folder, name) for name in names)


def relocated_metadata(files: FileTree, path: str, into: FileTree) -> bytes | None:
    """Return operator metadata for another tree: it names schema files by absolute paths. None for other files."""
    return with_schemas_in(files.read(path), path, into) if is_operator_metadata(path) else None


def _empty_sink_log(next_batch: int, original: FileTree | None) -> dict[str, bytes]:
    """Return log files without entries for the earlier batches, compacted where those of the original are."""
    names = [entry.name for entry in original.entries(SINK_LOG)] if original else []
    return empty_log(LogNames.of(names), next_batch - 1, log_with(()))


def _sink_warnings(history: History, has_own: bool) -> list[str]:
    """Return warnings about a fork that would write to the sink of the original."""
    job = history.logs.job
    if not has_own and parse_table_uri(job.sink):
        return [
            f"the original writes to {job.sink}; the fork would add its rows to the same table, as another query. Give it "
            f"a copy: --sink {TABLE_URIS}"
        ]
    return [] if has_own or job.sink_folder is None else [_sink_warning(job.sink_folder)]


def _sink_warning(folder: str) -> str:
    return (
        f"the original writes to the files in {folder}, where batches of the fork would collide with its own; give the "
        "fork a sink of its own: --sink files:DIR"
    )


def _refuse_unreachable(history: History, at: int) -> None:
    if at in history.batch_ids and history.batch(BatchId(at)).can_rewind_to:
        return
    why = history.batch(BatchId(at)).why_not if at in history.batch_ids else "it is not in the logs"
    reachable = [number for number in history.batch_ids if history.batch(number).can_rewind_to]
    raise ChangeRefused(
        "cannot-fork",
        f"cannot fork at batch {at}",
        evidence={"why": why or "", "checkpoint": history.files.location},
        remedy=f"headwater fork {history.files.location} INTO --at {reachable[-1]}" if reachable else None,
    )
