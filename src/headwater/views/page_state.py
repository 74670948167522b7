"""A state as of a batch, with what changed since the batch before, given out a page at a time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core.ids import BatchId
from headwater.statefiles.reader import StateAnswer, StateReader
from headwater.statefiles.sqltypes import SqlType, Struct
from headwater.statefiles.stores import StateTarget
from headwater.timemachine.diff import ADDED, CHANGED, REMOVED, StateDiff, diff
from headwater.timemachine.key_history import key_history
from headwater.views.state_json import json_texts
from headwater.views.state_table import cells, fields_of, in_order, readable, settled

_ZERO_MILLIS = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.000|(\.\d+))?Z")

_SHOWN_TIME = re.compile(r"(\d{4}-\d\d-\d\d) ")


@dataclass(frozen=True)
class Column:
    """A column of the table: ``name`` for people, ``field`` for the row's dictionary."""

    field: str
    name: str
    is_key: bool
    is_number: bool


@dataclass(frozen=True)
class StatePage:
    """Some rows. Each has ``id``, ``change``, ``key`` (its fields as texts) and a ``{"now", "was"}`` for each column."""

    rows: list[dict[str, Any]]
    matching: int


@dataclass(frozen=True)
class _Side:
    """Rows as columns of their own, keys first."""

    names: list[str]
    types: list[SqlType]
    columns: list[pa.Array]
    keys: int

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    def texts(self, place: int) -> pa.Array:
        return cells(self.types[place], self.columns[place])


class StateView:
    """One target's state as of a batch. It is read when this is made, and compared with the batch before when asked to."""

    def __init__(self, reader: StateReader, target: StateTarget, batch: int, before: int | None) -> None:
        self.target = target
        self.batch = batch
        self.answer = reader.answer(target, batch)
        self.diff: StateDiff | None = None
        self._compare = None if before is None else lambda: diff(reader, target, before, batch)
        keyed = self.answer.keyed()
        self._keys = settled(keyed["key"])
        self._side = _side(self.answer, self._keys, settled(keyed["value"]))

    @property
    def total(self) -> int:
        return len(self._keys)

    @property
    def is_compared(self) -> bool:
        """Whether pages tell what changed, as far as that can be known."""
        return self._compare is None

    def compare(self) -> None:
        """Find out what changed; where everything did, that takes longer than reading the state."""
        if self._compare is not None:
            self.diff = self._compare()
            self._compare = None

    @property
    def columns(self) -> list[Column]:
        side = self._side
        return [
            Column(f"c{place}", name, place < side.keys, _is_number(side.columns[place].type))
            for place, name in enumerate(side.names)
        ]

    @property
    def counts(self) -> dict[str, int]:
        """How many keys were added, removed and changed; empty before ``compare``."""
        if self.diff is None:
            return {}
        found = pc.value_counts(self.diff.change).to_pylist()
        return {one["values"]: one["counts"] for one in found}

    def page(
        self,
        *,
        start: int = 0,
        size: int = 25,
        search: str = "",
        order_by: str | None = None,
        descending: bool = False,
        only_changes: bool = False,
    ) -> StatePage:
        """Rows ``start`` and on, of those in which any column has ``search`` in it."""
        if only_changes and self.diff is None:
            return StatePage([], 0)
        side = self._changed_side if only_changes else self._side
        chosen = _order(side, order_by, descending=descending)
        if search:
            hits = pc.take(_matches(side, search), chosen)
            chosen = chosen.filter(hits)
        part = chosen.slice(start, size)
        rows = self._changed_rows(part) if only_changes else self._rows(part)
        return StatePage(rows, len(chosen))

    def _rows(self, part: pa.Array) -> list[dict[str, Any]]:
        rows = _dicts(self._side, part)
        if self.diff is None:
            return rows
        keys = json_texts(self.answer.types.fields[0].type, self._keys.take(part))
        # A page has few keys and the changes may be a million, so it is the changes that are looked through.
        changed = pc.indices_nonzero(pc.is_in(self._changed_keys, value_set=keys))
        found = dict(zip(self._changed_keys.take(changed).to_pylist(), changed.to_pylist(), strict=True))
        self._mark(rows, [found.get(key) for key in keys.to_pylist()])
        return rows

    def _changed_rows(self, part: pa.Array) -> list[dict[str, Any]]:
        rows = _dicts(self._changed_side, part)
        self._mark(rows, part.to_pylist())
        return rows

    def _mark(self, rows: list[dict[str, Any]], found: list[int | None]) -> None:
        """Write down what happened to each row, and what its values were."""
        assert self.diff is not None
        kinds = self.diff.change
        for row, number in zip(rows, found, strict=True):
            if number is None:
                continue
            row["change"] = kinds[number].as_py()
            if row["change"] == CHANGED:
                before = self._before.take_one(number)
                for place in range(self._side.keys, len(self._side.names)):
                    cell = row[f"c{place}"]
                    was = before[place - self._side.keys]
                    cell["was"] = was if was != cell["now"] else None

    @cached_property
    def _changed_keys(self) -> pa.Array:
        assert self.diff is not None
        return json_texts(self.answer.types.fields[0].type, self.diff.key)

    @cached_property
    def _changed_side(self) -> _Side:
        """The keys that differ, with their values now, or their last ones where they are gone."""
        assert self.diff is not None
        gone = pc.equal(self.diff.change, REMOVED)
        numbers = pa.array(np.arange(len(gone)))
        both = pa.concat_arrays([self.diff.after, self.diff.before])
        values = both.take(pc.if_else(gone, pc.add(numbers, len(gone)), numbers))
        return _side(self.answer, self.diff.key, values)

    @cached_property
    def _before(self) -> _Before:
        assert self.diff is not None
        return _Before(self.diff, self.answer.value_type)


