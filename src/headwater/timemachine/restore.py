"""Plan a rewind to a restore point whose batch is no longer in the checkpoint.

Spark has removed the batch's files, or the batches up to it have been rewound and run again with other results. Nothing of
the present checkpoint is then mixed with the point: all of Spark's files are set aside, and those of the point are linked.
State files of two histories in one folder would give wrong results without an error. Undo swaps them back.

The log of a file sink is replaced in the same way. Data files that only later batches wrote are set aside, and those that an
earlier rewind has set aside come back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from headwater.checkpoint.file_logs import FileSinkLog
from headwater.checkpoint.filetree import FileTree, walk
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import (
    HEADWATER_FOLDER,
    JOB_FILE,
    OFFSETS,
    PLANS_FILE,
    SINK_LOG,
    SOURCES,
    hadoop_crc_of,
    parent_and_name,
)
from headwater.checkpoint.record import JobRecord, read_job_record
from headwater.checkpoint.restore_points import RestorePoint, listed_files, point_files
from headwater.checkpoint.signs_of_life import signs_of_life
from headwater.core.errors import ChangeRefused, HeadwaterError
from headwater.core.text import batch_span
from headwater.lakehouse.tables import RewindableTable, TableUri
from headwater.timemachine.change import (
    OWN_RECORDS,
    Change,
    CommitToTable,
    Link,
    Move,
    Put,
    Root,
    Step,
    fingerprint,
    joined_fingerprint,
    new_change_id,
    quarantine_of,
    set_aside,
)
from headwater.timemachine.cuts import cut_sink, cut_sources, has_sink_log, must_replan, plans_before
from headwater.timemachine.effects import (
    EarliestOffsets,
    find_rereads_since,
    other_sink_warnings,
    sink_effects,
    source_table,
    table_effects,
    table_warnings,
)
from headwater.timemachine.fork import foreign_paths, spark_paths
from headwater.timemachine.journal import RESTORED_SINCE
from headwater.timemachine.moved_sources import MovedSource, moved_offsets, moved_sources
from headwater.timemachine.relocate import Place
from headwater.timemachine.rewind import RewindPlan
from headwater.timemachine.sink_swap import SinkLog, SinkSwap, parse_sink_log, steps_aside, swap_sink
from headwater.timemachine.startable import refuse_unstartable
from headwater.timemachine.tables import checkpointed, first_to_undo, pinned_version

RESTORED = "restored"


def is_in_checkpoint(files: FileTree, point: RestorePoint) -> bool:
    """Return whether the checkpoint can still be rewound to exactly the batch that a point has kept."""
    if first_to_undo(files, point) <= point.batch_id:
        return False  # the batch may have run again since
    live, number = History(files), point.batch_id
    if number not in live.batch_ids or not live.batch(number).can_rewind_to:
        return False
    kept = point_files(files, point)
    return all(
        files.read(log.path(number)) == kept.read(log.path(number)) for log in (live.logs.offsets, live.logs.commits)
    )


def plan_restore(
    files: FileTree,
    point: RestorePoint,
    *,
    replan: bool = False,
    sink: FileTree | None = None,
    sink_uri: str | None = None,
    source_uris: Sequence[str] = (),
    ask_kafka: EarliestOffsets | None = None,
    table: RewindableTable | None = None,
    keep_foreign: bool = False,
) -> RewindPlan:
    """Plan to replace everything that Spark has in a checkpoint by the files of a restore point.

    ``table`` returns to the batch of the point, as in ``plan_rewind``.
    """
    sink = sink if sink is not None and (has_sink_log(sink) or _was_emptied(point, sink)) else None
    seen, seen_table = fingerprint(files, sink), table.fingerprint() if table else ""
    history, kept = History(files), History(point_files(files, point))
    _refuse_damaged(files, point)
    _refuse_other_query(history, point)
    batch = kept.batch(point.batch_id)
    if not batch.can_rewind_to:
        raise _damaged(files, point, batch.why_not or "it cannot be rewound to")
    next_batch = point.batch_id + 1

    def read_table(source: str) -> TableUri | None:
        return source_table(history, source, source_uris)

    moved = moved_sources(kept, point.batch_id, read_table)
    replan = replan or bool(moved) or must_replan(kept, next_batch)
    change_id = new_change_id("rewind")
    returned = (
        None
        if table is None
        else table.plan_rewind(
            checkpointed(history),
            point.batch_id,
            change_id=change_id,
            keep_foreign=keep_foreign,
            pinned=pinned_version(files, point, table),
        )
    )
    table_step = (CommitToTable(returned.action),) if returned and returned.action else ()
    swap = SinkSwap() if sink is None else swap_sink(sink, _kept_log(files, kept, point, sink), change_id)
    first = first_to_undo(files, point)
    # Batches that Spark has removed from the logs ran too, and run again.
    forgotten = range(first, history.batch_ids[0]) if history.batch_ids else range(0)
    undone = (*forgotten, *(number for number in history.batch_ids if number >= first))
    effects, warnings = "nothing is written again", list[str]()
    if returned is not None:
        effects, warnings = table_effects(returned, point.batch_id), list(returned.warnings)
    elif undone:
        effects, warnings = sink_effects(sink_uri or history.logs.job.sink, has_log=sink is not None, undone=undone)
    warnings += table_warnings(history.logs.job.statics, undone)
    warnings += other_sink_warnings(history.logs.job.sink, sink_uri) if undone else []
    steps: tuple[Step, ...] = (
        *swap.leaving,
        *(set_aside(change_id, "checkpoint", path) for path in _leaving(files, set(spark_paths(kept.files)))),
        *swap.coming,
        *_links(kept, point, moved, read_table, replan=replan),
        *_records(history, kept, next_batch, change_id),
        *table_step,
    )
    if replan:
        remedy = f"headwater rewind {files.location} --to {point.name}   (without --replan)"
        refuse_unstartable(files, steps, point.batch_id, None if moved or must_replan(kept, next_batch) else remedy)
    change = Change(
        change_id,
        "rewind",
        f"rewind to restore point {point.name}, batch {point.batch_id}",
        steps,
        joined_fingerprint(seen, seen_table if table_step else ""),
        sink.location if sink else None,
        point.batch_id,
        details={"undone": list(undone), "replan": replan, RESTORED: point.name, RESTORED_SINCE: point.generation},
        table=table.reference if table and table_step else None,
    )
    return RewindPlan(
        files,
        sink,
        point.batch_id,
        next_batch,
        undone,
        replan,
        change,
        find_rereads_since(batch, history, ask_kafka, source_uris, moved=[one.source for one in moved]),
        effects,
        (*warnings, *swap.warnings, *_rerun_warning(point, undone)),
        tuple(signs_of_life(history)),
        returned,
        table if table_step else None,
        moved,
    )


def _leaving(files: FileTree, coming: Collection[str]) -> list[str]:
    """Return what leaves a checkpoint before other files come: everything but the files of connectors that do not come."""
    staying = set(foreign_paths(files)).difference(coming)
    return sorted(path for path in spark_paths(files) if path not in staying)


def _rerun_warning(point: RestorePoint, undone: Sequence[int]) -> tuple[str, ...]:
    again = [number for number in undone if number <= point.batch_id]
    if not again:
        return ()
    which = f"{batch_span(again[0], again[-1])} {'was' if len(again) == 1 else 'were'}"
    return (f"{which} rewound and run again since the restore point was made; these results are set aside too",)


def _refuse_damaged(files: FileTree, point: RestorePoint) -> None:
    """Raise ``ChangeRefused`` if files of a point are missing or have other sizes than recorded."""
    start = len(parent_and_name(point.place)[0]) + 1
    present = {
        path[start:]: entry.size for place in (point.place, point.sink_place) for path, entry in walk(files, place)
    }
    try:
        listed = listed_files(files, point)
    except HeadwaterError as error:
        raise _damaged(files, point, error.problem) from None
    wrong = next((path for path, size in listed.items() if present.get(path) != size), None)
    if wrong is not None:
        raise _damaged(files, point, f"{wrong} is {'incomplete' if wrong in present else 'missing'}")


def _damaged(files: FileTree, point: RestorePoint, why: str) -> ChangeRefused:
    return ChangeRefused(
        "kept-incomplete",
        f"the restore point {point.name} is damaged",
        evidence={"why": why, "checkpoint": files.location},
        remedy=f"headwater kept {files.location}   (choose another one)",
    )


def _refuse_other_query(history: History, point: RestorePoint) -> None:
    current = history.logs.query.entry
    if point.query_id and current and current.query_id != point.query_id:
        raise ChangeRefused(
            "kept-other-query",
            f"the restore point {point.name} belongs to another query that used this checkpoint before",
            evidence={"restore point": point.query_id, "checkpoint": current.query_id},
            remedy=f"headwater fork {history.files.location} INTO --at {point.name}",
        )


def _links(
    kept: History,
    point: RestorePoint,
    moved: Sequence[MovedSource],
    table_of_source: Callable[[str], TableUri | None],
    *,
    replan: bool,
) -> Iterator[Step]:
    """Yield the steps that bring back the files of a point."""
    next_batch = point.batch_id + 1
    left_out: set[str] = set()
    written: dict[str, bytes] = {}
    if replan:
        planned = f"{OFFSETS}/{next_batch}"
        left_out = {planned, hadoop_crc_of(planned)}
        for name, cut in cut_sources(kept, next_batch, replan=True).items():
            aside = {f"{SOURCES}/{name}/{file}" for file in (*cut.aside, *cut.written)}
            left_out |= aside | {hadoop_crc_of(path) for path in aside}
            written |= {f"{SOURCES}/{name}/{file}": data for file, data in cut.written.items()}
    for cut in moved_offsets(kept, point.batch_id, moved, table_of_source):
        for name, data in cut.written.items():
            path = f"{OFFSETS}/{name}"
            left_out |= {path, hadoop_crc_of(path)}
            written[path] = data
    for path in sorted(spark_paths(kept.files)):
        if path not in left_out:
            yield Link("checkpoint", f"{point.place}/{path}", path)
    for path, data in written.items():
        yield Put("checkpoint", path, data)


def _records(history: History, kept: History, next_batch: int, change_id: str) -> Iterator[Step]:
    """Yield the steps that replace Headwater's own records by those of a point, where the present ones do not fit it."""
    records = {PLANS_FILE: plans_before(kept, next_batch)}
    present, former = read_job_record(history.files), read_job_record(kept.files)
    if kept.files.exists(JOB_FILE) and _differ(present, former):  # a migration of the sources is in between
        job = replace(present, source=former.source, sources=former.sources, source_order=former.source_order)
        records[JOB_FILE] = job.to_bytes()
    for path, data in records.items():
        if history.files.exists(path):
            yield set_aside(change_id, "checkpoint", path)
            yield Put("checkpoint", path, data)


