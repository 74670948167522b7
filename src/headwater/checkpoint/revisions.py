"""Revisions, the names of batches: ``41``, ``HEAD``, ``HEAD~3``, ``@10:30``, ``@2026-07-01T10:30``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from headwater.core.errors import UsageProblem
from headwater.core.ids import BatchId
from headwater.core.times import EPOCH, iso_from_ms, ms_from_iso

_NUMBER = re.compile(r"[0-9]{1,18}")
_HEAD = re.compile(r"HEAD(?:~([0-9]{1,9}))?")
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?Z?")
_AGO = re.compile(r"([0-9]{1,9})\s*(s|m|h|d)")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DAY = timedelta(days=1)

EXAMPLES = "41, HEAD, HEAD~3, @10:30, @2026-07-01T10:30:00Z"


def resolve(text: str, batch_ids: Sequence[int], committed_at_ms: Mapping[int, int | None]) -> BatchId:
    """Return the batch that a revision names.

    ``batch_ids`` are all batches in the logs, in order; ``committed_at_ms`` has the committed ones with their times.
    HEAD is the last committed batch. A time names the last batch that was committed by then. A time of day is the
    latest such time, in UTC, that is not after the last commit.
    """
    committed = sorted(committed_at_ms)
    if _NUMBER.fullmatch(text):
        return _known(BatchId(int(text)), batch_ids)
    head = _HEAD.fullmatch(text)
    if head:
        return _back_from_head(text, int(head[1] or 0), committed)
    if text.startswith("@"):
        return batch_at(text[1:], committed_at_ms)
    raise UsageProblem("unknown-revision", f"{text!r} is not a valid batch", remedy=f"use a form such as {EXAMPLES}")


def batch_at(time: str, committed_at_ms: Mapping[int, int | None]) -> BatchId:
    """Return the last batch that was committed by a time, which is given as ISO 8601 or as a time of day."""
    stamps = {number: stamp for number, stamp in committed_at_ms.items() if stamp is not None}
    if not stamps:
        raise UsageProblem("no-batch", "no batch is committed yet", evidence={"time": time})
    moment = time_ms(time, not_after_ms=max(stamps.values()))
    earlier = [number for number, stamp in stamps.items() if stamp <= moment]
    if not earlier:
        first = min(stamps)
        raise UsageProblem(
            "no-batch",
            f"no batch was committed by {iso_from_ms(moment)}",
            evidence={"oldest commit": f"batch {first} at {iso_from_ms(stamps[first])}"},
            remedy=f"choose a later time, or batch {first}",
        )
    return BatchId(max(earlier))


def time_ms(text: str, *, not_after_ms: int) -> int:
    """Return the epoch milliseconds of a time given by a user.

    It is ISO 8601, a time of day (the latest one not after ``not_after_ms``), or a duration such as ``15m`` before
    ``not_after_ms``.
    """
    clock = _CLOCK.fullmatch(text)
    if clock:
        return _latest_time_of_day(clock, not_after_ms, text)
    ago = _AGO.fullmatch(text)
    if ago:
        return not_after_ms - int(ago[1]) * _UNIT_MS[ago[2]]
    try:
        return ms_from_iso(text)
    except (ValueError, OverflowError):
        raise _invalid_time(text) from None


def _latest_time_of_day(clock: re.Match[str], not_after_ms: int, text: str) -> int:
    hour, minute, second = (int(part or 0) for part in clock.groups())
    newest = EPOCH + timedelta(milliseconds=not_after_ms)
    try:
        moment: datetime = newest.replace(hour=hour, minute=minute, second=second, microsecond=0)
    except ValueError:
        raise _invalid_time(text) from None
    if moment > newest:
        moment -= _DAY
    return (moment - EPOCH) // timedelta(milliseconds=1)


def _invalid_time(text: str) -> UsageProblem:
    return UsageProblem(
        "bad-time", f"{text!r} is not a valid time", remedy="use a form such as 10:30, 2026-07-01T10:30:00Z or 15m"
    )


def _known(number: BatchId, batch_ids: Sequence[int]) -> BatchId:
    if number in batch_ids:
        return number
    known = f"{batch_ids[0]} to {batch_ids[-1]}" if batch_ids else "none"
    raise UsageProblem("no-batch", f"there is no batch {number}", evidence={"batches": known})


def _back_from_head(text: str, steps: int, committed: Sequence[int]) -> BatchId:
    if steps < len(committed):
        return BatchId(committed[-1 - steps])
    raise UsageProblem(
        "no-batch",
        f"{text} is before the first committed batch in the log",
        evidence={"committed batches": f"{len(committed)}" + (f", from {committed[0]}" if committed else "")},
    )
