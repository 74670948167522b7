"""State for callers who want one answer and no more."""

from __future__ import annotations

import pyarrow as pa

from headwater.checkpoint.files import Files
from headwater.statefiles.answer import StateAnswer
from headwater.statefiles.reader import StateReader
from headwater.statefiles.stores import chosen, the_one


def read_state(
    checkpoint_files: Files,
    at: int | None = None,
    *,
    operator: int | None = None,
    store: str | None = None,
    var: str | None = None,
) -> pa.Table:
    """One store's or variable's rows as of a batch (the last committed one), as Spark's ``statestore`` source has them."""
    reader = StateReader(checkpoint_files)
    batch = reader.latest() if at is None else at
    target = the_one(chosen(reader.targets(batch), operator=operator, store=store, var=var))
    return reader.table(target, batch)


def read_answers(
    checkpoint_files: Files,
    at: int | None = None,
    *,
    operator: int | None = None,
    store: str | None = None,
    var: str | None = None,
) -> list[StateAnswer]:
    """Every store and variable that the words fit; hidden column families only by their names."""
    reader = StateReader(checkpoint_files)
    batch = reader.latest() if at is None else at
    return [
        reader.answer(target, batch)
        for target in chosen(reader.targets(batch), operator=operator, store=store, var=var)
    ]


def state_rows(
    checkpoint_files: Files,
    at: int | None = None,
    *,
    operator: int | None = None,
    store: str | None = None,
    var: str | None = None,
) -> list[dict[str, object]]:
    """The same as plain dictionaries: ``operator_id, store, var, partition_id, key, value``."""
    answers = read_answers(checkpoint_files, at, operator=operator, store=store, var=var)
    return [row for answer in answers for row in answer.rows()]
