"""The state as of a batch, one page of rows at a time, with the changes since the previous batch; and the history of a key."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core.ids import BatchId
from headwater.statefiles.answer import StateAnswer
from headwater.statefiles.columns import PARTITION
from headwater.statefiles.reader import StateReader
from headwater.statefiles.sqltypes import distinct
from headwater.statefiles.stores import StateTarget
from headwater.timemachine.diff import CHANGED, REMOVED, StateDiff, diff
from headwater.timemachine.key_history import key_history
from headwater.views.state_json import json_texts
from headwater.views.state_table import FlatColumns, cells, in_standard_units, sort_order, sql_type_of

MAX_BATCHES = 300
MAX_CSV_ROWS = 100_000
_ISO_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.000|(\.\d+))?Z")
SHOWN_DATE = re.compile(r"(\d{4}-\d\d-\d\d) ")


@dataclass(frozen=True)
class StateColumn:
    """A column of the table: ``name`` is its heading, ``field`` its key in the dictionary of a row."""

    field: str
    name: str
    is_key: bool
    is_number: bool


@dataclass(frozen=True)
class PageRequest:
    """Which rows to show: ``size`` rows from ``start`` on, among those with ``search`` in any column."""

    start: int = 0
    size: int = 25
    search: str = ""
    order_by: str | None = None
    descending: bool = False
    only_changes: bool = False


FIRST_PAGE = PageRequest()


@dataclass(frozen=True)
class StatePage:
    """Some rows, and the number of rows that match.

    Each row has ``id``, ``change``, ``key`` (its fields as texts) and ``{"now", "was"}`` for each column.
    """

    rows: list[dict[str, Any]]
    matching: int


@dataclass(frozen=True)
class _Rows:
    """Keys and values as columns of texts, keys first."""

    columns: FlatColumns
    keys: int

    @classmethod
    def of(cls, answer: StateAnswer, keys: pa.Array, values: pa.Array) -> _Rows:
        key_columns = FlatColumns.of_fields(answer.key_type, keys)
        columns = key_columns + FlatColumns.of_fields(answer.value_type, values)
        return cls(columns.with_times(), len(key_columns.names))

    def headings(self) -> list[StateColumn]:
        """Return the columns of the table."""
        return [
            StateColumn(f"c{number}", name, number < self.keys, _is_number(array.type))
            for number, (name, array) in enumerate(zip(self.columns.names, self.columns.arrays, strict=True))
        ]

    def chosen(self, wanted: PageRequest) -> pa.Array:
        """Return the indexes of all rows that match, in their order."""
        ordered = self.order(wanted.order_by, descending=wanted.descending)
        return ordered.filter(pc.take(self.matches(wanted.search), ordered)) if wanted.search else ordered

    def order(self, order_by: str | None, *, descending: bool) -> pa.Array:
        """Return the order of the rows by a column, or by key if there is no such column."""
        arrays = self.columns.arrays
        if order_by and order_by[1:].isdigit() and int(order_by[1:]) < len(arrays):
            array = arrays[int(order_by[1:])]
            if not pa.types.is_nested(array.type):
                return pc.sort_indices(array, sort_keys=[("", "descending" if descending else "ascending")])
        order = sort_order(arrays[: self.keys])
        return pa.array(np.arange(len(self.columns))) if order is None else order

    def matches(self, search: str) -> pa.Array:
        """Return for each row whether a column contains a text."""
        found = None
        as_iso_time = SHOWN_DATE.sub(r"\1T", search)
        for kind, array in zip(self.columns.types, self.columns.arrays, strict=True):
            wanted = as_iso_time if pa.types.is_timestamp(array.type) else search
            hit = pc.fill_null(pc.match_substring(cells(kind, array), wanted, ignore_case=True), fill_value=False)
            found = hit if found is None else pc.or_(found, hit)
        return found

    def csv(self, indexes: pa.Array) -> bytes:
        """Return rows as CSV, with the texts that the table shows; nulls are empty."""
        from pyarrow import csv  # noqa: PLC0415  rarely needed

        texts = [
            cells(kind, array.take(indexes))
            for kind, array in zip(self.columns.types, self.columns.arrays, strict=True)
        ]
        buffer = io.BytesIO()
        table = pa.table(texts, names=distinct(self.columns.names))
        csv.write_csv(table, buffer, csv.WriteOptions(quoting_style="needed"))
        return buffer.getvalue()

    def dicts(self, indexes: pa.Array) -> list[dict[str, Any]]:
        """Return rows as dictionaries, without marks of change."""
        texts = [
            cells(kind, array.take(indexes)).to_pylist()
            for kind, array in zip(self.columns.types, self.columns.arrays, strict=True)
        ]
        rows = []
        for place, index in enumerate(indexes.to_pylist()):
            row: dict[str, Any] = {"id": index, "change": ""}
            row["key"] = {self.columns.names[column]: texts[column][place] for column in range(self.keys)}
            row |= {f"c{number}": {"now": shorten_times(text[place]), "was": None} for number, text in enumerate(texts)}
            rows.append(row)
        return rows


class StateView:
    """The state of one store or variable as of a batch. Reads it on creation, and the previous batch in ``compare``."""

    def __init__(self, reader: StateReader, target: StateTarget, batch: int, before: int | None) -> None:
        self.target = target
        self.batch = batch
        self.answer = reader.answer(target, batch)
        self.diff: StateDiff | None = None
        self._find_diff = None if before is None else lambda: diff(reader, target, before, batch)
        self.before = before
        self._partitions = sorted(reader.logs.state.partitions.get(target.operator_id, ()))
        keyed = self.answer.keyed()
        self._partition_of_row = keyed[PARTITION]
        self._keys = in_standard_units(keyed["key"])
        self._all = _Rows.of(self.answer, self._keys, in_standard_units(keyed["value"]))

    @property
    def total(self) -> int:
        return len(self._keys)

    @property
    def partition_rows(self) -> dict[int, int]:
        """The number of rows in each partition, also in those without any."""
        found = {one["values"]: one["counts"] for one in pc.value_counts(self._partition_of_row).to_pylist()}
        return {number: found.get(number, 0) for number in sorted({*self._partitions, *found})}

    @property
    def is_compared(self) -> bool:
        """Whether pages show the changes, as far as they can be known."""
        return self._find_diff is None

    def compare(self) -> None:
        """Find the changes since the previous batch. If everything changed, this takes longer than reading the state."""
        if self._find_diff is not None:
            self.diff = self._find_diff()
            self._find_diff = None

    @property
    def columns(self) -> list[StateColumn]:
        return self._all.headings()

    @property
    def counts(self) -> dict[str, int]:
        """The number of keys that were added, removed and changed; empty before ``compare``."""
        if self.diff is None:
            return {}
        found = pc.value_counts(self.diff.change).to_pylist()
        return {one["values"]: one["counts"] for one in found}

    def page(self, wanted: PageRequest = FIRST_PAGE) -> StatePage:
        """Return the rows of a page, with the changes since the previous batch marked."""
        if wanted.only_changes and self.diff is None:
            return StatePage([], 0)
        rows = self._changed if wanted.only_changes else self._all
        chosen = rows.chosen(wanted)
        indexes = chosen.slice(wanted.start, wanted.size)
        shown = rows.dicts(indexes)
        if wanted.only_changes:
            self._mark_changes(shown, indexes.to_pylist())
        elif self.diff is not None:
            self._mark_changes(shown, self._changes_of(indexes))
        return StatePage(shown, len(chosen))

    def csv(self, wanted: PageRequest) -> bytes:
        """Return all rows that match as CSV, with their current values, or the last ones if they were removed."""
        if wanted.only_changes and self.diff is None:
            return b""
        rows = self._changed if wanted.only_changes else self._all
        return rows.csv(rows.chosen(wanted).slice(0, MAX_CSV_ROWS))

    def _changes_of(self, indexes: pa.Array) -> list[int | None]:
        """Return the place in the diff of each of these rows, or None if it is unchanged."""
        keys = json_texts(self.answer.types.fields[0].type, self._keys.take(indexes))
        # A page has few keys, but there may be a million changes: the changes are the ones to filter.
        changed = pc.indices_nonzero(pc.is_in(self._changed_keys, value_set=keys))
        places = dict(zip(self._changed_keys.take(changed).to_pylist(), changed.to_pylist(), strict=True))
        return [places.get(key) for key in keys.to_pylist()]

    def _mark_changes(self, rows: list[dict[str, Any]], places: Sequence[int | None]) -> None:
        """Set what happened to each row, and its previous values."""
        assert self.diff is not None
        for row, place in zip(rows, places, strict=True):
            if place is None:
                continue
            row["change"] = self.diff.change[place].as_py()
            if row["change"] == CHANGED:
                for number, was in enumerate(self._values_before(place), self._all.keys):
                    cell = row[f"c{number}"]
                    cell["was"] = was if was != cell["now"] else None

    def _values_before(self, place: int) -> list[str | None]:
        """Return the previous values of one change. Called for the rows on the screen only."""
        assert self.diff is not None
        columns = FlatColumns.of_fields(self.answer.value_type, self.diff.before.slice(place, 1)).with_times()
        return [
            shorten_times(cells(kind, array)[0].as_py())
            for kind, array in zip(columns.types, columns.arrays, strict=True)
        ]

    @cached_property
    def _changed_keys(self) -> pa.Array:
        assert self.diff is not None
        return json_texts(self.answer.types.fields[0].type, self.diff.key)

    @cached_property
    def _changed(self) -> _Rows:
        """The keys that changed, with their current values, or their last ones if they were removed."""
        assert self.diff is not None
        removed = pc.equal(self.diff.change, REMOVED)
        numbers = pa.array(np.arange(len(removed)))
        both = pa.concat_arrays([self.diff.after, self.diff.before])
        values = both.take(pc.if_else(removed, pc.add(numbers, len(removed)), numbers))
        return _Rows.of(self.answer, self.diff.key, values)


class JobStateView:
    """The state as of a batch as the job's ``state_view`` shows it. It has rows and pages, but no keys and no changes."""

    is_compared = True

    def __init__(self, table: pa.Table, batch: int) -> None:
        self.batch = batch
        self.total = table.num_rows
        self.counts: dict[str, int] = {}
        arrays = [in_standard_units(column) for column in table.columns]
        self._rows = _Rows(FlatColumns.of(table.column_names, [sql_type_of(array.type) for array in arrays], arrays), 0)

    def compare(self) -> None:
        """Do nothing: the rows of a view have no keys by which two batches could be compared."""

    @property
    def columns(self) -> list[StateColumn]:
        return self._rows.headings()

    def page(self, wanted: PageRequest = FIRST_PAGE) -> StatePage:
        """Return the rows of a page."""
        if not self.total:
            return StatePage([], 0)
        chosen = self._rows.chosen(wanted)
        return StatePage(self._rows.dicts(chosen.slice(wanted.start, wanted.size)), len(chosen))

    def csv(self, wanted: PageRequest) -> bytes:
        """Return all rows that match as CSV."""
        return self._rows.csv(self._rows.chosen(wanted).slice(0, MAX_CSV_ROWS)) if self.total else b""


