"""Find keys by a text over all batches whose state can be rebuilt, and the batches that changed them.

The first batch is read whole, and of each later one only its changes, piece by piece. Only the rows of matching keys stay
in memory, and of those a limited number.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core.ids import BatchId, StoreKey
from headwater.core.text import count
from headwater.statefiles.buffers import as_mask
from headwater.statefiles.columns import RowDecoder
from headwater.statefiles.reader import StateReader
from headwater.statefiles.records import DELETE_RANGE, Records
from headwater.statefiles.sqltypes import Struct
from headwater.statefiles.stores import StateTarget
from headwater.timemachine.key_history import batches_in_one_form, rows_by_batch
from headwater.views.page_state import SHOWN_DATE, shorten_times
from headwater.views.state_json import json_texts
from headwater.views.state_table import FlatColumns, cells

MAX_BATCHES = 300
MAX_KEYS = 100
MAX_SECONDS = 30.0
_IN_NUMBERS = frozenset("0123456789+-.:TZtzEe INFinfNAna")


@dataclass(frozen=True)
class FoundKey:
    """A key that matches: its fields as texts and as JSON, its partition, and the batches that changed it, of those searched.

    ``was_there`` says whether the oldest of these may have found it there already, ``is_there`` whether it is in the
    newest.
    """

    key: dict[str, str | None]
    json: str
    partition_id: int
    batches: tuple[int, ...]
    was_there: bool
    is_there: bool

    @property
    def label(self) -> str:
        return " \u00b7 ".join(shorten_times(text) or "null" for text in self.key.values())


@dataclass(frozen=True)
class KeySearch:
    """What a search has found so far, and what it has searched."""

    text: str
    batches: tuple[int, ...]
    partitions: int
    partitions_done: int = 0
    rows_read: int = 0
    keys: tuple[FoundKey, ...] = ()
    is_full: bool = False
    """Whether more keys match than are returned."""
    is_stopped: bool = False
    """Whether the search ended early."""

    @property
    def summary(self) -> str:
        """What was found, and where it was searched."""
        if not self.batches:
            return "No state can be searched: it can be rebuilt for no batch."
        found = f"{'more than ' if self.is_full else ''}{count(len(self.keys), 'key')}"
        span = f"batch {self.batches[0]}" + (f" to {self.batches[-1]}" if len(self.batches) > 1 else "")
        parts = (
            count(self.partitions, "partition")
            if self.partitions_done == self.partitions
            else f"{self.partitions_done} of {count(self.partitions, 'partition')}"
        )
        end = " Stopped before the end: give more of the key, or search again." if self.is_stopped else ""
        return f"{found} in {span} ({parts}, {count(self.rows_read, 'row')} read).{end}"


class SearchStopped(Exception):
    """Ends a search in the middle of a file."""


class TextKeys:
    """A filter for keys with a text in one of their fields, for at most ``most`` keys: the first ones that occur.

    ``ann*`` is the beginning of a field, ``ann`` any part of it, in any case.
    """

    exact = None
    needle = None
    pattern = None

    def __init__(self, text: str, decoder: RowDecoder, found: _Found) -> None:
        self._decoder = decoder
        self._is_prefix = text.endswith("*")
        self._text = text.removesuffix("*")
        self._found = found
        self.selected: dict[str, Records] = {}

    def partition_of(self, partitions: int) -> int | None:  # noqa: ARG002  matching keys are in any partition
        return None

    def select(self, records: Records) -> Records:
        """Return the records whose keys match, and all range deletions."""
        self._found.add_rows(len(records))
        ranges = records.operation == DELETE_RANGE
        chosen = np.flatnonzero(~ranges)
        likely = records.take(chosen)
        matching = chosen[self._matches(likely)] if len(likely) else chosen
        kept = [number for number in matching.tolist() if self._found.accepts(records.key(number))]
        mask = ranges.copy()
        mask[kept] = True
        return records.take(mask)

    def _matches(self, records: Records) -> np.ndarray:
        columns = key_columns(self._decoder, records)
        found = np.zeros(len(records), bool)
        as_iso_time = SHOWN_DATE.sub(r"\1T", self._text)
        compare = pc.starts_with if self._is_prefix else pc.match_substring
        for kind, array in zip(columns.types, columns.arrays, strict=True):
            if _is_numeric(array.type) and not set(self._text) <= _IN_NUMBERS:
                continue  # texts of times and numbers take most of the time
            wanted = as_iso_time if pa.types.is_timestamp(array.type) else self._text
            hit = pc.fill_null(compare(cells(kind, array), wanted, ignore_case=True), fill_value=False)
            found |= as_mask(hit)
        return found


def _is_numeric(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_temporal)
    return any(test(kind) for test in tests)


class _Found:
    """The stored keys that a search has accepted, and how much it has read. Ends the search when it is due."""

    def __init__(self, most: int, is_wanted: Callable[[], bool]) -> None:
        self._most = most
        self._is_wanted = is_wanted
        self._total = 0
        self._keys: set[bytes] = set()
        self.rows_read = 0
        self.is_full = False

    def start_partition(self) -> None:
        """Begin with another partition: the same bytes are another key there."""
        self._total += len(self._keys)
        self._keys = set()

    def add_rows(self, number: int) -> None:
        if not self._is_wanted():
            raise SearchStopped
        self.rows_read += number

    def accepts(self, key: bytes) -> bool:
        if key in self._keys:
            return True
        if self._total + len(self._keys) >= self._most:
            self.is_full = True
            return False
        self._keys.add(key)
        return True


def key_columns(decoder: RowDecoder, records: Records) -> FlatColumns:
    """Return the fields of stored keys, under the names of ``history --key``, as far as it knows them."""
    target = decoder.target
    columns = FlatColumns.of_fields(target.schema.key, decoder.keys(records)).with_times()
    if target.kind in ("map", "timers"):
        first, second = (f"{field.name}." for field in target.schema.key.fields[:2])
        names = [name.removeprefix(first) for name in columns.names]
        names = [f"user_map_key.{name.removeprefix(second)}" if name.startswith(second) else name for name in names]
        columns = FlatColumns(names, columns.types, columns.arrays)
    if target.kind == "side" and isinstance(target.schema.key, Struct) and target.schema.key.names[-1] == "index":
        columns = FlatColumns(columns.names[:-1], columns.types[:-1], columns.arrays[:-1])
    return columns


def search_keys(
    reader: StateReader,
    target: StateTarget,
    text: str,
    *,
    most_keys: int = MAX_KEYS,
    seconds: float = MAX_SECONDS,
    is_wanted: Callable[[], bool] = lambda: True,
) -> Iterator[KeySearch]:
    """Yield what was found after each partition, at least one result. Ends early after ``seconds`` or if not wanted."""
    batches = batches_in_one_form(reader, target, reader.readable(target.operator_id)[-MAX_BATCHES:])
    stores = sorted({key for batch in batches for key in reader.stores(target, batch)})
    result = KeySearch(text, tuple(map(int, batches)), len(stores))
    until = time.monotonic() + seconds
    found = _Found(most_keys, lambda: is_wanted() and time.monotonic() < until)
    for key in stores:
        keys, is_done = _search_store(reader, target, key, text, batches, found)
        result = replace(
            result,
            partitions_done=result.partitions_done + is_done,
            rows_read=found.rows_read,
            keys=tuple(sorted((*result.keys, *keys), key=_latest_first)),
            is_full=found.is_full,
            is_stopped=not is_done,
        )
        yield result
        if not is_done:
            return
    if not stores:
        yield result


def found_as_dict(target: StateTarget, found: FoundKey) -> dict[str, object]:
    """Return the JSON form of a key that was found in a store or variable."""
    return {
        "operator_id": target.operator_id,
        "store": target.store,
        "var": target.var,
        "partition_id": found.partition_id,
        "key": json.loads(found.json),
        "batches": list(found.batches),
        "is_there": found.is_there,
    }


def _latest_first(key: FoundKey) -> tuple[int, str]:
    return (-key.batches[-1] if key.batches else 1, key.label)


def _search_store(
    reader: StateReader,
    target: StateTarget,
    store: StoreKey,
    text: str,
    batches: Sequence[BatchId],
    found: _Found,
) -> tuple[list[FoundKey], bool]:
    """Return the matching keys of a store, and whether it was searched to its end."""
    found.start_partition()
    changed: dict[bytes, list[int]] = {}
    samples: dict[bytes, tuple[int, Records, int]] = {}
    # Before batch 0 there is no state; what precedes another first batch is unknown.
    first: set[bytes] | None = set() if batches[0] == 0 else None
    before: dict[bytes, bytes] = {}
    last: Records | None = None
    is_done = True
    try:
        for batch, rows in rows_by_batch(reader, target, store, lambda one: TextKeys(text, one, found), batches):
            found.add_rows(0)
            if rows is last:
                continue
            last = rows
            now = {rows.key(number): rows.value(number) for number in range(len(rows))}
            for number in range(len(rows)):
                samples.setdefault(rows.key(number), (batch, rows, number))
            is_known = first is not None and not reader.is_repartitioned(batch)
            for key in (now.keys() | before.keys()) if is_known else ():
                if now.get(key) != before.get(key):
                    changed.setdefault(key, []).append(batch)
            first = set(now) if first is None else first
            before = now
    except SearchStopped:
        is_done = False
    keys = [
        FoundKey(
            *_key(reader.decoder(target, sample[0]), sample[1].take(np.array([sample[2]]))),
            store.partition_id,
            tuple(changed.get(key, ())),
            was_there=key in (first or ()),
            is_there=key in before,
        )
        for key, sample in samples.items()
    ]
    return keys, is_done


def _key(decoder: RowDecoder, row: Records) -> tuple[dict[str, str | None], str]:
    """Return the fields of a stored key as texts, and the key as JSON, in the form of ``state --json``."""
    columns = key_columns(decoder, row)
    texts = {name: text[0] for name, text in zip(columns.names, columns.cell_texts(), strict=True)}
    target = decoder.target
    whole = json.loads(json_texts(target.schema.key, decoder.keys(row))[0].as_py())
    if target.kind in ("map", "timers"):
        grouping, inner, *_ = whole.values()
        whole = {**grouping, "user_map_key": inner} if target.kind == "map" else grouping
    if target.kind == "side":
        whole.pop("index", None)
    return texts, json.dumps(whole, ensure_ascii=False)
