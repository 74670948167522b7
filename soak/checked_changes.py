"""A change of a checkpoint and its undo, made and checked: it may run, be refused, or be killed half-way.

A change that was killed while it moved files is resumed, aborted or repaired. Whatever happened, the batches have to be
those before the change or those after it, and a refusal needs a reason in the story.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from soak import checks
from soak.checks import require
from soak.environment import StoryEnvironment, Stream
from soak.lineage import Lineage
from soak.processes import Command, CommandResult, run_in_process, wait_for
from soak.story import Undo


@dataclass
class UndoableChange:
    """A change that ``undo`` is expected to undo, unless its quarantine was emptied since."""

    verb: str
    before: Lineage
    quarantine_emptied: bool = False


@dataclass
class CheckedChanges:
    """Makes changes and checks them. ``tally`` counts what happened; ``refused`` counts refusals by error code."""

    env: StoryEnvironment
    tally: Counter[str]
    refused: Counter[str]
    undoable: list[UndoableChange] = field(default_factory=list, init=False)

    @property
    def stream(self) -> Stream:
        return self.env.main

    def undo(self, undo: Undo) -> str:
        before = self.env.read_lineage(self.stream)
        last = self.undoable[-1] if self.undoable else None
        arguments = ["undo", str(self.stream.checkpoint), "--yes", "--json"]
        arguments += ["--drop-newer"] if undo.drop_newer else []

        def is_done(now: Lineage) -> bool:
            assert last is not None
            if last.verb == "repair":
                return now.identities() == before.identities()
            return now.identities() == last.before.identities() and now.head == last.before.head

        outcome = self._change(arguments, "undo", before, is_done, undo.kill_after_ms, undo.ending)
        return outcome or f"undid a {last.verb if last else ''}"

    def _change(
        self,
        arguments: list[str],
        verb: str,
        before: Lineage,
        is_done: Callable[[Lineage], bool],
        kill_after_ms: float | None,
        ending: str,
    ) -> str:
        """Make a change and check it. Return an empty string if it ran undisturbed, else what happened instead."""
        interruption = ""
        if kill_after_ms is None:
            result = run_in_process(*arguments)
        else:
            result, interruption = self._kill_change(arguments, kill_after_ms, ending, before)
        if result.status not in (0, None):
            checks.require_clear_error(result)
            self._require_reason(verb, str(result.code), before, drop_newer="--drop-newer" in arguments)
            now = self.env.read_lineage(self.stream)
            require(now == before, f"a refused {verb} changed the checkpoint")
            self.refused[f"{verb}: {result.code}"] += 1
            return f"refused: {result.code}{interruption}"
        now = self._lineage_after(verb)
        unchanged = now.identities() == before.identities() and now.head == before.head
        if interruption.endswith("aborted") or (result.status is None and unchanged):
            require(unchanged, f"an aborted {verb} changed the batches: {now.identities()}")
            return f"{verb} {interruption or 'killed before it began'}"
        require(is_done(now), f"batches after {verb}: {now.identities()}, before: {before.identities()}")
        self.stream.lineage = now
        if verb == "undo":
            last = self.undoable.pop()
            if last.verb != "repair":  # the batches are back as they ran, with the table of then
                self.stream.lineage = self.env.read_lineage(self.stream, known=last.before)
            self.tally["undos"] += 1
        else:
            self.undoable.append(UndoableChange(verb, before))
            self.tally[f"{verb}s"] += 1
        return f"{verb} {interruption}" if interruption else ""

    def _lineage_after(self, verb: str) -> Lineage:
        """Read the batches. After the undo of a rewind to a point, those that Spark has purged are the ones from before."""
        known = [self.stream.lineage]
        if verb == "undo" and self.undoable:
            known.append(self.undoable[-1].before)
        for candidate in known:
            try:
                found = self.env.read_lineage(self.stream, known=candidate)
            except KeyError:
                continue
            if set(found.identities()) <= set(candidate.identities()):
                return found
        return self.env.read_lineage(self.stream, known=known[-1])

    def _kill_change(
        self, arguments: list[str], kill_after_ms: float, ending: str, before: Lineage
    ) -> tuple[CommandResult, str]:
        """Kill a change some time after it began to move files, then end it by resuming, aborting or repairing it."""
        pending = self.stream.checkpoint / "_headwater" / "pending.json"
        command = Command(arguments, self.env.folder)
        wait_for(pending.exists, unless=lambda: not command.is_running, interval=0.001)
        time.sleep(kill_after_ms / 1000)
        if not command.is_running:
            return command.wait(), ""
        command.kill()
        self.tally["kills of changes"] += 1
        if not pending.exists():
            return CommandResult(None), ""
        self.tally["changes cut short"] += 1
        fsck = run_in_process("fsck", self.stream.checkpoint, "--json")
        require(
            fsck.status == 1 and "interrupted-operation" in fsck.out, "fsck missed an interrupted change:", fsck.out
        )
        run = run_in_process(*self.env.run_arguments(self.stream, 1))
        require(run.code == "interrupted-operation", "run accepted an interrupted change:", run.status, run.err)
        if ending == "repair":
            self._repair_interrupted()
            now = self._lineage_after(arguments[0])
            aborted = now.identities() == before.identities() and now.head == before.head
            return CommandResult(0), "interrupted, then aborted" if aborted else "interrupted, then repaired"
        result = run_in_process("rewind", self.stream.checkpoint, f"--{ending}")
        if result.code == "already-done":
            ending, result = "resume", run_in_process("rewind", self.stream.checkpoint, "--resume")
        require(result.status == 0, f"--{ending} failed:", result.err)
        return CommandResult(0), f"interrupted, then {'resumed' if ending == 'resume' else 'aborted'}"

    def _repair_interrupted(self) -> None:
        result = run_in_process("fsck", self.stream.checkpoint, "--repair", "--yes", "--json")
        require(result.status == 0, "fsck --repair did not resolve an interrupted change:", result.out, result.err)

    def _require_reason(self, verb: str, code: str, before: Lineage, *, drop_newer: bool) -> None:
        """Check that the situation justifies a refusal."""
        last = self.undoable[-1] if self.undoable else None
        purged = not self.env.keeps_all_state(self.stream)
        reasons = {
            "edit: uncommitted-batch": before.planned is not None,
            # No snapshot names the column families of the state yet.
            "edit: cannot-edit": self.env.cell.store in ("changelog", "format2"),
            "migrate: cannot-write-state": self.env.cell.store in ("changelog", "format2"),
            # Custom state needs RocksDB, and format 2 cannot be left.
            "migrate: cannot-migrate": True,
            "migrate: nothing-to-do": True,
            "migrate: no-state": before.head < 0,
            "migrate: uncommitted-batch": before.planned is not None,
            "rewind: nothing-to-undo": not before.batches or before.head < 0,
            "rewind: state-pruned": purged,
            "rewind: cannot-rewind": purged,
            "undo: nothing-to-undo": last is None,
            "undo: quarantine-emptied": last is not None and last.quarantine_emptied,
            "undo: newer-batches": last is not None and before.head >= 0 and not drop_newer,
            "undo: cannot-restore": drop_newer and purged,
        }
        require(reasons.get(f"{verb}: {code}", False), f"{verb} was refused without reason: {code}")
