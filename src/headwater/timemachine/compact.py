"""Give up what changes have set aside, to have the room back. Afterwards they cannot be undone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.checkpoint.filetree import FileTree, walk
from headwater.checkpoint.layout import OURS
from headwater.checkpoint.lease import held_by_us
from headwater.checkpoint.locate import open_files
from headwater.timemachine.change import quarantine_of
from headwater.timemachine.executor import refuse_if_pending
from headwater.timemachine.journal import read_entries

QUARANTINE = f"{OURS}/quarantine"


@dataclass(frozen=True)
class Quarantine:
    """What lies aside in one root."""

    files: int
    bytes: int


def measure(root: FileTree) -> Quarantine:
    sizes = [entry.size for path, entry in walk(root, QUARANTINE) if not path.endswith(".emptied")]
    return Quarantine(len(sizes), sum(sizes))


def sinks_of(files: FileTree) -> list[FileTree]:
    """Every sink folder in which a change of this checkpoint has set files aside."""
    found = dict.fromkeys(entry.change.sink for entry in read_entries(files))
    return [open_files(location) for location in found if location]


def empty_quarantine(files: FileTree, sinks: Iterable[FileTree] = ()) -> None:
    """The marker is written first: a change whose quarantine is half gone must never be undone."""
    with held_by_us(files, "headwater compact", "cannot compact"):
        refuse_if_pending(files)
        places = [quarantine_of(entry.change.change_id) for entry in read_entries(files)]
        for place in places:
            if not files.exists(f"{place}.emptied"):
                files.write(f"{place}.emptied", b"")
        for root in (files, *sinks):
            for place in places:
                root.remove_folder(place)
