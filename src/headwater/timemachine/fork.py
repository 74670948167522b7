"""A second checkpoint that goes on from a batch of the first, with an identity of its own. The first is only read."""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headwater.checkpoint.file_logs import LogNames, sink_log_with
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import (
    METADATA,
    OURS,
    SINK_LOG,
    SOURCES,
    STATE,
    covered_by_hadoop_crc,
    hadoop_crc_of,
    join,
)
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.operator_metadata import parse_operator_metadata
from headwater.checkpoint.record import sink_of
from headwater.core.errors import ChangeRefused
from headwater.core.ids import BatchId
from headwater.timemachine.change import Change, Move, Put, Step, fingerprint, new_change_id, set_aside
from headwater.timemachine.cuts import cut_batch_logs, cut_sources, cut_state, empty_log, entry_without_files

ORIGIN_FILE = f"{OURS}/forked_from.json"
UNFINISHED = b"headwater: this fork is not finished; remove it and fork again\n"


@dataclass(frozen=True)
class ForkPlan:
    """Paths to take over as they are, and files that are written anew. ``at`` None: an empty stream."""

    origin: FileTree = field(repr=False)
    at: int | None
    shared: tuple[str, ...]
    written: dict[str, bytes] = field(repr=False)
    sink_log: dict[str, bytes] = field(repr=False)
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "at": self.at,
            "shared": len(self.shared),
            "written": sorted(self.written),
            "sink_log": sorted(self.sink_log),
            "warnings": list(self.warnings),
        }


def plan_fork(
    files: FileTree, into: FileTree, *, at: int | None, keep_next: bool = False, new_sink: bool = False
) -> ForkPlan:
    """``keep_next`` takes the recorded offsets of the next batch along, so that it runs with them (a replay does that).

    With ``new_sink`` the plan holds a log for an empty file sink: without one Spark stumbles over the batches before.
    """
    history = History(files)
    if at is not None:
        _refuse_unreachable(history, at)
    next_batch = 0 if at is None else at + 1
    replan = not keep_next
    left_out = set(cut_batch_logs(files, next_batch, replan=replan)) | set(cut_state(history, next_batch))
    written: dict[str, bytes] = {}
    for name, cut in cut_sources(history, next_batch, replan=replan).items():
        folder = f"{SOURCES}/{name}"
        left_out |= {join(folder, held) for held in cut.aside} | {f"{folder}/.{held}.crc" for held in cut.aside}
        written |= {join(folder, held): data for held, data in cut.written.items()}
    shared = [path for path in _paths(files) if path not in left_out and path not in written]
    moved = _operator_metadata_for(files, into, shared)
    rewritten = {*moved, *written}
    shared = [path for path in shared if path not in moved and covered_by_hadoop_crc(path) not in rewritten]
    written |= moved
    written[METADATA] = json.dumps({"id": str(uuid.uuid4())}).encode()
    sink = history.logs.job.sink_folder
    warnings = [] if new_sink or sink is None else [_sink_warning(sink)]
    sink_log = _empty_sink_log(next_batch, sink_of(files)) if new_sink else {}
    return ForkPlan(files, at, tuple(shared), written, sink_log, tuple(warnings))


def carry_out_fork(plan: ForkPlan, into: FileTree, sink: FileTree | None = None) -> None:
    """Write the fork. Until its last file is there, ``metadata`` holds a notice that Spark refuses to start on."""
    if into.entries(""):
        raise ChangeRefused(
            "not-empty",
            f"{into.location} is not empty: a fork needs a folder of its own",
            remedy=f"name another folder, or remove {into.location} first",
        )
    if sink is not None and sink.entries(SINK_LOG):
        raise ChangeRefused(
            "not-empty",
            f"{sink.location} is the output of another stream: a fork needs a sink of its own",
            remedy="name another folder: --sink files:DIR",
        )
    into.write(METADATA, UNFINISHED)
    for path in plan.shared:
        _share(plan.origin, into, path)
    for path, data in plan.written.items():
        if path != METADATA:
            into.write(path, data)
    if sink is not None:
        for name, data in plan.sink_log.items():
            sink.write(f"{SINK_LOG}/{name}", data)
    origin = {"checkpoint": plan.origin.location, "at": plan.at, "forked_at_ms": int(time.time() * 1000)}
    into.write(ORIGIN_FILE, json.dumps(origin).encode())
    into.write(METADATA, plan.written[METADATA])


def _paths(files: FileTree) -> Iterator[str]:
    """All that Spark put into the checkpoint, but for its identity. What is ours stays with the original."""
    for entry in files.entries(""):
        if not entry.is_folder or entry.name == OURS:
            continue
        for folder, names in files.tree(entry.name).items():
            yield from (join(folder, name) for name in names)


