"""The state of a checkpoint, read from its files or, where they are in an unknown format, by Spark.

The commands that read state and ``Checkpoint`` share it. It imports PySpark only if Spark has to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TypeVar

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.restore_points import locate_batch
from headwater.core.errors import UsageProblem
from headwater.core.ids import ANY_STORE, BatchId, StoreRef
from headwater.statefiles.answer import StateAnswer
from headwater.statefiles.key_lookup import are_key_values, grouping_key, key_filter, with_key_fields
from headwater.statefiles.reader import StateReader
from headwater.statefiles.refusals import UnknownFormat
from headwater.statefiles.stores import GivenSchema, StateTarget, only_one, select
from headwater.timemachine.bisect import Bisected, binary_search, first_by_changes
from headwater.timemachine.diff import StateDiff, diff, diff_of_answers
from headwater.timemachine.key_history import KeyHistory, key_history
from headwater.views import state_sql
from headwater.views.key_conditions import key_condition
from headwater.views.state_parts import filtered, joined_answer

Result = TypeVar("Result")
AUTO, NATIVE, SPARK = "auto", "native", "spark"


class StateSource:
    """The state stores of one checkpoint that ``ref`` means, read natively or, if ``engine`` allows it, by Spark.

    ``schema`` describes the store that has no schema file. ``note`` receives remarks for people.
    """

    def __init__(
        self,
        files: FileTree,
        ref: StoreRef = ANY_STORE,
        *,
        schema: str | None = None,
        engine: str = NATIVE,
        note: Callable[[str], None] = lambda text: None,  # noqa: ARG005
    ) -> None:
        self.files = files
        self.history = History(files)
        self.reader = StateReader(files, None if schema is None else GivenSchema.parse(schema, ref))
        self._ref = ref
        self._schema = schema
        self._engine = engine
        self._note = note
        self._noted_as_bytes: set[str] = set()
        self._fallback_noted = False

    def at(self, revision: str) -> tuple[StateSource, BatchId]:
        """Return the batch that a revision such as ``HEAD~3`` or a restore point names, and the source to read it from."""
        located = locate_batch(self.files, revision, self.history)
        if located.point is None:
            return self, located.batch_id
        source = StateSource(located.files, self._ref, schema=self._schema, engine=self._engine, note=self._note)
        return source, located.batch_id

    def targets(self, batch: int) -> list[StateTarget]:
        """Return the matching stores and variables."""
        found = select(self.reader.targets(batch), self._ref)
        for target in found:
            if target.kind == "raw" and target.label not in self._noted_as_bytes:
                self._noted_as_bytes.add(target.label)
                self._note(
                    f"{target.label} has no schema file: keys and values are shown as bytes in base64; "
                    "--schema 'key: …; value: …' decodes them"
                )
        return found

    def answers(
        self, batch: int, *, one: bool = False, key: Mapping[str, str] | None = None, where: str | None = None
    ) -> list[StateAnswer]:
        """Return the state as of a batch for each matching store and variable.

        With ``one``, raise unless exactly one matches. With ``key``, return only the keys with these fields, and with
        ``where`` only the rows that meet a condition.
        """
        return [joined_answer(parts) for parts in self.answers_in_parts(batch, one=one, key=key, where=where)]

    def answers_in_parts(
        self, batch: int, *, one: bool = False, key: Mapping[str, str] | None = None, where: str | None = None
    ) -> list[Iterator[StateAnswer]]:
        """Return the same in parts of bounded size, at least one for each store and variable. Only large state has more."""

        def read() -> list[Iterator[StateAnswer]]:
            targets = self.targets(batch)
            if key:
                targets = with_key_fields(targets, key)
            targets = [only_one(targets)] if one else targets
            return [self._native_parts(target, batch, key, where) for target in targets]

        found = self._read_natively(read)
        if found is not None:
            return found
        if key:
            raise UsageProblem(
                "spark-takes-no-key",
                "--key is not available with Spark's reader",
                remedy="use --where instead of --key",
            )
        answers = self._answers_from_spark(batch, one=one)
        return [iter([answer if where is None else state_sql.where(answer, where)]) for answer in answers]

    def _native_parts(
        self, target: StateTarget, batch: int, key: Mapping[str, str] | None, where: str | None
    ) -> Iterator[StateAnswer]:
        """Return a target's rows in parts. The first part is read here, so that Spark can read what is unknown."""
        fields, rest = dict(key or {}), where
        if where is not None and (named := key_condition(where, grouping_key(target))) is not None:
            wanted = {**named.fields, **fields}
            if {**wanted, **named.fields} == wanted and are_key_values(target, wanted):
                fields, rest = wanted, None if named.complete else where
        keys = key_filter(self.reader.decoder(target, batch), fields) if fields else None
        parts = self.reader.answers_in_parts(target, batch, keys)
        return filtered(chain([next(parts)], parts), rest)

    def diffs(self, a: int, b: int, *, one: bool = False) -> list[StateDiff]:
        """Return the changes from batch ``a`` to batch ``b`` for each matching store and variable."""

        def read() -> list[StateDiff]:
            targets = self.targets(b)
            return [diff(self.reader, target, a, b) for target in ([only_one(targets)] if one else targets)]

        diffs = self._read_natively(read)
        if diffs is not None:
            return diffs
        before, after = (self._answers_from_spark(batch, one=one) for batch in (a, b))
        return [diff_of_answers(old, new) for old, new in zip(before, after, strict=True)]

    def diffs_between(self, a: str, b: str, *, one: bool = False) -> tuple[int, int, list[StateDiff]]:
        """Return two batches by their revisions, of which each may name a restore point, and what changed between them."""
        (before, first), (after, second) = self.at(a), self.at(b)
        if before is after:
            return first, second, self.diffs(first, second, one=one)
        old = {(one.operator_id, one.store, one.var): one for one in before.answers(first, one=one)}
        pairs = [(old.get((one.operator_id, one.store, one.var)), one) for one in after.answers(second, one=one)]
        return first, second, [diff_of_answers(earlier, later) for earlier, later in pairs if earlier is not None]

    def key_histories(
        self, key: Mapping[str, str], *, one: bool = False, changes_only: bool = False
    ) -> list[KeyHistory]:
        """Return the history of the matching keys for each store and variable that has these fields in its key."""
        targets = with_key_fields(self.targets(self.reader.latest()), key)
        found = [key_history(self.reader, target, key) for target in ([only_one(targets)] if one else targets)]
        return [history.changes_only() for history in found] if changes_only else found

    def bisect(self, condition: str) -> Bisected:
        """Find the first batch after which some row meets a condition, among those whose state can be rebuilt."""
        batches = self.reader.readable(self._ref.operator)
        if not batches:
            raise UsageProblem("no-batch", "there is no batch whose state can be rebuilt")
        targets = self.targets(batches[-1])
        if len(targets) == 1:
            batches = self.reader.in_same_form(targets[0], batches)

        def read() -> Bisected:
            target = only_one(targets)
            return first_by_changes(self.reader, target, batches, lambda answer: state_sql.holds(answer, condition))

        found = None if state_sql.needs_all_rows(condition) else self._read_natively(read)
        if found is not None:
            return found

        def holds(batch: int) -> bool:
            (answer,) = self.answers(batch, one=True)
            return state_sql.holds(answer, condition)

        return binary_search(batches, holds)

    def _answers_from_spark(self, batch: int, *, one: bool) -> list[StateAnswer]:
        from headwater.spark.state_oracle import answers_from_spark  # noqa: PLC0415  rarely needed

        return answers_from_spark(self.files.location, batch, self._ref, one=one)

    def _read_natively(self, read: Callable[[], Result]) -> Result | None:
        """Return what the native reader finds, or None if Spark has to read the state instead."""
        if self._engine == SPARK:
            return None
        try:
            return read()
        except UnknownFormat as unknown:
            if self._engine == NATIVE:
                raise
            if not self._fallback_noted:
                self._note(f"using Spark to read the state, which takes longer: {unknown.problem}")
                self._fallback_noted = True
            return None
