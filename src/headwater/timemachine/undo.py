"""Whether a checkpoint is whole once old files are back: Spark may have cleaned away what they lean on meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwater.checkpoint.checks.rocksdb_snapshots import snapshot_parts
from headwater.checkpoint.file_logs import LogNames
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import SINK_LOG, SOURCES, join, parent_and_name
from headwater.checkpoint.logtext import read_bytes
from headwater.core.errors import ChangeRefused, CheckpointUnreadable
from headwater.core.ids import BatchId, version_written_by
from headwater.timemachine.change import (
    Change,
    Move,
    Put,
    Root,
    Step,
    fingerprint,
    new_change_id,
    quarantine_of,
    set_aside,
)
from headwater.timemachine.cuts import DEFAULT_INTERVAL, ids_that_spark_reads, interval_of
from headwater.timemachine.executor import Progress, carry_out, no_progress, refuse_if_pending
from headwater.timemachine.journal import Entry, is_emptied, last_to_undo
from headwater.timemachine.preview import Preview
from headwater.timemachine.rewind import cut_steps


def whole_again(roots: Mapping[Root, FileTree], steps: Sequence[Step], cut: Iterable[Step]) -> Iterator[Put]:
    """The files of a cut that are needed to make the logs whole, where the way home alone does not."""
    puts = [step for step in cut if isinstance(step, Put)]
    previews = {root: Preview(files, steps, root) for root, files in roots.items()}
    for root, folder in dict.fromkeys((step.root, parent_and_name(step.path)[0]) for step in puts):
        names = _log_names(previews[root], folder)
        if names.latest is None or names.missing_for(names.latest):
            wanted = [step for step in puts if (step.root, parent_and_name(step.path)[0]) == (root, folder)]
            yield from (step for step in wanted if not previews[root].exists(step.path))


def refuse_if_not_whole(roots: Mapping[Root, FileTree], steps: Sequence[Step], done: Change) -> None:
    """Raise ``ChangeRefused`` when Spark could not go on from the result."""
    lacking = next(_lacking(roots, steps), None)
    if lacking is not None:
        raise ChangeRefused(
            "cannot-restore",
            f"the {done.verb} can no longer be undone: Spark has since removed files that the old ones need",
            evidence={"lacking": lacking, "checkpoint": roots["checkpoint"].location},
        )


def _lacking(roots: Mapping[Root, FileTree], steps: Sequence[Step]) -> Iterator[str]:
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


def _lacking_log_files(files: FileTree, folder: str) -> Iterator[str]:
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


def _log_names(files: FileTree, folder: str) -> LogNames:
    return LogNames.of(entry.name for entry in files.entries(folder) if not entry.is_folder)


@dataclass(frozen=True)
class UndoPlan:
    """What a person reads before the last change is taken back."""

    files: FileTree = field(repr=False, compare=False)
    sink_files: FileTree | None = field(repr=False, compare=False)
    undoes: Entry
    dropped: tuple[int, ...]
    change: Change

    def apply(self, progress: Progress = no_progress) -> Entry:
        """Carry it out. The query has to be stopped; a live lease or a checkpoint that moved on is refused."""
        return carry_out(self.change, self.files, self.sink_files, progress=progress)

    @property
    def restored(self) -> list[str]:
        homes = [step for step in self.change.steps if isinstance(step, Move) and self._is_home(step)]
        return [step.target if step.root == "checkpoint" else f"sink:{step.target}" for step in homes]

    @property
    def set_aside(self) -> list[str]:
        away = [step for step in self.change.steps if isinstance(step, Move) and not self._is_home(step)]
        return [step.source if step.root == "checkpoint" else f"sink:{step.source}" for step in away]

    def _is_home(self, step: Move) -> bool:
        return step.source.startswith(f"{quarantine_of(self.undoes.change.change_id)}/")

    def as_dict(self) -> dict[str, Any]:
        return {
            "undoes": self.undoes.change.change_id,
            "verb": self.undoes.change.verb,
            "to": self.undoes.change.to,
            "dropped": list(self.dropped),
            "restored": self.restored,
            "set_aside": self.set_aside,
        }


def find_undo(files: FileTree) -> Entry:
    """The change that ``undo`` would take back."""
    entry = last_to_undo(files)
    if entry is None:
        raise ChangeRefused(
            "nothing-to-undo",
            "no change of this checkpoint is left to undo",
            evidence={"checkpoint": files.location},
            remedy=f"headwater log {files.location}",
        )
    if is_emptied(files, entry.change):
        raise ChangeRefused(
            "quarantine-emptied",
            f"the last {entry.change.verb} cannot be undone: what it set aside was removed by headwater compact",
            evidence={"checkpoint": files.location, "change": entry.change.change_id},
        )
    return entry


def plan_undo(files: FileTree, *, sink: FileTree | None = None, drop_newer: bool = False) -> UndoPlan:
    """Put back exactly what the last change set aside; ``sink`` is the root that the change named, if it named one.

    Batches committed since stand in the way: refused, unless ``drop_newer`` gives them up (they are set aside too).
    """
    refuse_if_pending(files)
    entry = find_undo(files)
    done = entry.change
    sink = sink if done.sink is not None else None
    history = History(files)
    next_batch = None if done.verb == "repair" else (0 if done.to is None else done.to + 1)
    newer = () if next_batch is None else _newer_batches(history, done, next_batch)
    if newer and not drop_newer:
        raise ChangeRefused(
            "newer-batches",
            f"batches were committed since the {done.verb}: undoing it would give them up",
            evidence={"committed since": ", ".join(map(str, newer[:10])), "checkpoint": files.location},
            remedy=f"headwater undo {files.location} --drop-newer",
        )
    change_id = new_change_id("undo")
    roots: dict[Root, FileTree] = {"checkpoint": files} if sink is None else {"checkpoint": files, "sink": sink}
    replan = bool(done.details.get("replan"))
    cut = () if next_batch is None else tuple(cut_steps(history, sink, next_batch, change_id, replan=replan))
    steps = tuple(_steps(roots, done, cut, change_id))
    _refuse_if_quarantine_lacks(roots, steps, done)
    if newer:
        refuse_if_not_whole(roots, steps, done)
    change = Change(
        change_id,
        "undo",
        f"take back the {done.verb} of {done.change_id}",
        steps,
        fingerprint(files, sink),
        sink.location if sink else None,
        done.to,
        undoes=done.change_id,
    )
    return UndoPlan(files, sink, entry, newer, change)


def _newer_batches(history: History, done: Change, next_batch: int) -> tuple[int, ...]:
    own = set(done.details.get("added", ()))
    return tuple(number for number in history.logs.commits.ids if number >= next_batch and number not in own)


def _steps(roots: dict[Root, FileTree], done: Change, cut: Iterable[Step], change_id: str) -> Iterator[Step]:
    """First everything that has to make room, then the way home, then what Spark has cleaned away meanwhile."""
    place = f"{quarantine_of(done.change_id)}/"
    homes = [
        Move(step.root, step.target, step.source)
        for step in reversed(done.steps)
        if isinstance(step, Move) and step.target.startswith(place)
    ]
    came = [
        (step.root, step.target if isinstance(step, Move) else step.path)
        for step in done.steps
        if not (isinstance(step, Move) and step.target.startswith(place))
    ]
    if done.verb == "repair":  # a leftover must not take the place of a file that was written since
        taken = set(_present(roots, ((step.root, step.target) for step in homes)))
        homes = [step for step in homes if (step.root, step.target) not in taken]
    away = [step for step in cut if isinstance(step, Move)]
    leaving = {(step.root, step.source) for step in away}
    in_the_way = dict.fromkeys([*came, *((step.root, step.target) for step in homes)])
    for root, path in _present(roots, (held for held in in_the_way if held not in leaving)):
        away.append(set_aside(change_id, root, path))
    yield from away
    yield from homes
    yield from whole_again(roots, [*away, *homes], cut)


def _refuse_if_quarantine_lacks(roots: dict[Root, FileTree], steps: Iterable[Step], done: Change) -> None:
    """Before anything moves: what is to go home has to be where it was put."""
    place = f"{quarantine_of(done.change_id)}/"
    homes = [(step.root, step.source) for step in steps if isinstance(step, Move) and step.source.startswith(place)]
    lost = set(homes) - set(_present(roots, homes))
    if lost:
        root, path = min(lost)
        raise ChangeRefused(
            "quarantine-incomplete",
            f"the last {done.verb} cannot be undone: {len(lost)} of the files that it set aside are gone",
            evidence={"the first is": path, "in": roots[root].location},
            remedy="restore the folder _headwater/quarantine from a backup",
        )


def _present(roots: dict[Root, FileTree], paths: Iterable[tuple[Root, str]]) -> Iterator[tuple[Root, str]]:
    listed: dict[tuple[Root, str], set[str]] = {}
    for root, path in paths:
        folder, name = parent_and_name(path)
        if (root, folder) not in listed:
            listed[root, folder] = {entry.name for entry in roots[root].entries(folder)}
        if name in listed[root, folder]:
            yield root, path