def _share(origin: FileTree, into: FileTree, path: str) -> None:
    """Spark replaces files and never writes into them, so two checkpoints may share them: a link costs nothing."""
    if isinstance(origin, LocalTree) and isinstance(into, LocalTree):
        target = into.path_of(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            target.hardlink_to(origin.path_of(path))
        except OSError:  # another file system, or one without links
            shutil.copy2(origin.path_of(path), target)
        return
    into.write(path, origin.read(path))


def _operator_metadata_for(files: FileTree, into: FileTree, paths: list[str]) -> dict[str, bytes]:
    """Custom state names its schema files by absolute paths, which have to lead into the fork."""
    found: dict[str, bytes] = {}
    for path in paths:
        parts = path.split("/")
        if len(parts) < 4 or parts[0] != STATE or parts[2] != "_metadata" or parts[-1].startswith("."):
            continue
        data = files.read(path)
        metadata = parse_operator_metadata(data, path)
        text = data.decode("utf-8")
        for old in {schema for store in metadata.stores for schema in store.schema_paths}:
            inside = old[old.index(f"/{STATE}/{metadata.operator_id}/") + 1 :]
            text = text.replace(json.dumps(old), json.dumps(_uri(into, inside, like=old)))
        if text.encode("utf-8") != data:
            found[path] = text.encode("utf-8")
    return found


def _uri(files: FileTree, path: str, *, like: str) -> str:
    """A path as Spark names it: what is ``s3://`` to others may be ``s3a://`` to it."""
    if isinstance(files, LocalTree):
        return f"file:{files.path_of(path).absolute()}"
    scheme, _, place = files.location.partition("://")
    spoken = like.partition("://")[0] if like.partition("://")[0].startswith(scheme) else scheme
    return f"{spoken}://{place.rstrip('/')}/{path}"


def _empty_sink_log(next_batch: int, original: FileTree | None) -> dict[str, bytes]:
    """Empty files for the batches before, compacted where the original's log is: Spark looks for them there."""
    names = [entry.name for entry in original.entries(SINK_LOG)] if original else []
    return empty_log(LogNames.of(names), next_batch - 1, sink_log_with(()))


def _sink_warning(folder: str) -> str:
    return (
        f"the original writes files to {folder}: give the fork a sink of its own with --sink files:DIR, or its batches "
        "collide there"
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


def plan_adoption(
    files: FileTree, scratch: str, scratch_files: FileTree, sink: FileTree | None, *, verb: str, about: str
) -> Change:
    """``scratch`` is the fork's folder within the checkpoint. What it has and the checkpoint has not moves over.

    The log of a file sink gets an entry for each batch that is new, or Spark stumbles when it compacts that log.
    """
    history, result = History(files), History(scratch_files)
    last = history.last_committed
    added = [number for number in result.batch_ids if last is None or number > last]
    if not added:
        raise ChangeRefused("nothing-done", f"Spark's {verb} left no new batch behind", remedy="try again with --debug")
    change_id = new_change_id(verb)
    logged = [entry for number in added for entry in (entry_without_files(sink, number) if sink else {}).items()]
    return Change(
        change_id,
        verb,
        about,
        (
            *_steps(files, scratch, scratch_files, change_id),
            *(Put("sink", f"{SINK_LOG}/{name}", data) for name, data in logged),
        ),
        fingerprint(files, sink),
        sink.location if sink else None,
        to=last,
        details={"added": added, "replan": True},
    )


def _steps(files: FileTree, scratch: str, scratch_files: FileTree, change_id: str) -> Iterator[Step]:
    old = set(_adopted_paths(files))
    paths = _adopted_paths(scratch_files)
    rehomed = {path: data for path in paths if (data := _rehomed(files, scratch_files, path)) is not None}
    # The checksums beside a rewritten file are those of the scratch's.
    stale = {hadoop_crc_of(path) for path, data in rehomed.items() if data != scratch_files.read(path)}
    for path in paths:
        data = rehomed.get(path)
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


def _rehomed(files: FileTree, scratch_files: FileTree, path: str) -> bytes | None:
    """Operator metadata names schema files by absolute paths; None for a file that is taken as it is."""
    parts = path.split("/")
    if len(parts) < 4 or parts[0] != STATE or parts[2] != "_metadata" or parts[-1].startswith("."):
        return None
    text = scratch_files.read(path).decode("utf-8")
    return text.replace(_place(scratch_files), _place(files)).encode("utf-8")


def _place(files: FileTree) -> str:
    """Without the scheme: Spark's need not be ours."""
    return (
        str(files.root.absolute()) if isinstance(files, LocalTree) else files.location.partition("://")[2].rstrip("/")
    )


def _adopted_paths(files: FileTree) -> list[str]:
    found = []
    for entry in files.entries(""):
        if entry.is_folder and entry.name != OURS:
            found += [join(folder, name) for folder, names in files.tree(entry.name).items() for name in names]
    return sorted(path for path in found if path != METADATA)
