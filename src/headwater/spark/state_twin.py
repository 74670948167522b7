"""Spark's plan of a job's state, and Spark's verdict on the state of a checkpoint, from copies of its metadata."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from headwater.checkpoint.filetree import FileTree, walk
from headwater.checkpoint.layout import COMMITS, OFFSETS, STATE, join
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.log_entries import OffsetEntry
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.migration.state_shapes import OperatorShape, read_shapes
from headwater.spark.failures import SPARK_ERRORS, condition_of, first_sentence, root_cause
from headwater.spark.internals import state_planning
from headwater.spark.internals.plans import analyzed
from headwater.spark.prepared import PreparedJob
from headwater.spark.session import CHECKPOINT_FORMAT, temporary_settings
from headwater.timemachine.fork import relocated_metadata


@dataclass(frozen=True)
class PlannedState:
    """What Spark plans for a job: the state that the code wants, and why the recorded state cannot serve for it."""

    shapes: tuple[OperatorShape, ...] | None
    refusal: str | None
    tree: FileTree | None = None
    """An empty checkpoint with the metadata and schema files of that state."""


def plan_on_twin(prepared: PreparedJob, logs: CheckpointLogs, last: int, entry: OffsetEntry) -> PlannedState:
    """Plan a job on a copy of a checkpoint's metadata, and on an empty checkpoint with the same settings."""
    settings = entry.text.body[0]
    with (
        tempfile.TemporaryDirectory(prefix="headwater-check-", ignore_cleanup_errors=True) as folder,
        temporary_settings(prepared.spark, {CHECKPOINT_FORMAT: "2" if logs.is_format_two else "1"}),
    ):
        empty, twin = LocalTree(Path(folder) / "empty"), LocalTree(Path(folder) / "twin")
        empty.write(f"{OFFSETS}/0", _without_offsets(entry))
        refusal = _refusal(prepared, empty, 0, settings)
        if refusal is not None:
            return PlannedState(None, refusal)
        for operator in empty.entries(STATE):
            # Planning writes no state, and an operator without any is not seen.
            empty.write(f"{STATE}/{operator.name}/0/1.delta", b"")
        _copy_metadata(logs, twin)
        # Custom state reads its metadata only if the batch has offsets.
        twin.write(f"{OFFSETS}/{last + 1}", entry.text.to_bytes())
        planned = MemoryTree({path: empty.read(path) for path, _ in walk(empty)})
        refusal = _refusal(prepared, twin, last + 1, settings)
        return PlannedState(read_shapes(CheckpointLogs(planned), 0), refusal, planned)


def _refusal(prepared: PreparedJob, scratch: LocalTree, batch: int, settings: str) -> str | None:
    """Plan a batch on a scratch checkpoint and return Spark's error, if it raises one."""
    folder = scratch.local_path(STATE)
    assert folder is not None
    folder.mkdir(parents=True, exist_ok=True)
    plan = analyzed(prepared.frame)
    try:
        state_planning.plan_state(prepared.spark, plan, prepared.job.mode, folder.as_uri(), batch, settings)
    except SPARK_ERRORS as error:
        condition, sentence = condition_of(error), first_sentence(error) or root_cause(error)
        return f"[{condition}] {sentence}" if condition else sentence
    return None


def _without_offsets(entry: OffsetEntry) -> bytes:
    head = entry.text.lines[:2]
    names = [source.name for source in entry.sources]
    lines = [f"{name}:-" if entry.version > 1 else "-" for name in names]
    return "\n".join([*head, *lines]).encode()


def _copy_metadata(logs: CheckpointLogs, twin: LocalTree) -> None:
    """Copy the logs of the last batches, the metadata of operators and the schemas of stores; no state."""
    files = logs.files
    for folder, log in ((OFFSETS, logs.offsets), (COMMITS, logs.commits)):
        for number in log.ids[-2:]:
            twin.write(f"{folder}/{number}", files.read(log.path(number)))
    for folder, names in logs.present_state.names.items():
        if "_metadata" not in folder.split("/") and "_stateSchema" not in folder.split("/"):
            continue
        for path in (join(folder, name) for name in names if not name.startswith(".")):
            moved = relocated_metadata(files, path, twin)
            twin.write(path, files.read(path) if moved is None else moved)
