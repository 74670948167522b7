"""What a user names: one checkpoint, or folders and buckets with checkpoints below them."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.locate import candidates, open_checkpoint
from headwater.core.errors import CheckpointUnreadable, UsageProblem
from headwater.fleet.fleet import Fleet


def checkpoint_or_fleet(names: Sequence[str]) -> FileTree | Fleet:
    """Return a checkpoint if exactly one is named, otherwise the fleet of all checkpoints at and below the names.

    Raise ``CheckpointUnreadable`` for a name that is not a checkpoint and has none below it.
    """
    if len(names) == 1:
        found = open_or_root(names[0])
        return Fleet([found]) if isinstance(found, str) else found
    return fleet_of(names)


def fleet_of(names: Sequence[str]) -> Fleet:
    """Return the fleet of the checkpoints at and below the names."""
    found = [open_or_root(name) for name in names]
    return Fleet([one if isinstance(one, str) else one.location for one in found])


def open_or_root(name: str) -> FileTree | str:
    """Return the checkpoint of this name, or the location of a folder that has checkpoints below it."""
    try:
        return open_checkpoint(name)
    except CheckpointUnreadable as error:
        if error.code != "not-a-checkpoint":
            raise
        for location in candidates(name):
            if Fleet([location]).find():
                return location
        raise


def refuse_options(options: dict[str, object], verb: str) -> None:
    """Raise ``UsageProblem`` if options for a single checkpoint are given for several ones."""
    given = [name for name, value in options.items() if value]
    if given:
        raise UsageProblem(
            "one-checkpoint-only",
            f"{given[0]} works on one checkpoint, not on all checkpoints below a folder",
            remedy=f"headwater {verb} CKPT {given[0]}",
        )
