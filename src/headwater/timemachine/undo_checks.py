"""Refuse an undo that would not restore a complete checkpoint: files that it moves back, or that Spark would need, are gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from headwater.checkpoint.file_logs import LogNames
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import SINK_LOG, SOURCES, covered_by_hadoop_crc, join, parent_and_name
from headwater.checkpoint.logtext import read_bytes
from headwater.checkpoint.rocksdb_zip import open_snapshot_zip
from headwater.core.errors import ChangeRefused, CheckpointUnreadable
from headwater.core.ids import BatchId, version_written_by
from headwater.core.text import count
from headwater.timemachine.change import (
    Change,
    Move,
    Preview,
    Root,
    Step,
    quarantine_of,
)
from headwater.timemachine.compacted_log import DEFAULT_INTERVAL, ids_that_spark_reads, interval_of

Roots = Mapping[Root, FileTree]


def complete_steps(roots: Roots, steps: Sequence[Step], done: Change) -> tuple[Step, ...]:
    """Return the steps that can be made; raise ``ChangeRefused`` if a file to move back has left the quarantine.

    Hadoop's checksum files may be gone, and Spark does without them: a move drops those of files that it rewrites, and
    an object store has none.
    """
    quarantine = f"{quarantine_of(done.change_id)}/"
    sources = [
        (step.root, step.source) for step in steps if isinstance(step, Move) and step.source.startswith(quarantine)
    ]
    gone = set(sources) - set(present(roots, sources))
    lost = {(root, path) for root, path in gone if covered_by_hadoop_crc(path) is None}
    if lost:
        root, path = min(lost)
        raise ChangeRefused(
            "quarantine-incomplete",
            f"cannot undo the last {done.verb}: {count(len(lost), 'file')} that it set aside cannot be found",
            evidence={"first missing": path, "in": roots[root].location},
            remedy="restore the folder _headwater/quarantine from a backup",
        )
    return tuple(step for step in steps if not isinstance(step, Move) or (step.root, step.source) not in gone)


def refuse_incomplete_result(roots: Roots, steps: Sequence[Step], done: Change) -> None:
    """Raise ``ChangeRefused`` if Spark could not continue from the result."""
    missing = next(_missing_after(roots, steps), None)
    if missing is not None:
        raise ChangeRefused(
            "cannot-restore",
            f"cannot undo the {done.verb}: Spark has since removed files that the restored ones need",
            evidence={"missing": missing, "checkpoint": roots["checkpoint"].location},
        )


def _missing_after(roots: Roots, steps: Sequence[Step]) -> Iterator[str]:
    preview = Preview(roots["checkpoint"], steps)
    history = History(preview)
    last = history.last_committed
    if last is not None:
        why_not = history.batch(last).why_not
        if why_not:
            yield why_not
            return
        yield from _missing_snapshot_files(history, last)
    for folder in preview.entries(SOURCES):
        yield from _missing_in_log(preview, f"{SOURCES}/{folder.name}")
    if "sink" in roots:
        yield from _missing_in_log(Preview(roots["sink"], steps, "sink"), SINK_LOG)


def _missing_snapshot_files(history: History, last: BatchId) -> Iterator[str]:
    tree = history.logs.state
    for key in history.logs.expected_stores(last):
        recipe = tree.store(key).recipe(version_written_by(last))
        if recipe is None or recipe.snapshot is None or not recipe.snapshot.endswith(".zip"):
            continue
        path = f"{key.folder}/{recipe.snapshot}"
        try:
            snapshot = open_snapshot_zip(read_bytes(history.files, path), path)
            snapshot.verify()
        except CheckpointUnreadable as error:
            yield error.problem
            continue
        yield from (
            f"{key.folder}/{file.path} of {path}"
            for file in snapshot.files
            if not history.files.exists(f"{key.folder}/{file.path}")
        )


def _missing_in_log(files: FileTree, folder: str) -> Iterator[str]:
    names = log_names(files, folder)
    if names.latest is None:
        return
    if not names.compact_ids:
        yield from (join(folder, str(number)) for number in names.missing_for(names.latest))
        return
    for setting in {DEFAULT_INTERVAL, interval_of(names.compact_ids)}:
        for number in ids_that_spark_reads(names.compact_ids, names.latest, setting):
            if number not in names.by_id:
                yield join(folder, str(number))


def log_names(files: FileTree, folder: str) -> LogNames:
    return LogNames.of(entry.name for entry in files.entries(folder) if not entry.is_folder)


def present(roots: Roots, paths: Iterable[tuple[Root, str]]) -> Iterator[tuple[Root, str]]:
    """Yield the paths at which there is a file."""
    listed: dict[tuple[Root, str], set[str]] = {}
    for root, path in paths:
        folder, name = parent_and_name(path)
        if (root, folder) not in listed:
            listed[root, folder] = {entry.name for entry in roots[root].entries(folder)}
        if name in listed[root, folder]:
            yield root, path
