"""Promote a fork: it takes the place of the stream that it was forked from.

The original stops and keeps its files. Its location gets a pointer, so that its name and path refer to the fork, and neither
Headwater nor a plain program starts it again. The fork then continues in the sink of the original, see ``takeover``; if it
keeps its own sink, it is not touched and may run all the time. Undo gives both their sinks back and removes the pointer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.lease import hold_lease, live_lease
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.logtext import json_object
from headwater.checkpoint.moved import (
    POINTER,
    PROMOTED_NOTICE,
    MovedTo,
    encoded_metadata,
    read_pointer,
    replace_metadata,
    restore_metadata,
)
from headwater.checkpoint.record import JobRecord, read_job_record, sink_of, uri_kind
from headwater.core.errors import ChangeRefused
from headwater.core.text import count
from headwater.timemachine.catching_up import SharedPart, SourceLag, lag_of, shared_parts
from headwater.timemachine.change import Change, new_change_id, scratch_of
from headwater.timemachine.fork import ORIGIN_FILE
from headwater.timemachine.journal import Entry, entry_of, newest_number, read_entries, refuse_if_pending, write_entry
from headwater.timemachine.move import absolute
from headwater.timemachine.relocate import Place
from headwater.timemachine.sink_rows import Row, rows_between, rows_by_batch
from headwater.timemachine.takeover import (
    WITHOUT_ROWS,
    Takeover,
    TakeoverUndo,
    have_same_sink,
    interrupted_takeover,
    is_taken_over,
    place_of,
    plan_takeover,
    plan_takeover_undo,
    why_kept,
)


@dataclass(frozen=True)
class WrittenByBoth:
    """What both streams have written for the same input."""

    part: SharedPart
    original: tuple[Row, ...]
    fork: tuple[Row, ...]


@dataclass(frozen=True)
class PromotePlan:
    """A promotion. ``written`` is what can be compared; ``not_compared`` is why nothing or not all of it can."""

    fork: FileTree = field(repr=False)
    original: FileTree = field(repr=False)
    at: int | None
    lag: tuple[SourceLag, ...]
    allowed_lag: int
    written: tuple[WrittenByBoth, ...]
    not_compared: str | None
    sinks: tuple[str | None, str | None]
    """Where the original and the fork write."""
    runs: tuple[bool, bool]
    """Whether the original and the fork are running."""
    warnings: tuple[str, ...]
    change_id: str = ""
    takeover: Takeover | None = None
    """How the fork continues in the sink of the original; None if it keeps its own, or has the same."""
    reference: str | None = None
    """How to load the fork's job."""

    @property
    def behind(self) -> str:
        """How far the fork is behind, as a clause."""
        parts = [
            f"{f'an unknown number of {one.unit}s' if one.behind is None else count(one.behind, one.unit)} of {one.label}"
            for one in self.lag
            if one.behind != 0
        ]
        return ", ".join(parts) or "nothing"

    @property
    def caught_up(self) -> bool:
        """Whether the fork is within the allowed lag in every source."""
        return all(one.behind is not None and one.behind <= self.allowed_lag for one in self.lag)

    def refuse_behind(self) -> None:
        """Raise ``ChangeRefused`` if the fork has not caught up."""
        if not self.caught_up:
            raise ChangeRefused(
                "fork-behind",
                f"the fork has not read {self.behind} that the original has read",
                evidence={"fork": self.fork.location, "allowed": self.allowed_lag, "running": self.runs[1]},
                remedy=f"run the fork until it has caught up: headwater run JOB --checkpoint {self.fork.location}",
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form, without the rows."""
        return {
            "fork": self.fork.location,
            "original": self.original.location,
            "at": self.at,
            "lag": [one.as_dict() for one in self.lag],
            "caught_up": self.caught_up,
            "running": {"original": self.runs[0], "fork": self.runs[1]},
            "sinks": {"original": self.sinks[0], "fork": self.sinks[1]},
            "takeover": None if self.takeover is None else self.takeover.as_dict(),
            "not_compared": self.not_compared,
            "warnings": list(self.warnings),
        }

    def apply(self) -> Entry:
        """Give the fork the place of the original, which has to be stopped."""
        with ExitStack() as leases:
            for files in (self.original, *((self.fork,) if self.takeover else ())):
                leases.enter_context(hold_lease(files, "headwater promote", "cannot promote the fork"))
            return self.carry_out()

    def carry_out(self) -> Entry:
        """Do what ``apply`` does. The caller holds the leases of the original and, for a takeover, of the fork."""
        pointer = read_pointer(self.original) or self._pointer()
        self.original.write(POINTER, pointer.to_bytes())
        replace_metadata(self.original, PROMOTED_NOTICE)
        if self.takeover is not None:
            self.takeover.carry_out()
        change = Change(pointer.move_id, "promote", f"promote {pointer.to}", (), details={"to": pointer.to})
        return entry_of(self.original, change) or write_entry(self.original, change, pointer.moved_at_ms)

    def _pointer(self) -> MovedTo:
        return MovedTo(
            self.fork.location,
            self.change_id or new_change_id("promote"),
            time.time_ns() // 1_000_000,
            max(History(self.original).batch_ids, default=None),
            newest_number(self.original),
            *encoded_metadata(self.original),
            promoted=True,
        )


def plan_promotion(
    fork: FileTree,
    original: FileTree | None = None,
    *,
    lag: int = 0,
    compare: bool = True,
    keep_sink: bool = False,
    open_tree: Callable[[str], FileTree] = open_files,
) -> PromotePlan:
    """Plan to promote a fork. ``original`` is by default the checkpoint that it was forked from.

    ``lag`` is how many records, files or versions of a source the fork may be behind. With ``keep_sink`` the fork keeps
    writing where it does. A promotion that was interrupted is finished by the same command.
    """
    fork = absolute(fork)
    origin = _origin(fork)
    original = absolute(original if original is not None else open_tree(_location(fork, origin)))
    pointer = read_pointer(original)
    change_id = pointer.move_id if pointer else new_change_id("promote")
    takeover = interrupted_takeover(fork, change_id)
    if takeover is None:
        refuse_if_pending(fork)
    if pointer is None or Place.of(pointer.to) != Place.of(fork.location):
        refuse_if_pending(original)
    elif any(entry.change.change_id == pointer.move_id for entry in read_entries(original)):
        raise ChangeRefused("nothing-to-do", "the fork is promoted already", evidence={"original": original.location})
    if Place.of(fork.spark_uri()) == Place.of(original.spark_uri()):
        raise ChangeRefused(
            "not-a-fork", "a checkpoint cannot be promoted in place of itself", evidence={"fork": fork.location}
        )
    at = origin.get("at") if origin else None
    theirs, ours = History(original), History(fork)
    written, why = _written(original, fork, theirs, ours, at) if compare else ((), "it was not asked for")
    jobs = read_job_record(original), read_job_record(fork)
    kept = "--keep-sink" if keep_sink else why_kept(*jobs)
    at = at if isinstance(at, int) else None
    if takeover is None and kept is None and not have_same_sink(*jobs):
        takeover = plan_takeover(fork, original, at, change_id)
    return PromotePlan(
        fork,
        original,
        at,
        lag_of(theirs, ours),
        lag,
        written,
        why,
        (jobs[0].sink, jobs[1].sink),
        (live_lease(original) is not None, live_lease(fork) is not None),
        _warnings(*jobs, kept)
        if takeover is None and not is_taken_over(fork, change_id)
        else _takeover_warnings(takeover),
        change_id,
        takeover,
        jobs[1].reference,
    )


def _origin(fork: FileTree) -> dict[str, Any] | None:
    try:
        return json_object(fork.read(ORIGIN_FILE).decode("utf-8", "replace"), ORIGIN_FILE)
    except FileNotFoundError:
        return None


def _location(fork: FileTree, origin: dict[str, Any] | None) -> str:
    if origin is None:
        raise ChangeRefused(
            "not-a-fork",
            "this checkpoint was not made by headwater fork",
            evidence={"checkpoint": fork.location},
            remedy="name the checkpoint whose place it takes: --original CKPT",
        )
    return str(origin.get("checkpoint"))


def _written(
    original: FileTree, fork: FileTree, theirs: History, ours: History, at: int | None
) -> tuple[tuple[WrittenByBoth, ...], str | None]:
    first, why_not = rows_by_batch(original)
    second, why_not_fork = rows_by_batch(fork)
    if first is None or second is None:
        return (), f"{'the original' if first is None else 'the fork'}: {why_not or why_not_fork}"
    found, lost = [], 0
    for part in shared_parts(theirs, ours, at):
        before, after = rows_between(first, *part.original), rows_between(second, *part.fork)
        if before is None or after is None:
            lost += 1
            continue
        found.append(WrittenByBoth(part, tuple(before), tuple(after)))
    if not found:
        return (), "both have not yet read the same input since the fork" if not lost else "the sinks no longer show it"
    return tuple(found), f"{count(lost, 'part')} whose files are no longer listed" if lost else None


def _takeover_warnings(takeover: Takeover | None) -> tuple[str, ...]:
    return takeover.warnings if takeover else ()


def _warnings(original: JobRecord, fork: JobRecord, why: str | None) -> tuple[str, ...]:
    theirs, own = place_of(original.sink), place_of(fork.sink)
    if not theirs or not own:
        return ()
    if have_same_sink(original, fork):
        twice = f"both write to {theirs}: what both have written since the fork is there twice"
        return () if uri_kind(theirs) in WITHOUT_ROWS else (twice,)
    return (f"the fork keeps writing to {own}: point the readers of {theirs} there ({why})",)


@dataclass(frozen=True)
class PromoteUndoPlan:
    """The undo of a promotion: the original can be started again, and resumes where it stopped."""

    original: FileTree = field(repr=False)
    pointer: MovedTo
    takeover: TakeoverUndo | None = None
    """How both get their sinks back; None if the fork has kept its own."""

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "undoes": self.pointer.move_id,
            "verb": "promote",
            "original": self.original.location,
            "fork": self.pointer.to,
            "sinks_returned": self.takeover is not None,
            "batches_since": list(self.takeover.newer) if self.takeover else [],
        }

    def apply(self) -> Entry:
        """Give both streams their sinks back, if the fork has taken over that of the original, and remove the pointer."""
        with ExitStack() as leases:
            for files in (self.original, *((self.takeover.fork,) if self.takeover else ())):
                leases.enter_context(hold_lease(files, "headwater undo", "cannot undo"))
            return self.carry_out()

    def carry_out(self) -> Entry:
        """Do what ``apply`` does. The caller holds the leases."""
        if self.takeover is not None:
            self.takeover.carry_out()
        elif (sink := sink_of(self.original)) is not None:  # killed before it began, it has left copies there
            sink.remove_folder(scratch_of(self.pointer.move_id))
        undone = [entry for entry in read_entries(self.original) if entry.change.undoes == self.pointer.move_id]
        change = Change(
            new_change_id("undo"), "undo", f"undo the promotion of {self.pointer.to}", (), undoes=self.pointer.move_id
        )
        entry = undone[0] if undone else write_entry(self.original, change, time.time_ns() // 1_000_000)
        restore_metadata(self.original, self.pointer)
        self.original.remove(POINTER)
        return entry


def plan_promotion_undo(original: FileTree, pointer: MovedTo, *, keep_foreign: bool = False) -> PromoteUndoPlan:
    """Plan to undo the promotion that a pointer records. An undo that was interrupted is finished by the same command.

    ``keep_foreign`` keeps what other programs have done to a Delta table since.
    """
    fork = open_files(pointer.to)
    return PromoteUndoPlan(original, pointer, plan_takeover_undo(fork, pointer.move_id, keep_foreign=keep_foreign))