def _differ(one: JobRecord, other: JobRecord) -> bool:
    """Return whether two records of a job have other sources, or in another order, if both recorded an order."""
    orders = {one.source_order, other.source_order} - {()}
    return set(one.sources) != set(other.sources) or len(orders) > 1


def _kept_log(files: FileTree, kept: History, point: RestorePoint, sink: FileTree) -> SinkLog:
    """Return the sink's log as of the point: the kept one, or else what can be derived from the present one."""
    if _has_kept(point, sink):
        folder = f"{point.sink_place}/{SINK_LOG}"
        return parse_sink_log({one.name: files.read(f"{folder}/{one.name}") for one in files.entries(folder)})
    if first_to_undo(files, point) <= point.batch_id:
        raise ChangeRefused(
            "sink-not-kept",
            f"the restore point {point.name} does not have the log of the sink, and its batches ran again since",
            evidence={"sink": sink.location, "kept": point.sink or "none"},
            remedy="undo the rewinds since, or choose a restore point that was made after them",
        )
    cut = cut_sink(kept, sink, point.batch_id + 1).log
    staying = [name for name in FileSinkLog(sink).names.by_id.values() if name not in cut.aside]
    return parse_sink_log({name: sink.read(f"{SINK_LOG}/{name}") for name in staying} | dict(cut.written))


