"""Take over what was worked out on a scratch fork of a checkpoint, as one change that can be undone.

Somebody else (Spark's own offline tools) writes into the scratch; the checkpoint itself sees only the finished result.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.files import Files
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import METADATA, OURS, SINK_LOG, STATE, hadoop_crc_of, join
from headwater.checkpoint.local_files import LocalFiles
from headwater.core.errors import ChangeRefused
from headwater.timemachine.change import Change, Move, Put, Step, new_change_id, set_aside
from headwater.timemachine.fingerprint import fingerprint
from headwater.timemachine.sink_cut import entry_without_files


def plan_adoption(
    files: Files, scratch: str, scratch_files: Files, sink: Files | None, *, verb: str, about: str
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


def _steps(files: Files, scratch: str, scratch_files: Files, change_id: str) -> Iterator[Step]:
    old = set(_paths(files))
    paths = _paths(scratch_files)
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


def _rehomed(files: Files, scratch_files: Files, path: str) -> bytes | None:
    """Operator metadata names schema files by absolute paths; None for a file that is taken as it is."""
    parts = path.split("/")
    if len(parts) < 4 or parts[0] != STATE or parts[2] != "_metadata" or parts[-1].startswith("."):
        return None
    text = scratch_files.read(path).decode("utf-8")
    return text.replace(_place(scratch_files), _place(files)).encode("utf-8")


def _place(files: Files) -> str:
    """Without the scheme: Spark's need not be ours."""
    return (
        str(files.root.absolute()) if isinstance(files, LocalFiles) else files.location.partition("://")[2].rstrip("/")
    )


def _paths(files: Files) -> list[str]:
    found = []
    for entry in files.entries(""):
        if entry.is_folder and entry.name != OURS:
            found += [join(folder, name) for folder, names in files.tree(entry.name).items() for name in names]
    return sorted(path for path in found if path != METADATA)
