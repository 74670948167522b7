"""Where the state verbs have their state from: the files themselves or, where those cannot be read, Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.cli.output import note
from headwater.core.errors import UsageProblem

if TYPE_CHECKING:
    from headwater.core.ids import BatchId
    from headwater.statefiles.reader import StateAnswer
    from headwater.statefiles.stores import StateTarget
    from headwater.timemachine.bisect import Bisected
    from headwater.timemachine.diff import StateDiff


class StateSource:
    """One checkpoint and one way to read it. Says so when it has to ask Spark."""

    def __init__(self, checkpoint: str, engine: str) -> None:
        from headwater.checkpoint.history import History
        from headwater.cli.opening import open_to_read
        from headwater.statefiles.reader import StateReader

        self.files = open_to_read(checkpoint)
        self.history = History(self.files)
        self.reader = StateReader(self.files)
        self._engine = engine
        self._said = False

    def resolve(self, revision: str) -> BatchId:
        from headwater.checkpoint.revisions import resolve

        return resolve(revision, self.history.batch_ids, self.history.committed_at_ms)

    @property
    def native(self) -> bool:
        return self._engine != "spark"

    def targets(
        self, batch: int, *, operator: int | None = None, store: str | None = None, var: str | None = None
    ) -> list[StateTarget]:
        from headwater.statefiles.stores import chosen

        return chosen(self.reader.targets(batch), operator=operator, store=store, var=var)

    def answers(
        self,
        batch: int,
        *,
        operator: int | None = None,
        store: str | None = None,
        var: str | None = None,
        one: bool = False,
        key: dict[str, str] | None = None,
    ) -> list[StateAnswer]:
        """Every store and variable that the words fit as of a batch; with ``one``, the only one; with ``key``, those keys."""
        from headwater.statefiles.refusals import FormatUnknown
        from headwater.statefiles.stores import the_one

        if self.native:
            try:
                targets = self.targets(batch, operator=operator, store=store, var=var)
                if key:
                    from headwater.timemachine.key_history import fitting, keys_with

                    targets = fitting(targets, key)
                targets = [the_one(targets)] if one else targets
                return [
                    self.reader.answer(target, batch, keys_with(self.reader, target, key, batch) if key else None)
                    for target in targets
                ]
            except FormatUnknown as unknown:
                if self._engine == "native":
                    raise
                self.say_spark(unknown.problem)
        if key:
            raise UsageProblem(
                "spark-takes-no-key",
                "Spark's reader is not asked for single keys",
                remedy="use --where instead of --key",
            )
        from headwater.spark.state_oracle import answers_from_spark

        return answers_from_spark(self.files.location, batch, operator=operator, store=store, var=var, one=one)

    def diffs(
        self, a: int, b: int, *, operator: int | None = None, store: str | None = None, var: str | None = None
    ) -> list[StateDiff]:
        """What changed from batch ``a`` to batch ``b``, for every store and variable that the words fit."""
        from headwater.statefiles.refusals import FormatUnknown
        from headwater.timemachine.diff import diff, diff_of_answers

        if self.native:
            try:
                targets = self.targets(b, operator=operator, store=store, var=var)
                return [diff(self.reader, target, a, b) for target in targets]
            except FormatUnknown as unknown:
                if self._engine == "native":
                    raise
                self.say_spark(unknown.problem)
        from headwater.spark.state_oracle import answers_from_spark

        before, after = (
            answers_from_spark(self.files.location, batch, operator=operator, store=store, var=var, one=False)
            for batch in (a, b)
        )
        return [diff_of_answers(old, new) for old, new in zip(before, after, strict=True)]

    def first_batch(
        self,
        batches: list[BatchId],
        condition: str,
        *,
        operator: int | None = None,
        store: str | None = None,
        var: str | None = None,
    ) -> Bisected:
        """The first batch after which some row fits a condition."""
        from headwater.statefiles.refusals import FormatUnknown
        from headwater.statefiles.stores import the_one
        from headwater.timemachine.bisect import first_by_changes, halve
        from headwater.views import state_sql

        if self.native and not state_sql.asks_about_all(condition):
            try:
                target = the_one(self.targets(batches[-1], operator=operator, store=store, var=var))
                return first_by_changes(self.reader, target, batches, lambda answer: state_sql.holds(answer, condition))
            except FormatUnknown as unknown:
                if self._engine == "native":
                    raise
                self.say_spark(unknown.problem)

        def holds(batch: int) -> bool:
            (answer,) = self.answers(batch, operator=operator, store=store, var=var, one=True)
            return state_sql.holds(answer, condition)

        return halve(batches, holds)

    def say_spark(self, reason: str) -> None:
        if not self._said:
            note(f"read by Spark, which takes longer: {reason}")
            self._said = True