@dataclass(frozen=True)
class KeyTimeline:
    """The values of a key over several batches.

    ``numbers`` has a value per batch for each numeric field (None if the key was absent). ``steps`` are the changes.
    """

    batches: list[int]
    numbers: dict[str, list[float | None]]
    steps: list[tuple[int, str]]


def key_timeline(reader: StateReader, target: StateTarget, key: Mapping[str, str | None], upto: int) -> KeyTimeline:
    """Return the values of a key in the last few hundred batches whose state can be rebuilt, up to a batch."""
    batches = [batch for batch in reader.readable(target.operator_id) if batch <= upto][-MAX_BATCHES:]
    fields = {name: "null" if text is None else text for name, text in key.items()}
    found = key_history(reader, target, fields, batches)
    # A null in a text field is indistinguishable from the text "null": several keys may match, and the first is shown.
    length = min(len(batches), len(found))
    values = found.value.slice(0, length)
    columns = FlatColumns.of_fields(found.answer.value_type, values).with_times()
    numbers = {
        name: [None if value is None else float(value) for value in array.to_pylist()]
        for name, array in zip(columns.names, columns.arrays, strict=True)
        if _is_number(array.type)
    }
    steps = _steps(batches[:length], columns, values.is_valid().to_pylist())
    return KeyTimeline([int(batch) for batch in batches[:length]], numbers, steps)


def _steps(batches: Sequence[BatchId], columns: FlatColumns, present: list[bool]) -> list[tuple[int, str]]:
    """Return the batches at which the key changed, each with its new values."""
    texts = [
        [shorten_times(text) for text in cells(kind, array).to_pylist()]
        for kind, array in zip(columns.types, columns.arrays, strict=True)
    ]
    found: list[tuple[int, str]] = []
    for place, batch in enumerate(batches):
        values = ", ".join(f"{name} {text[place] or 'null'}" for name, text in zip(columns.names, texts, strict=True))
        shown = values if present[place] else "absent"
        if not found or found[-1][1] != shown:
            found.append((int(batch), shown))
    return found


def shorten_times(text: str | None) -> str | None:
    """Return a text with its ISO 8601 times in the form ``2026-07-01 10:30:05``."""
    return text if text is None else _ISO_TIME.sub(lambda found: f"{found[1]} {found[2]}{found[3] or ''}", text)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
