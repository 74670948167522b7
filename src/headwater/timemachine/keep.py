"""Make and drop restore points.

Making one only adds files under ``_headwater/kept/``, so a stream may run meanwhile. Spark's clean-up can then remove a
file before it is linked; the attempt is discarded and repeated with what is there. A change to the checkpoint, such as a
rewind, is excluded: it would leave a point with files of two histories.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import Batch, History
from headwater.checkpoint.layout import join, parent_and_name
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
from headwater.core.errors import ChangeRefused, CheckpointUnreadable, UsageProblem
from headwater.timemachine.change import Link
from headwater.timemachine.cuts import has_sink_log
from headwater.timemachine.earlier_layout import refuse_other_layout
from headwater.timemachine.journal import newest_number, read_pending, refuse_if_pending
from headwater.timemachine.point_files import Needed, Raced, needed_files
from headwater.timemachine.tables import pinned_table

ATTEMPTS = 5
ABANDONED_AFTER = timedelta(days=1)
_STAMP = "%Y%m%dT%H%M%S"


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
        except (FileNotFoundError, Raced, CheckpointUnreadable) as error:
            problem = error
    if isinstance(problem, CheckpointUnreadable):  # corrupt, not removed
        raise problem
    raise ChangeRefused(
        "keep-raced",
        "cannot keep the batch: its files changed while they were linked",
        evidence={"checkpoint": files.location, "attempts": ATTEMPTS, "last": problem},
        remedy="try again, or let Spark retain more batches: spark.sql.streaming.minBatchesToRetain",
    )


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
                **pinned_table(history, batch.batch_id),
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
            raise Raced("the checkpoint was changed meanwhile")


def _verify(sizes: dict[str, int], needed: Needed, place: str) -> None:
    expected = [f"{place}/{path}" for path in (*needed.linked, *needed.written)]
    expected += [f"{place}.sink/{path}" for path in needed.sink]
    missing = next((path for path in expected if path not in sizes), None)
    if missing is not None:
        raise Raced(f"{missing} is missing")


def _batch_to_keep(history: History, at: str) -> Batch:
    if not history.logs.commits.ids:
        raise UsageProblem("no-batch", "no batch is committed yet", evidence={"checkpoint": history.files.location})
    number = resolve(at, history.batch_ids, history.committed_at_ms)
    refuse_other_layout(history, number + 1, "keep")
    batch = history.batch(number)
    if not batch.can_rewind_to:
        if history.last_committed != History(history.files).last_committed:
            raise Raced(batch.why_not)
        raise ChangeRefused(
            "cannot-keep",
            f"cannot keep batch {number}: the stream cannot be rewound to it",
            evidence={"why": batch.why_not or "", "checkpoint": history.files.location},
            remedy=f"headwater log {history.files.location}   (shows the batches that can be kept)",
        )
    return batch


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