def is_restore(change: Change) -> bool:
    """Return whether a change was a rewind that replaced the entire checkpoint by a restore point."""
    return RESTORED in change.details


def _has_kept(point: RestorePoint, sink: FileTree) -> bool:
    """Return whether the point holds the log of this sink."""
    return point.sink is not None and Place.of(point.sink) == Place.of(sink.location)


def _was_emptied(point: RestorePoint, sink: FileTree) -> bool:
    """Return whether a rewind has set aside everything in a sink whose log the point holds."""
    return _has_kept(point, sink) and bool(sink.entries(HEADWATER_FOLDER))


def steps_back(roots: Mapping[Root, FileTree], done: Change, change_id: str) -> Iterator[Step]:
    """Yield the steps that swap everything back: all of Spark's present files leave, and those set aside return."""
    quarantine = f"{quarantine_of(done.change_id)}/"
    returning = [
        Move(step.root, step.target, step.source)
        for step in reversed(done.steps)
        if isinstance(step, Move) and step.target.startswith(quarantine)
    ]
    if "sink" in roots:
        sink, prefix = roots["sink"], f"{SINK_LOG}/"
        former = [step for step in returning if step.root == "sink" and step.target.startswith(prefix)]
        contents = {
            step.target.removeprefix(prefix): sink.read(step.source) for step in former if sink.exists(step.source)
        }
        listed = {entry.path for entries in parse_sink_log(contents).values() for entry in entries}
        yield from steps_aside(sink, listed, change_id)
    records = [step.source for step in done.steps if isinstance(step, Move) and step.source in OWN_RECORDS]
    came = {step.target for step in done.steps if isinstance(step, Link)} | {step.target for step in returning}
    for path in (*_leaving(roots["checkpoint"], came), *records):
        yield set_aside(change_id, "checkpoint", path)
    yield from returning
