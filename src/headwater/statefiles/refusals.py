"""How state files say no: a format that is not known here, bytes that are broken, a version that cannot be rebuilt."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core.errors import CheckpointUnreadable


class FormatUnknown(CheckpointUnreadable):
    """A format that only Spark's own reader knows; ``--engine auto`` hands it over."""

    exit_status = 13


def unknown_format(path: str, what: str) -> FormatUnknown:
    """``what`` is a clause that follows the file's name."""
    return FormatUnknown(
        "state-format-unknown",
        f"{path} {what}",
        evidence={"file": path},
        remedy="read it with Spark's own reader: --engine spark",
    )


def broken_state(path: str, what: str) -> CheckpointUnreadable:
    """``what`` is a clause that follows the file's name."""
    return CheckpointUnreadable(
        "state-broken",
        f"{path} {what}",
        evidence={"file": path},
        remedy="run `headwater fsck` on the checkpoint",
    )


class StateVersionMissing(CheckpointUnreadable):
    """A version of a store that its files cannot rebuild."""

    exit_status = 13


def version_missing(batch: int, missing: str, readable: Sequence[int]) -> StateVersionMissing:
    return StateVersionMissing(
        "state-pruned",
        f"the state as of batch {batch} cannot be rebuilt",
        evidence={"missing": missing, "can be read": ranges(readable) or "no batch"},
        remedy=f"choose another batch, such as --at {readable[-1]}" if readable else None,
    )


def ranges(numbers: Sequence[int]) -> str:
    """``1, 2, 3, 7`` as people say it: ``1..3, 7``."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}..{last}" for first, last in found)
