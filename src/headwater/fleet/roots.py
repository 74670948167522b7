"""What a user names: one checkpoint, or folders and buckets with checkpoints below them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.locate import candidates, open_checkpoint
from headwater.core.errors import CheckpointUnreadable, UsageProblem

if TYPE_CHECKING:
    from headwater.fleet.fleet import Fleet


def checkpoint_or_fleet(names: Sequence[str]) -> FileTree | Fleet:
    """Return a checkpoint if exactly one is named, otherwise the fleet of all checkpoints at and below the names.

    Raise ``CheckpointUnreadable`` for a name that is not a checkpoint and has none below it.
    """
    if len(names) == 1:
        found = open_or_root(names[0])
        if not isinstance(found, str):
            return found
        from headwater.fleet.fleet import Fleet  # noqa: PLC0415  one checkpoint needs none

        return Fleet([found])
    return fleet_of(names)


def one_checkpoint(names: Sequence[str]) -> FileTree | None:
    """Return the checkpoint if exactly one is named; None if several are, or a folder. It needs no fleet."""
    if len(names) != 1:
        return None
    try:
        return open_checkpoint(names[0])
    except CheckpointUnreadable as error:
        if error.code != "not-a-checkpoint":
            raise
        return None


def fleet_of(names: Sequence[str]) -> Fleet:
    """Return the fleet of the checkpoints at and below the names."""
    from headwater.fleet.fleet import Fleet  # noqa: PLC0415  one checkpoint needs none

    found = [open_or_root(name) for name in names]
    return Fleet([one if isinstance(one, str) else one.location for one in found])


def open_or_root(name: str) -> FileTree | str:
    """Return the checkpoint of this name, or the location of a folder that has checkpoints below it."""
    try:
        return open_checkpoint(name)
    except CheckpointUnreadable as error:
        if error.code != "not-a-checkpoint":
            raise
        from headwater.checkpoint.pipelines import open_pipeline  # noqa: PLC0415  nor a pipeline
        from headwater.fleet.fleet import Fleet  # noqa: PLC0415  one checkpoint needs none

        pipeline = open_pipeline(name)
        if pipeline is not None:
            return pipeline.location
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
