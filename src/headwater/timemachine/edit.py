"""Plan edits of state: which keys get which rows, and the batch that writes them. Nothing here writes a file.

A key is found by its bytes in the partition that its hash names. That an edited key is found there proves both; a new
key is added only if the rows next to it are where their hashes say. What could break an invariant between several
stores is refused, or done for all of them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.log_entries import JOIN_STORES
from headwater.checkpoint.record import sink_of
from headwater.checkpoint.signs_of_life import signs_of_life
from headwater.core.errors import ChangeRefused
from headwater.core.ids import ANY_STORE, StoreKey, StoreRef
from headwater.core.text import count
from headwater.statefiles.buffers import python_rows
from headwater.statefiles.flat_rows import FlatRows
from headwater.statefiles.key_lookup import key_filter, matching_keys, parse_fields, with_key_fields
from headwater.statefiles.keyencoder import grouping_columns, storage_target
from headwater.statefiles.reader import StateReader
from headwater.statefiles.statewriter import Operation, delete
from headwater.statefiles.stores import JOIN, StateTarget, only_one, select
from headwater.statefiles.unsaferow import struct_of
from headwater.timemachine.change import fingerprint
from headwater.timemachine.cuts import has_sink_log
from headwater.timemachine.edit_plan import EditPlan, RowChanges
from headwater.timemachine.extra_batch import plan_extra_batch, writable_batch
from headwater.timemachine.journal import refuse_if_pending
from headwater.timemachine.row_edits import SAMPLE, Place, RowEdit, Wanted
from headwater.timemachine.store_files import StoreChange

UNKNOWN_SINK = (
    "the sink of this query is not recorded; if it writes files, name their folder with --sink files:DIR, because "
    "Spark expects every batch in the log of a file sink"
)


class StateEditor:
    """The state after the last batch of a checkpoint, to be read and edited."""

    def __init__(self, files: FileTree, ref: StoreRef = ANY_STORE, *, sink: str | None = None) -> None:
        self.seen = fingerprint(files)
        refuse_if_pending(files)
        self.files = files
        self.history = History(files)
        self.batch = writable_batch(self.history)
        self.reader = StateReader(files)
        self.ref = ref
        self._read: dict[tuple[StateTarget, Place], bytes] = {}
        self._sink_is_known = sink is not None or self.history.logs.job.sink is not None
        sink_files = sink_of(files, sink)
        self.sink = sink_files if sink_files is not None and has_sink_log(sink_files) else None

    @cached_property
    def targets(self) -> list[StateTarget]:
        """Every store and variable as of the last batch, including hidden ones."""
        return self.reader.targets(self.batch)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know about any edit of this checkpoint."""
        return () if self._sink_is_known else (UNKNOWN_SINK,)

    @property
    def has_several_parts(self) -> bool:
        """Whether the operator that is meant keeps what belongs to a key in several stores or column families."""
        found = select(self.targets, self.ref)
        return any(target.family is not None or target.folder_store in JOIN_STORES for target in found)

    def target(self, key: Iterable[str] = ()) -> StateTarget:
        """Return the only store or variable that is meant, and that has these fields in its key."""
        found = select(self.targets, self.ref)
        fields = dict.fromkeys(key, "null")
        if fields and len(found) > 1:
            found = with_key_fields(found, fields)
        chosen = only_one(found)
        _refuse_uneditable(chosen)
        return chosen

    def rows(self, target: StateTarget, key: Mapping[str, str] | None = None) -> pa.Table:
        """Return the rows of a target as a flat table: of all keys, or of those with the given fields."""
        flat = FlatRows.of(target)
        keys = key_filter(self.reader.decoder(flat.target, self.batch), key) if key else None
        tables = []
        for store in self.reader.stores(flat.target, self.batch):
            found = self.reader.partition(flat.target, store).rows(self.batch, keys)
            rows = self.reader.one_row_per_key(flat.target, found, self.batch)
            tables.append(flat.table(self.reader, rows, self.batch))
            if key:  # few rows, which the plan needs again
                places = ((store.partition_id, rows.key(each)) for each in range(len(rows)))
                self._read |= {(target, place): rows.value(each) for each, place in enumerate(places)}
        return pa.concat_tables(tables)

    def plan(self, changes: Mapping[StateTarget, Wanted], *, verb: str = "edit", reason: str | None = None) -> EditPlan:
        """Plan the batch after which the state is as wanted. Raise ``ChangeRefused`` if nothing would change."""
        operations: dict[StoreKey, list[Operation]] = {}
        found: list[RowChanges] = []
        for target, wanted in changes.items():
            read = {place: value for (of, place), value in self._read.items() if of == target}
            edit = RowEdit(self.reader, self.targets, self.batch, target, wanted, read)
            found.append(edit.plan(operations))
        label = ", ".join(target.label for target in changes)
        return self._plan(operations, RowChanges.sum(found), label, verb=verb, reason=reason)

    def plan_key_removal(self, key: Mapping[str, str], *, reason: str | None = None) -> EditPlan:
        """Plan to remove grouping keys from all stores, variables, timers and indexes of an operator together."""
        operators = sorted({target.operator_id for target in select(self.targets, self.ref)})
        if len(operators) > 1:
            only_one(select(self.targets, self.ref))  # raises
        operations: dict[StoreKey, list[Operation]] = {}
        removed = self.remove_key(operators[0], key, operations)
        label = f"operator {operators[0]} ({self.operator_name(operators[0])}), all its stores and variables"
        return self._plan(operations, removed, label, verb="edit", reason=reason)

    def operator_name(self, operator: int) -> str:
        """Return the name that Spark gives an operator."""
        return next(one.operator_name for one in self.targets if one.operator_id == operator)

    def remove_key(
        self, operator: int, key: Mapping[str, str], operations: dict[StoreKey, list[Operation]]
    ) -> RowChanges:
        """Add the operations that remove a grouping key from all parts of an operator. Return what they change."""
        inside = [one for one in self.targets if one.operator_id == operator and one.kind != "side"]
        return RowChanges.sum(self._remove_key(storage_target(target), key, operations) for target in inside)

    def _remove_key(
        self, target: StateTarget, key: Mapping[str, str], operations: dict[StoreKey, list[Operation]]
    ) -> RowChanges:
        decoder = self.reader.decoder(target, self.batch)
        removed, sample = 0, []
        for store in self.reader.stores(target, self.batch):
            partition = self.reader.partition(target, store)
            rows = self.reader.one_row_per_key(target, partition.rows(self.batch), self.batch)
            kind, columns = grouping_columns(target, decoder.keys(rows))
            grouping = struct_of(kind, list(columns), len(rows), None)
            chosen = rows.take(matching_keys(grouping, parse_fields(kind, key)))
            if not len(chosen):
                continue
            prefix = partition.key_prefix(self.batch)
            operations.setdefault(store, []).extend(delete(prefix + chosen.key(each)) for each in range(len(chosen)))
            removed += len(chosen)
            if target.kind != "hidden":
                table = FlatRows(target).table(
                    self.reader, chosen.take(np.arange(min(len(chosen), SAMPLE))), self.batch
                )
                sample += [({"in": target.var or target.store, **row}, None) for row in python_rows(table)]
        return RowChanges(removed=removed, sample=tuple(sample))

    def _plan(
        self,
        operations: dict[StoreKey, list[Operation]],
        rows: RowChanges,
        label: str,
        *,
        verb: str,
        reason: str | None,
    ) -> EditPlan:
        if not rows.total:
            raise ChangeRefused(
                "nothing-to-do",
                "nothing to change: the state has no such rows"
                if not rows.unchanged
                else f"nothing to change: the state already has {'this row' if rows.unchanged == 1 else 'these rows'}",
                evidence={"checkpoint": self.files.location, "state": label},
            )
        batch = plan_extra_batch(
            self.history,
            {store: StoreChange(tuple(found)) for store, found in operations.items()},
            verb=verb,
            about=f"{verb} {count(rows.total, 'row')} of {label}",
            sink=self.sink,
            reason=reason,
            details={"rows": rows.as_dict(), "state": label},
            seen=self.seen,
        )
        shown = replace(rows, sample=rows.sample[:SAMPLE])
        signs = tuple(signs_of_life(self.history))
        return EditPlan(self.files, self.sink, label, shown, batch, reason, self.warnings, signs)


def _refuse_uneditable(target: StateTarget) -> None:
    """Raise ``ChangeRefused`` for what cannot be edited row by row."""
    why = None
    remedy = None
    if target.kind == "raw":
        why = "it has no schema file, so that its rows are only known as bytes"
    elif target.operator_name == JOIN or target.folder_store in JOIN_STORES:
        why = "a join keeps each row in several places, which have to agree"
        remedy = f"remove all rows of a join key: --operator {target.operator_id} --key FIELD=VALUE --delete"
    elif target.kind == "timers":
        why = "Spark keeps every timer in two places, which have to agree"
        remedy = "remove a key with its timers: --key FIELD=VALUE --delete, without --var"
    elif target.kind == "hidden":
        why = "it is an index that Spark keeps"
    if why:
        raise ChangeRefused(
            "cannot-edit", f"{target.label} cannot be edited row by row", evidence={"why": why}, remedy=remedy
        )
