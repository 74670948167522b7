"""Whether a checkpoint is whole once old files are back: Spark may have cleaned away what they lean on meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from headwater.checkpoint.checks.rocksdb_snapshots import snapshot_parts
from headwater.checkpoint.compactible_log import LogNames
from headwater.checkpoint.files import Files
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import SINK_LOG, SOURCES, join, parent_and_name
from headwater.checkpoint.logtext import read_bytes
from headwater.core.errors import ChangeRefused, CheckpointUnreadable
from headwater.core.ids import BatchId, version_written_by
from headwater.timemachine.change import Change, Put, Root, Step
from headwater.timemachine.log_cut import DEFAULT_INTERVAL, ids_that_spark_reads, interval_of
from headwater.timemachine.preview import Preview


def whole_again(roots: Mapping[Root, Files], steps: Sequence[Step], cut: Iterable[Step]) -> Iterator[Put]:
    """The files of a cut that are needed to make the logs whole, where the way home alone does not."""
    puts = [step for step in cut if isinstance(step, Put)]
    previews = {root: Preview(files, steps, root) for root, files in roots.items()}
    for root, folder in dict.fromkeys((step.root, parent_and_name(step.path)[0]) for step in puts):
        names = _log_names(previews[root], folder)
        if names.latest is None or names.missing_for(names.latest):
            wanted = [step for step in puts if (step.root, parent_and_name(step.path)[0]) == (root, folder)]
            yield from (step for step in wanted if not previews[root].exists(step.path))


def refuse_if_not_whole(roots: Mapping[Root, Files], steps: Sequence[Step], done: Change) -> None:
    """Raise ``ChangeRefused`` when Spark could not go on from the result."""
    lacking = next(_lacking(roots, steps), None)
    if lacking is not None:
        raise ChangeRefused(
            "cannot-restore",
            f"the {done.verb} can no longer be undone: Spark has since removed files that the old ones need",
            evidence={"lacking": lacking, "checkpoint": roots["checkpoint"].location},
        )


def _lacking(roots: Mapping[Root, Files], steps: Sequence[Step]) -> Iterator[str]:
    preview = Preview(roots["checkpoint"], steps)
    history = History(preview)
    last = history.last_committed
    if last is not None:
        why_not = history.batch(last).why_not
        if why_not:
            yield why_not
            return
        yield from _lacking_snapshot_files(history, last)
    for folder in preview.entries(SOURCES):
        yield from _lacking_log_files(preview, f"{SOURCES}/{folder.name}")
    if "sink" in roots:
        yield from _lacking_log_files(Preview(roots["sink"], steps, "sink"), SINK_LOG)


def _lacking_snapshot_files(history: History, last: BatchId) -> Iterator[str]:
    entry = history.logs.offsets.get(last)
    tree = history.logs.state
    for key in tree.expected(entry.shuffle_partitions if entry else None):
        recipe = tree.store(key).recipe(version_written_by(last))
        if recipe is None or recipe.snapshot is None or not recipe.snapshot.endswith(".zip"):
            continue
        path = f"{key.folder}/{recipe.snapshot}"
        try:
            parts = snapshot_parts(read_bytes(history.files, path), path)
        except CheckpointUnreadable as error:
            yield error.problem
            continue
        yield from (
            f"{key.folder}/{part.path} of {path}"
            for part in parts
            if not history.files.exists(f"{key.folder}/{part.path}")
        )


def _lacking_log_files(files: Files, folder: str) -> Iterator[str]:
    names = _log_names(files, folder)
    if names.latest is None:
        return
    if not names.compact_ids:
        yield from (join(folder, str(number)) for number in names.missing_for(names.latest))
        return
    for setting in {DEFAULT_INTERVAL, interval_of(names.compact_ids)}:
        for number in ids_that_spark_reads(names.compact_ids, names.latest, setting):
            if number not in names.by_id:
                yield join(folder, str(number))


def _log_names(files: Files, folder: str) -> LogNames:
    return LogNames.of(entry.name for entry in files.entries(folder) if not entry.is_folder)
