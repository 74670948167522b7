"""Make and drop restore points.

Making one only adds files under ``_headwater/kept/``, so a stream may run meanwhile. Spark's clean-up can then remove a
file before it is linked; the attempt is discarded and repeated with what is there. A change to the checkpoint, such as a
rewind, is excluded: it would leave a point with files of two histories.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import Batch, History
from headwater.checkpoint.layout import (
    COMMITS,
    COMPACT,
    JOB_FILE,
    LOG_FOLDER,
    METADATA,
    OFFSETS,
    PLANS_FILE,
    SINK_LOG,
    SOURCES,
    SST_FOLDER,
    is_temporary,
    join,
    log_id,
    parent_and_name,
    state_file,
)
from headwater.checkpoint.logtext import read_bytes
from headwater.checkpoint.migrated import former_path
from headwater.checkpoint.record import sink_of
from headwater.checkpoint.restore_points import (
    FOLDER,
    LIST_SUFFIX,
    RestorePoint,
    find_point,
    require_name,
    require_point,
    restore_points,
)
from headwater.checkpoint.revisions import resolve
from headwater.checkpoint.rocksdb_zip import open_snapshot_zip
from headwater.checkpoint.state_folder import Recipe
from headwater.core.errors import ChangeRefused, CheckpointUnreadable, UsageProblem
from headwater.core.ids import BatchId, version_written_by
from headwater.timemachine.change import Link
from headwater.timemachine.compacted_log import LogCut, with_crc
from headwater.timemachine.cuts import bare_name, cut_sink, cut_sources, cut_state, has_sink_log, metadata_before
from headwater.timemachine.executor import refuse_if_pending
from headwater.timemachine.journal import newest_number, read_pending
from headwater.timemachine.seed_record import SEED_FILE
from headwater.timemachine.tables import pinned_table

ATTEMPTS = 5
ABANDONED_AFTER = timedelta(days=1)
_STAMP = "%Y%m%dT%H%M%S"


@dataclass(frozen=True)
class Needed:
    """What a restore point of a batch consists of: files to link, and log files that have to be rebuilt."""

    linked: tuple[str, ...]
    written: dict[str, bytes] = field(default_factory=dict)
    sink: dict[str, bytes] = field(default_factory=dict)
    """The log of the file sink, by paths in the sink."""


def make_point(
    files: FileTree,
    name: str | None = None,
    *,
    at: str = "HEAD",
    sink: FileTree | None = None,
    automatic: bool = False,
) -> RestorePoint:
    """Keep a committed batch, by default the newest one. The stream may be running.

    ``sink`` is the folder of the query's file sink, by default the recorded one. Raise ``ChangeRefused`` if the batch cannot
    be rewound to, or if Spark removes its files faster than they can be linked.
    """
    refuse_if_pending(files)
    if name is not None:
        _refuse_taken(files, require_name(name))
    _remove_abandoned(files)
    sink = sink_of(files) if sink is None else sink
    problem: Exception | None = None
    for _ in range(ATTEMPTS):
        try:
            return _Attempt(files, sink, name, at, automatic=automatic).make()
        except (FileNotFoundError, _Raced, CheckpointUnreadable) as error:
            problem = error
    if isinstance(problem, CheckpointUnreadable):  # corrupt, not removed
        raise problem
    raise ChangeRefused(
        "keep-raced",
        "cannot keep the batch: its files changed while they were linked",
        evidence={"checkpoint": files.location, "attempts": ATTEMPTS, "last": problem},
        remedy="try again, or let Spark retain more batches: spark.sql.streaming.minBatchesToRetain",
    )


class _Raced(Exception):
    """The checkpoint changed while a point was made."""


class _Attempt:
    """One attempt to make a point. What an unsuccessful one has linked is removed."""

    def __init__(self, files: FileTree, sink: FileTree | None, name: str | None, at: str, *, automatic: bool) -> None:
        self._files = files
        self._sink = sink if sink is not None and has_sink_log(sink) else None
        self._name = name
        self._at = at
        self._automatic = automatic

    def make(self) -> RestorePoint:
        generation = newest_number(self._files)
        history = History(self._files)
        batch = _batch_to_keep(history, self._at)
        needed = needed_files(history, batch, self._sink)
        name = self._name or _unused_name(self._files, batch.batch_id)
        folder = f"{datetime.now(UTC):{_STAMP}}-{uuid.uuid4().hex[:6]}"
        place = f"{FOLDER}/{name}/{folder}"
        try:
            sizes = self._copy(needed, place)
            point = RestorePoint(
                name,
                batch.batch_id,
                time.time_ns() // 1_000_000,
                batch.committed_at_ms,
                batch.watermark_ms,
                generation,
                history.logs.query.entry.query_id if history.logs.query.entry else None,
                folder,
                len(sizes),
                sum(sizes.values()),
                self._automatic,
                self._sink.location if self._sink and needed.sink else None,
                *pinned_table(history, batch.batch_id),
            )
            self._files.write(f"{place}{LIST_SUFFIX}", json.dumps(sizes).encode())
            self._refuse_changed(generation)
            _refuse_taken(self._files, name)
            self._files.write(point.description, point.to_bytes())
        except BaseException:
            _discard(self._files, name, folder)
            raise
        return point

    def _copy(self, needed: Needed, place: str) -> dict[str, int]:
        """Link and write the files of a point; return their sizes by path below the point's folder."""
        for path in needed.linked:
            self._files.link(path, f"{place}/{path}")
        for path, data in needed.written.items():
            self._files.write(f"{place}/{path}", data)
        for path, data in needed.sink.items():
            self._files.write(f"{place}.sink/{path}", data)
        trees = {place: self._files.tree(place), f"{place}.sink": self._files.tree(f"{place}.sink")}
        folders = [folder for tree in trees.values() for folder in tree]
        self._files.sync_folders(sorted(folders))
        start = len(parent_and_name(place)[0]) + 1
        sizes = {
            join(folder, entry.name)[start:]: entry.size
            for folder in folders
            for entry in self._files.entries(folder)
            if not entry.is_folder
        }
        _verify(sizes, needed, place[start:])
        return sizes

    def _refuse_changed(self, generation: int) -> None:
        """Raise if the checkpoint was changed while its files were linked: they may be of two histories."""
        if newest_number(self._files) != generation or read_pending(self._files) is not None:
            raise _Raced("the checkpoint was changed meanwhile")


