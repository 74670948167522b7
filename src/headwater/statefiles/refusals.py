"""Errors for state files: an unknown format, corrupt bytes, a version that cannot be rebuilt."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core.errors import CheckpointUnreadable


class UnknownFormat(CheckpointUnreadable):
    """A format that only Spark's own reader can decode; ``--engine auto`` then falls back to that reader."""

    exit_status = 13


class StateVersionMissing(CheckpointUnreadable):
    """A version of a store that can no longer be rebuilt from its files."""

    exit_status = 13


def unknown_format(path: str, what: str) -> UnknownFormat:
    """Return the error for a file in an unknown format; ``what`` is a clause that follows the path."""
    return UnknownFormat(
        "state-format-unknown",
        f"{path} {what}",
        evidence={"file": path},
        remedy="read it with Spark's own reader: --engine spark",
    )


def corrupt_state(path: str, what: str) -> CheckpointUnreadable:
    """Return the error for a corrupt or missing file; ``what`` is a clause that follows the path."""
    return CheckpointUnreadable(
        "state-broken", f"{path} {what}", evidence={"file": path}, remedy="run `headwater fsck` on the checkpoint"
    )


def removed_state(path: str) -> CheckpointUnreadable:
    """Return the error for a file that was listed and then removed."""
    return corrupt_state(path, "no longer exists; a running query may have removed it")


def version_missing(batch: int, missing: str, readable: Sequence[int]) -> StateVersionMissing:
    """Return the error for a batch whose state cannot be rebuilt, with the batches whose state can."""
    return StateVersionMissing(
        "state-pruned",
        f"the state as of batch {batch} cannot be rebuilt",
        evidence={"missing": missing, "readable batches": ranges(readable) or "none"},
        remedy=f"choose another batch, such as --at {readable[-1]}" if readable else None,
    )


def ranges(numbers: Sequence[int]) -> str:
    """Return numbers with consecutive ones collapsed: ``1, 2, 3, 7`` as ``1..3, 7``."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}..{last}" for first, last in found)
