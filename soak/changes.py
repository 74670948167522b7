"""The changes of a checkpoint that a story asks for: rewind, edit, migrate, fork, promote, repartition and others."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from headwater.statefiles.key_lookup import key_texts
from soak import checks
from soak.checked_changes import CheckedChanges, UndoableChange
from soak.checks import require
from soak.environment import Stream
from soak.lineage import Lineage
from soak.meeting import Meeting
from soak.processes import run_in_process, wait_for
from soak.side_streams import run_to_end
from soak.story import Edit, Fork, Keep, Migrate, Promote, Repartition, Rewind, RewindToPoint, Undo


@dataclass(frozen=True)
class KeptPoint:
    """A restore point, and the batches that it has kept."""

    name: str
    lineage: Lineage


@dataclass
class CheckpointChanges(CheckedChanges):
    """Makes the changes that a story asks for."""

    meeting: Meeting
    points: list[KeptPoint] = field(default_factory=list)

    def rewind(self, rewind: Rewind) -> str:
        before = self.env.read_lineage(self.stream)
        target = -1 if rewind.back is None else max(-1, before.head - rewind.back)
        arguments = ["rewind", str(self.stream.checkpoint), "--yes", "--json"]
        arguments += ["--replan"] if rewind.replan else []
        arguments += ["--redo", "0"] if target < 0 else ["--to", str(target)]

        def is_done(now: Lineage) -> bool:
            kept = [batch.identity for batch in before.batches if batch.batch_id <= target]
            found = now.identities()
            next_one = before.identities()[len(kept) : len(kept) + 1]
            return found == kept or (not rewind.replan and found == kept + next_one)

        outcome = self._change(arguments, "rewind", before, is_done, rewind.kill_after_ms, rewind.ending)
        return outcome or f"rewound from {before.head} to {target}"

    def keep(self, keep: Keep) -> str:
        before = self.env.read_lineage(self.stream)
        at, name = before.head - keep.back, f"point-{len(self.points)}"
        if at < 0:
            return "too early to keep"
        result = run_in_process("keep", self.stream.checkpoint, name, "--at", at, "--json")
        if result.code == "cannot-keep":
            require(not self.env.keeps_all_state(self.stream), "keep was refused without reason:", result.err)
            self.refused["keep: cannot-keep"] += 1
            return "refused: cannot-keep"
        require(result.status == 0, "keep failed:", result.err)
        require(self.env.read_lineage(self.stream) == before, "keep changed the batches")
        kept = tuple(batch for batch in before.batches if batch.batch_id <= at)
        self.points.append(KeptPoint(name, Lineage(kept)))
        self.tally["points"] += 1
        return f"kept batch {at} as {name}"

    def rewind_to_point(self, rewind: RewindToPoint) -> str:
        if not self.points:
            return "no restore points yet"
        point, before = self.points[-1 - rewind.which % len(self.points)], self.env.read_lineage(self.stream)
        kept = point.lineage.identities()
        result = run_in_process("rewind", self.stream.checkpoint, "--to", point.name, "--yes", "--json")
        if result.code == "nothing-to-undo":
            require(before.identities()[: len(kept)] == kept, "a rewind to a point was refused without reason")
            require(before.head == point.lineage.head, "nothing to undo, but there are later batches")
            self.refused["rewind: nothing-to-undo"] += 1
            return "refused: nothing-to-undo"
        require(result.status == 0, f"the rewind to {point.name} failed:", result.err)
        now = self.env.read_lineage(self.stream, known=point.lineage)
        found = now.identities()
        require(found[: len(kept)] == kept and len(found) <= len(kept) + 1, f"batches after the rewind: {found}")
        require(now.head == point.lineage.head, "the last batch is not the one that was kept")
        self.stream.lineage = now
        self.stream.without_state |= {batch.identity for batch in point.lineage.committed[:-1]} - {
            batch.identity for batch in before.committed
        }
        self.undoable.append(UndoableChange("rewind", before))
        self.tally["rewinds to points"] += 1
        return f"rewound from {before.head} to {point.name}, batch {now.head}"

    def move(self) -> str:
        before = self.env.read_lineage(self.stream)
        if not before.batches:
            return "too early to move"
        home = self.env.folder / f"place{self.tally['moves']}"
        maps = {}
        if self.env.cell.source == "files":
            maps |= {inbox: home / "in" / (source or "only") for source, inbox in self.env.inboxes.items()}
        if self.env.cell.sink == "files" and self.stream.sink.exists():
            maps[self.stream.sink] = home / "out"
        options = [word for old, new in maps.items() for word in ("--map", f"{old}={new}")]
        result = run_in_process("move", self.stream.checkpoint, home / "checkpoint", "--yes", "--json", *options)
        require(result.status == 0, "move failed:", result.err)
        run = run_in_process(*self.env.run_arguments(self.stream, 1))
        require(run.code == "checkpoint-moved", "run accepted the old place of a moved checkpoint:", run.err)
        self.stream.checkpoint = home / "checkpoint"
        self.stream.sink = maps.get(self.stream.sink, self.stream.sink)
        self.env.inboxes = {source: maps.get(inbox, inbox) for source, inbox in self.env.inboxes.items()}
        for inbox in self.env.inboxes.values():  # one without files is not copied
            inbox.mkdir(parents=True, exist_ok=True)
        require(self.env.read_lineage(self.stream) == before, "a move changed the batches")
        self.tally["moves"] += 1
        return f"moved to {home.name}"

    def redo_stuck_batch(self) -> None:
        """Apply the remedy that ``run`` prints for a batch that Spark cannot finish."""
        before = self.env.read_lineage(self.stream)
        require(before.planned is not None, "run refused with batch-stuck, but no batch is planned")
        arguments = ["rewind", str(self.stream.checkpoint), "--yes", "--json", "--redo", str(before.head + 1)]
        outcome = self._change(arguments, "rewind", before, lambda now: now == before, None, "")
        require(outcome == "", "the remedy for a stuck batch failed:", outcome)
        self.refused["run: batch-stuck"] += 1

    def edit(self, edit: Edit) -> str:
        """Remove a key from the state and undo that, so that the oracle's state is the one before."""
        before = self.env.read_lineage(self.stream)
        rows = self._state_rows() if before.head >= 0 else []
        if not rows:
            return "no state to edit"
        row = json.loads(rows[edit.row % len(rows)])
        # The stores of a join have the key in common; in some of them, each row also has an index.
        with_index = row["store"].endswith("-keyWithIndexToValue")
        wanted = {name: text for name, text in key_texts(row["key"]).items() if not (with_index and name == "index")}
        key = [option for name, text in wanted.items() for option in ("--key", f"{name}={text}")]
        operator = ["--operator", str(row["operator_id"])]
        arguments = ["edit", str(self.stream.checkpoint), *operator, *key, "--delete", "--yes", "--json"]

        def is_done(now: Lineage) -> bool:
            return now.identities()[:-1] == before.identities() and now.is_carried(now.head)

        outcome = self._change(arguments, "edit", before, is_done, edit.kill_after_ms, edit.ending)
        if self.env.read_lineage(self.stream) == before:
            return outcome
        between = "" if edit.then is None else self._change_edited(edit.then, before)
        undone = self.undo(Undo(drop_newer=False))
        require(self.env.read_lineage(self.stream) == before, "the undo of an edit left other batches:", undone)
        checks.check_state(self.env, self.stream, before.head, self.env.expected_batches(before)[-1].state)
        return f"{outcome or 'edited'}, then {between}{undone}"

    def _change_edited(self, change: Rewind | Migrate, before_edit: Lineage) -> str:
        """Change an edited checkpoint and undo that: it has to be the edited one again."""
        edited, rows = self.env.read_lineage(self.stream), self._state_rows()
        match change:
            case Rewind():
                outcome = self.rewind(change)
            case Migrate():
                outcome = self._migrate(change)
        now = self.env.read_lineage(self.stream)
        if now == edited:
            return f"{outcome}, "
        if isinstance(change, Rewind):
            require(now == before_edit, "a rewind across an edit left other batches:", now.identities())
            checks.check_state(self.env, self.stream, now.head, self.env.expected_batches(now)[-1].state)
        else:
            require(self._state_rows() == rows, "a migration changed edited state")
        undone = self.undo(Undo(drop_newer=False))
        require(self.env.read_lineage(self.stream) == edited, "the undo after an edit left other batches:", undone)
        require(self._state_rows() == rows, "the undo after an edit left other state")
        return f"{outcome}, {undone}, "

    def _state_rows(self) -> list[str]:
        var = ["--var", self.env.job.var] if self.env.job.var else []
        shown = run_in_process("state", self.stream.checkpoint, "--json", "--engine", "native", *var)
        require(shown.status == 0, "state:", shown.err)
        return sorted(shown.out.splitlines())

    def migrate(self, migrate: Migrate) -> str:
        """Keep the state in another store, from which the story continues."""
        before = self.env.read_lineage(self.stream)
        outcome = self._migrate(migrate)
        now = self.env.read_lineage(self.stream)
        if now != before:
            checks.check_state(self.env, self.stream, now.head, self.env.expected_batches(now)[-1].state)
        return outcome

    def _migrate(self, migrate: Migrate) -> str:
        before = self.env.read_lineage(self.stream)
        arguments = ["migrate", str(self.stream.checkpoint), "--store", migrate.store, "--yes", "--json"]
        arguments += ["--checkpoint-format", "2"] if migrate.checkpoint_format == 2 else []

        def is_done(now: Lineage) -> bool:
            return now.identities()[:-1] == before.identities() and now.is_carried(now.head)

        outcome = self._change(arguments, "migrate", before, is_done, migrate.kill_after_ms, migrate.ending)
        return outcome or f"migrated to {migrate.store} in batch {self.env.read_lineage(self.stream).head}"

    def fork(self, fork: Fork) -> str:
        forked = self._run_fork(fork)
        return forked if isinstance(forked, str) else f"forked, and ran the fork to {forked.lineage.head}"

    def promote(self, promote: Promote) -> str:
        """Promote a fork and undo that, so that the original has its place and its sink again."""
        forked, origin = self._run_fork(promote), self.env.read_lineage(self.stream)
        if isinstance(forked, str):
            return forked
        result = run_in_process("promote", forked.checkpoint, "--yes", "--json")
        if result.code == "not-attached" and self.tally["kills"]:
            # A job that was killed a minute ago may still be running, as far as anybody can tell.
            self.refused["promote: not-attached"] += 1
            return "ran a fork; its promotion was refused: not-attached"
        require(result.status == 0, "promote failed:", result.err)
        if self.env.cell.sink in ("files", "delta"):  # the others keep the sink of the fork
            checks.check_after_action(self.env, replace(forked, sink=self.stream.sink, starts_at=self.stream.starts_at))
        undone = run_in_process("undo", self.stream.checkpoint, "--yes", "--json")
        require(undone.status == 0, "the undo of a promotion failed:", undone.err)
        require(self.env.read_lineage(self.stream) == origin, "a promotion and its undo left other batches")
        checks.check_after_action(self.env, forked)
        self.tally["promotions"] += 1
        return f"promoted a fork at batch {forked.lineage.head}, and undid that"

    def _run_fork(self, fork: Fork | Promote) -> Stream | str:
        """Fork the stream, run the fork to the end of its input and check it; return why not if it cannot be forked."""
        origin = self.env.read_lineage(self.stream)
        at = origin.head - fork.back
        if at < 0:
            return "too early to fork"
        stream = self.env.create_stream(f"fork{self.tally['forks']}")
        sink = ["--sink", self.env.sink_uri(stream)] if self.env.cell.sink_is_rewound else []
        result = run_in_process("fork", self.stream.checkpoint, stream.checkpoint, "--at", at, *sink)
        if result.code == "cannot-fork":
            require(not self.env.keeps_all_state(self.stream), "fork was refused without reason:", result.err)
            self.refused["fork: cannot-fork"] += 1
            return "refused: cannot-fork"
        require(result.status == 0, "fork failed:", result.err)
        stream.lineage = Lineage(tuple(batch for batch in origin.batches if batch.batch_id <= at))
        stream.starts_at = at + 1
        now = self.env.read_lineage(stream)
        require(now.identities() == stream.lineage.identities(), "the fork has different batches:", now.identities())
        run_to_end(self.env, stream, fork.limit, self.tally)
        require(self.env.read_lineage(self.stream) == origin, "a run of the fork changed the original")
        self.tally["forks"] += 1
        return stream

    def repartition(self, repartition: Repartition) -> str:
        before = self.env.read_lineage(self.stream)
        arguments = ("repartition", self.stream.checkpoint, repartition.partitions, "--yes")
        if repartition.kill_after_ms is None:
            result = self.env.worker.run(*arguments)
        else:
            with self.meeting.attended() as meeting:
                self.env.worker.start(*arguments)
                seconds = repartition.kill_after_ms / 1000
                wait_for(lambda: False, unless=lambda: self.env.worker.has_answered, seconds=seconds)
                meeting.ready()
            answer = self.env.worker.finish_unless_killed()
            if answer is None:
                self.tally["kills of changes"] += 1
                return self._end_killed_repartition(before)
            result = answer
        if result.status:
            reasons = {
                "state-store": self.env.cell.store == "hdfs" or self.tally["migrates"] > 0,
                "uncommitted-batch": before.planned is not None,
                "nothing-to-do": True,
                "no-state": before.head < 0,
                "pyspark-version": self.env.services.spark < "4.2",
            }
            require(reasons.get(str(result.code), False), "repartition was refused without reason:", result.err)
            require(self.env.read_lineage(self.stream) == before, "a refused repartition changed the checkpoint")
            self.refused[f"repartition: {result.code}"] += 1
            return f"refused: {result.code}"
        return self._check_repartition(before)

    def _check_repartition(self, before: Lineage) -> str:
        now = self.env.read_lineage(self.stream)
        require(now.identities()[:-1] == before.identities(), "repartition changed older batches")
        require(now.is_carried(now.head), "the batch that repartition added is not a copy of the one before")
        checks.check_state(self.env, self.stream, now.head, self.env.expected_batches(now)[-1].state)
        self.stream.lineage = now
        self.undoable.append(UndoableChange("repartition", before))
        self.tally["repartitions"] += 1
        return f"repartitioned in batch {now.head}"

    def _end_killed_repartition(self, before: Lineage) -> str:
        if (self.stream.checkpoint / "_headwater" / "pending.json").exists():
            self.tally["changes cut short"] += 1
            self._repair_interrupted()
        if self.env.read_lineage(self.stream) == before:
            return "repartition killed, nothing changed"
        return self._check_repartition(before) + ", killed half-way"

    def compact(self) -> str:
        quarantines = [root / "_headwater" / "quarantine" for root in (self.stream.checkpoint, self.stream.sink)]
        files = [file for folder in quarantines for file in folder.rglob("*") if file.is_file()]
        set_aside = [file for file in files if file.suffix != ".emptied"]
        result = run_in_process("compact", self.stream.checkpoint, "--yes")
        require(result.status == 0, "compact failed:", result.err)
        for change in self.undoable:
            change.quarantine_emptied = change.quarantine_emptied or bool(set_aside)
        self.tally["compactions"] += 1
        return f"removed {len(set_aside)} files from the quarantine"

    def repair(self) -> str:
        before = self.env.read_lineage(self.stream)
        result = run_in_process("fsck", self.stream.checkpoint, "--repair", "--yes", "--json")
        require(result.status == 0, "fsck --repair failed:", result.out, result.err)
        require(self.env.read_lineage(self.stream) == before, "a repair changed the batches")
        repaired = '"repair":' in result.out
        if repaired:
            self.undoable.append(UndoableChange("repair", before))
        self.tally["repairs"] += 1
        return "repaired" if repaired else "nothing to repair"