def _verify(sizes: dict[str, int], needed: Needed, place: str) -> None:
    expected = [f"{place}/{path}" for path in (*needed.linked, *needed.written)]
    expected += [f"{place}.sink/{path}" for path in needed.sink]
    missing = next((path for path in expected if path not in sizes), None)
    if missing is not None:
        raise _Raced(f"{missing} is missing")


def _batch_to_keep(history: History, at: str) -> Batch:
    if not history.logs.commits.ids:
        raise UsageProblem("no-batch", "no batch is committed yet", evidence={"checkpoint": history.files.location})
    number = resolve(at, history.batch_ids, history.committed_at_ms)
    batch = history.batch(number)
    if not batch.can_rewind_to:
        if history.last_committed != History(history.files).last_committed:
            raise _Raced(batch.why_not)
        raise ChangeRefused(
            "cannot-keep",
            f"cannot keep batch {number}: the stream cannot be rewound to it",
            evidence={"why": batch.why_not or "", "checkpoint": history.files.location},
            remedy=f"headwater log {history.files.location}   (shows the batches that can be kept)",
        )
    return batch


def needed_files(history: History, batch: Batch, sink: FileTree | None = None) -> Needed:
    """Return what a rewind to a batch needs, if Spark had removed all of it."""
    number = batch.batch_id
    # The logs were listed before the state: what they commit is on disk.
    recipes = dict(_recipes(history, batch))
    has_next = number + 1 in history.logs.offsets.entries
    cuts = cut_sources(history, BatchId(number + 1), replan=not has_next)
    linked = [
        *_batch_logs(history, number, recipes),
        *_state_files(history, number, recipes),
        *_source_files(history, cuts),
        *(path for path in (METADATA, JOB_FILE, PLANS_FILE, SEED_FILE) if history.files.exists(path)),
        *(former_path(one, path) for one, path in history.logs.former.since(0) if one <= number),
    ]
    written = metadata_before(history, number + 1)
    written |= {f"{SOURCES}/{name}/{file}": data for name, cut in cuts.items() for file, data in cut.written.items()}
    return Needed(tuple(dict.fromkeys(linked)), written, {} if sink is None else _sink_log(history, sink, number))