class _Before:
    """Older values, decoded one at a time: only those on the screen are wanted."""

    def __init__(self, found: StateDiff, kind: Struct) -> None:
        self._values = found.before
        self._kind = kind

    def take_one(self, number: int) -> list[str | None]:
        names, types, columns = fields_of(self._kind, self._values.slice(number, 1))
        types, columns = readable(names, types, columns)
        return [plain(cells(kind, column)[0].as_py()) for kind, column in zip(types, columns, strict=True)]


def _side(answer: StateAnswer, keys: pa.Array, values: pa.Array) -> _Side:
    key_parts = fields_of(answer.key_type, keys)
    value_parts = fields_of(answer.value_type, values)
    names = key_parts[0] + value_parts[0]
    types, columns = readable(names, key_parts[1] + value_parts[1], key_parts[2] + value_parts[2])
    return _Side(names, types, columns, len(key_parts[0]))


def _order(side: _Side, order_by: str | None, *, descending: bool) -> pa.Array:
    if order_by and order_by[1:].isdigit() and int(order_by[1:]) < len(side.columns):
        column = side.columns[int(order_by[1:])]
        if not pa.types.is_nested(column.type):
            return pc.sort_indices(column, sort_keys=[("", "descending" if descending else "ascending")])
    order = in_order(side.columns[: side.keys])
    return pa.array(np.arange(len(side))) if order is None else order


def _matches(side: _Side, search: str) -> pa.Array:
    found = None
    as_time = _SHOWN_TIME.sub(r"\1T", search)
    for place, column in enumerate(side.columns):
        wanted = as_time if pa.types.is_timestamp(column.type) else search
        hit = pc.fill_null(pc.match_substring(side.texts(place), wanted, ignore_case=True), fill_value=False)
        found = hit if found is None else pc.or_(found, hit)
    return found


def _dicts(side: _Side, part: pa.Array) -> list[dict[str, Any]]:
    texts = [cells(kind, column.take(part)).to_pylist() for kind, column in zip(side.types, side.columns, strict=True)]
    rows = []
    for place, number in enumerate(part.to_pylist()):
        row: dict[str, Any] = {"id": number, "change": ""}
        row["key"] = {side.names[column]: texts[column][place] for column in range(side.keys)}
        row |= {f"c{column}": {"now": plain(texts[column][place]), "was": None} for column in range(len(texts))}
        rows.append(row)
    return rows


def plain(text: str | None) -> str | None:
    """Times as people read them in a table."""
    return text if text is None else _ZERO_MILLIS.sub(lambda found: f"{found[1]} {found[2]}{found[3] or ''}", text)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


__all__ = ["ADDED", "CHANGED", "REMOVED", "Column", "StatePage", "StateView", "plain"]


MOST_BATCHES = 300


@dataclass(frozen=True)
class KeyLines:
    """``numbers`` by field, a value for each of ``batches`` (None: the key was not there); ``steps`` are the changes."""

    batches: list[int]
    numbers: dict[str, list[float | None]]
    steps: list[tuple[int, str]]


def key_lines(reader: StateReader, target: StateTarget, key: Mapping[str, str | None], upto: int) -> KeyLines:
    """The last few hundred batches whose state can be rebuilt, up to one."""
    held = [batch for batch in reader.readable(target.operator_id) if batch <= upto][-MOST_BATCHES:]
    asked = {name: "null" if text is None else text for name, text in key.items()}
    found = key_history(reader, target, asked, held)
    # A null in a text field cannot be asked for, so that several keys may fit; the first is as good as any.
    count = min(len(held), len(found))
    names, types, columns = fields_of(found.answer.value_type, found.value.slice(0, count))
    types, columns = readable(names, types, columns)
    texts = [
        [plain(text) for text in cells(kind, column).to_pylist()] for kind, column in zip(types, columns, strict=True)
    ]
    there = found.value.slice(0, count).is_valid().to_pylist()
    numbers = {
        name: [None if value is None else float(value) for value in column.to_pylist()]
        for name, column in zip(names, columns, strict=True)
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)
    }
    return KeyLines([int(batch) for batch in held[:count]], numbers, _steps(held[:count], names, texts, there))


def _steps(
    batches: Sequence[BatchId], names: list[str], texts: list[list[str | None]], there: list[bool]
) -> list[tuple[int, str]]:
    """Only batches at which something changed."""
    found: list[tuple[int, str]] = []
    for place, batch in enumerate(batches):
        told = ", ".join(f"{name} {texts[field][place] or 'null'}" for field, name in enumerate(names))
        told = told if there[place] else "not there"
        if not found or found[-1][1] != told:
            found.append((int(batch), told))
    return found
