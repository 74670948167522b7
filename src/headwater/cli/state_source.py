"""Options of the commands that read state, and the source that they read it from: the state files or Spark."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

import typer

from headwater.cli.output import note
from headwater.core.errors import UsageProblem

if TYPE_CHECKING:
    from headwater.core.ids import BatchId, StoreRef
    from headwater.statefiles.reader import StateAnswer
    from headwater.statefiles.stores import StateTarget
    from headwater.timemachine.bisect import Bisected
    from headwater.timemachine.diff import StateDiff

Result = TypeVar("Result")


class Engine(StrEnum):
    auto = "auto"
    native = "native"
    spark = "spark"


BATCH_HELP = "Batch: 41, HEAD, HEAD~3 or @10:30 (UTC)."
SHOWN_ROWS = 50
OPERATOR = typer.Option(help="Only this stateful operator.")
STORE = typer.Option(help="Only this state store, such as left-keyToNumValues of a join.")
VAR = typer.Option(
    help="Only this variable of custom state; timers for its timers. Hidden variables are shown only if named."
)
SCHEMA = typer.Option(
    metavar="DDL", help="Schema of a state store that has none on disk: 'key: user STRING; value: count BIGINT'."
)
ENGINE = typer.Option(help="Reader: native reads the state files, spark uses Spark, auto prefers native.")


def parse_key(texts: list[str]) -> dict[str, str]:
    """Return the fields that ``--key FIELD=VALUE`` names, given once or several times."""
    fields = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise UsageProblem("bad-key", f"{text!r} is not of the form FIELD=VALUE", remedy="--key browser=Firefox")
        fields[name] = value
    return fields


class StateSource:
    """The state of one checkpoint, read natively or, where the engine allows it, by Spark.

    ``schema`` describes the store that ``ref`` means, if that has no schema file.
    """

    def __init__(self, checkpoint: str, engine: str, schema: str | None = None, ref: StoreRef | None = None) -> None:
        from headwater.checkpoint.history import History
        from headwater.cli.checkpoint_options import open_to_read
        from headwater.core.ids import ANY_STORE
        from headwater.statefiles.reader import StateReader
        from headwater.statefiles.stores import GivenSchema

        given = None if schema is None else GivenSchema.parse(schema, ref or ANY_STORE)
        self.files = open_to_read(checkpoint)
        self.history = History(self.files)
        self.reader = StateReader(self.files, given)
        self._engine = engine
        self._noted_as_bytes: set[str] = set()
        self._fallback_noted = False

    def resolve(self, revision: str) -> BatchId:
        """Return the batch that a revision such as ``HEAD~3`` names."""
        from headwater.checkpoint.revisions import resolve

        return resolve(revision, self.history.batch_ids, self.history.committed_at_ms)

    def targets(self, batch: int, ref: StoreRef) -> list[StateTarget]:
        """Return the stores and variables that match ``--operator``, ``--store`` and ``--var``."""
        from headwater.statefiles.stores import select

        found = select(self.reader.targets(batch), ref)
        for target in found:
            if target.kind == "raw" and target.label not in self._noted_as_bytes:
                self._noted_as_bytes.add(target.label)
                note(
                    f"{target.label} has no schema file: keys and values are shown as bytes in base64; "
                    "--schema 'key: …; value: …' decodes them"
                )
        return found

    def answers(
        self, batch: int, ref: StoreRef, *, one: bool = False, key: dict[str, str] | None = None
    ) -> list[StateAnswer]:
        """Return the state as of a batch for each matching store and variable.

        With ``one``, raise unless exactly one matches. With ``key``, return only the keys with these fields.
        """
        from headwater.statefiles.key_lookup import key_filter, with_key_fields
        from headwater.statefiles.stores import only_one

        def read() -> list[StateAnswer]:
            targets = self.targets(batch, ref)
            if key:
                targets = with_key_fields(targets, key)
            targets = [only_one(targets)] if one else targets
            return [
                self.reader.answer(target, batch, key_filter(self.reader.decoder(target, batch), key) if key else None)
                for target in targets
            ]

        answers = self._read_natively(read)
        if answers is not None:
            return answers
        if key:
            raise UsageProblem(
                "spark-takes-no-key",
                "--key is not available with Spark's reader",
                remedy="use --where instead of --key",
            )
        from headwater.spark.state_oracle import answers_from_spark

        return answers_from_spark(self.files.location, batch, ref, one=one)

    def diffs(self, a: int, b: int, ref: StoreRef) -> list[StateDiff]:
        """Return the changes from batch ``a`` to batch ``b`` for each matching store and variable."""
        from headwater.timemachine.diff import diff, diff_of_answers

        def read() -> list[StateDiff]:
            return [diff(self.reader, target, a, b) for target in self.targets(b, ref)]

        diffs = self._read_natively(read)
        if diffs is not None:
            return diffs
        from headwater.spark.state_oracle import answers_from_spark

        before, after = (answers_from_spark(self.files.location, batch, ref, one=False) for batch in (a, b))
        return [diff_of_answers(old, new) for old, new in zip(before, after, strict=True)]

    def first_batch(self, batches: list[BatchId], condition: str, ref: StoreRef) -> Bisected:
        """Find the first batch after which some row meets a condition."""
        from headwater.statefiles.stores import only_one
        from headwater.timemachine.bisect import binary_search, first_by_changes
        from headwater.views import state_sql

        def read() -> Bisected:
            target = only_one(self.targets(batches[-1], ref))
            return first_by_changes(self.reader, target, batches, lambda answer: state_sql.holds(answer, condition))

        found = None if state_sql.needs_all_rows(condition) else self._read_natively(read)
        if found is not None:
            return found

        def holds(batch: int) -> bool:
            (answer,) = self.answers(batch, ref, one=True)
            return state_sql.holds(answer, condition)

        return binary_search(batches, holds)

    def _read_natively(self, read: Callable[[], Result]) -> Result | None:
        """Return what the native reader finds, or None if Spark has to read the state instead."""
        from headwater.statefiles.refusals import UnknownFormat

        if self._engine == Engine.spark:
            return None
        try:
            return read()
        except UnknownFormat as unknown:
            if self._engine == Engine.native:
                raise
            if not self._fallback_noted:
                note(f"using Spark to read the state, which takes longer: {unknown.problem}")
                self._fallback_noted = True
            return None