def _recipes(history: History, batch: Batch) -> Iterator[tuple[str, Recipe]]:
    """Yield the files that rebuild each store, by the store's folder."""
    entry = history.logs.offsets.get(batch.batch_id)
    tree, version = history.logs.state, version_written_by(batch.batch_id)
    for key in tree.expected(entry.shuffle_partitions if entry else None):
        recipe = tree.store(key).recipe(version)
        if recipe is None:
            raise _Raced(f"state version {version} of {key} cannot be rebuilt")
        yield key.folder, recipe


def _batch_logs(history: History, number: int, recipes: dict[str, Recipe]) -> Iterator[str]:
    """Yield the offsets of the batch, the ones before and after it, and the commits that name its state files."""
    offsets, commits = history.logs.offsets, history.logs.commits
    before = [one for one in offsets.ids if one < number][-1:]
    wanted = {OFFSETS: [*before, number, number + 1], COMMITS: [number - 1, number]}
    if history.logs.is_format_two:
        versions = [file.version for one in recipes.values() for name in _names(one) if (file := state_file(name))]
        wanted[COMMITS] = [*range(min(versions, default=number + 1) - 1, number + 1)]
    for log in (offsets, commits):
        names = [log.entries[one].name for one in wanted[log.folder] if one in log.entries]
        present = {entry.name for entry in history.files.entries(log.folder)}
        yield from (f"{log.folder}/{name}" for name in with_crc(names, present))


def _names(recipe: Recipe) -> tuple[str, ...]:
    return (*((recipe.snapshot,) if recipe.snapshot else ()), *recipe.changes)


def _state_files(history: History, number: int, recipes: dict[str, Recipe]) -> Iterator[str]:
    """Yield the state files of the recipes with their checksums, shared table files, and all metadata and schemas."""
    newer = set(cut_state(history, number + 1))
    outside = dict(_files_of_snapshots(history, recipes))
    for folder, names in history.logs.state.names.items():
        parent, last = parent_and_name(folder)
        is_store = folder in recipes
        is_shared = last in (SST_FOLDER, LOG_FOLDER) and parent in recipes
        wanted = set(_names(recipes[folder])) if is_store else outside.get(folder, set()) if is_shared else None
        if wanted is None and any(state_file(name) for name in names):
            continue  # a store that the batch does not have
        for name in names:
            path = join(folder, name)
            if wanted is None:
                if path not in newer and not is_temporary(name):
                    yield path
            elif bare_name(name) in wanted:
                yield path
        missing = next(iter((wanted or set()) - set(names)), None)
        if missing is not None:
            raise _Raced(f"{join(folder, missing)} is missing")


def _files_of_snapshots(history: History, recipes: dict[str, Recipe]) -> Iterator[tuple[str, set[str]]]:
    """Yield the names of the table and log files that RocksDB snapshots share, by their folders."""
    found: dict[str, set[str]] = {}
    for folder, recipe in recipes.items():
        if recipe.snapshot is None or not recipe.snapshot.endswith(".zip"):
            continue
        path = f"{folder}/{recipe.snapshot}"
        for file in open_snapshot_zip(read_bytes(history.files, path), path).files:
            place, name = parent_and_name(f"{folder}/{file.path}")
            found.setdefault(place, set()).add(name)
    missing = next((place for place in found if place not in history.logs.state.names), None)
    if missing is not None:
        raise _Raced(f"{missing} is missing")
    yield from found.items()


def _source_files(history: History, cuts: dict[str, LogCut]) -> Iterator[str]:
    for folder in history.files.entries(SOURCES):
        place = f"{SOURCES}/{folder.name}"
        names = [entry.name for entry in history.files.entries(place) if not entry.is_folder]
        cut = cuts.get(folder.name)
        wanted = names if cut is None else with_crc(_kept_log_names(names, cut), names)
        yield from (f"{place}/{name}" for name in wanted if not is_temporary(name))


