"""Give up what changes have set aside, to have the room back. Afterwards they cannot be undone."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.checkpoint.files import Files, walk
from headwater.checkpoint.layout import OURS
from headwater.checkpoint.lease import held_by_us
from headwater.timemachine.change import quarantine_of
from headwater.timemachine.executor import refuse_if_pending
from headwater.timemachine.journal import is_emptied, read_entries

QUARANTINE = f"{OURS}/quarantine"


@dataclass(frozen=True)
class Quarantine:
    """What lies aside in one root."""

    files: int
    bytes: int


def measure(root: Files) -> Quarantine:
    sizes = [entry.size for path, entry in walk(root, QUARANTINE) if not path.endswith(".emptied")]
    return Quarantine(len(sizes), sum(sizes))


def empty_quarantine(files: Files, sink: Files | None = None) -> None:
    """The marker is written first: a change whose quarantine is half gone must never be undone."""
    with held_by_us(files, "headwater compact", "cannot compact"):
        refuse_if_pending(files)
        for entry in read_entries(files):
            place = quarantine_of(entry.change.change_id)
            if not is_emptied(files, entry.change):
                files.write(f"{place}.emptied", b"")
            for root in (files, sink):
                if root is not None:
                    root.remove_folder(place)