def _kept_log_names(names: list[str], cut: LogCut) -> list[str]:
    """Return the files of a cut log without those that the last two compacted files repeat.

    Spark derives the compaction interval from two of them.
    """
    staying = [name for name in names if log_id(name) is not None and name not in cut.aside and name not in cut.written]
    compacted = sorted(number for name in staying if name.endswith(COMPACT) and (number := log_id(name)) is not None)
    first = compacted[-2] if len(compacted) > 1 else compacted[0] if compacted else 0
    return [name for name in staying if (log_id(name) or 0) >= first]


def _sink_log(history: History, sink: FileTree, number: int) -> dict[str, bytes]:
    cut = cut_sink(history, sink, number + 1).log
    names = [entry.name for entry in sink.entries(SINK_LOG) if not entry.is_folder]
    kept = {f"{SINK_LOG}/{name}": sink.read(f"{SINK_LOG}/{name}") for name in _kept_log_names(names, cut)}
    return kept | {f"{SINK_LOG}/{name}": data for name, data in cut.written.items()}


def _unused_name(files: FileTree, batch: int) -> str:
    taken = {entry.name for entry in files.entries(FOLDER)}
    name, number = f"batch-{batch}", 1
    while (name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    return name if number == 1 else f"{name}-{number}"


def _refuse_taken(files: FileTree, name: str) -> None:
    if find_point(files, name) is None:
        return
    raise ChangeRefused(
        "kept-exists",
        f"there is a restore point named {name} already",
        evidence={"checkpoint": files.location},
        remedy=f"choose another name, or drop it first: headwater keep {files.location} --drop {name}",
    )


def drop_point(files: FileTree, name: str) -> None:
    """Remove a restore point, also a damaged or incomplete one.

    Raise ``ChangeRefused`` if an interrupted rewind still needs it.
    """
    require_name(name)
    try:
        point = find_point(files, name)
    except CheckpointUnreadable:
        point = None
    if point is None:
        if not files.entries(f"{FOLDER}/{name}"):
            require_point(files, name)
        refuse_if_pending(files)
        files.remove_folder(f"{FOLDER}/{name}")
        return
    _refuse_if_needed(files, point)
    files.remove(point.description)
    try:
        # Again: a rewind records its steps before it checks that the point exists.
        _refuse_if_needed(files, point)
    except ChangeRefused:
        files.write(point.description, point.to_bytes())
        raise
    _discard(files, name, point.folder)


def _refuse_if_needed(files: FileTree, point: RestorePoint) -> None:
    pending = read_pending(files)
    if pending is not None and any(
        isinstance(step, Link) and step.source.startswith(f"{point.place}/") for step in pending.change.steps
    ):
        refuse_if_pending(files)


def drop_expired(files: FileTree, older_than_ms: int) -> list[RestorePoint]:
    """Drop the points that ``--keep-every`` made before a time. Points that a user named are kept."""
    expired = [point for point in restore_points(files) if point.automatic and point.kept_at_ms < older_than_ms]
    for point in expired:
        with suppress(UsageProblem):  # dropped meanwhile
            drop_point(files, point.name)
    return expired


def _discard(files: FileTree, name: str, folder: str) -> None:
    """Remove the files of a point that does not exist, or no longer."""
    place = f"{FOLDER}/{name}/{folder}"
    for below in (place, f"{place}.sink"):
        files.remove_folder(below)
    with suppress(FileNotFoundError):
        files.remove(f"{place}{LIST_SUFFIX}")
    if not files.entries(f"{FOLDER}/{name}"):
        files.remove_folder(f"{FOLDER}/{name}")


def _remove_abandoned(files: FileTree, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
    """Remove what interrupted commands have left, once they cannot be running any more.

    On an object store this would take a request for each point.
    """
    if not files.is_local:
        return
    for entry in files.entries(FOLDER):
        inside = files.entries(f"{FOLDER}/{entry.name}") if entry.is_folder else []
        with suppress(CheckpointUnreadable):
            point = find_point(files, entry.name)
            stamps = {one.name.partition(".")[0] for one in inside} - {"point", point.folder if point else ""}
            for folder in stamps:
                with suppress(ValueError):
                    made = datetime.strptime(folder.partition("-")[0], _STAMP).replace(tzinfo=UTC)
                    if now() - made > ABANDONED_AFTER:
                        _discard(files, entry.name, folder)
