"""Look up keys in state: the fields that a user gives, and filters that avoid decoding, or even reading, other keys."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core.errors import UsageProblem
from headwater.core.text import plural
from headwater.statefiles import buffers
from headwater.statefiles.buffers import LOW_BYTES, ByteSpace, Ints, Mask
from headwater.statefiles.columns import RowDecoder
from headwater.statefiles.live_rows import hash_keys
from headwater.statefiles.records import DELETE_RANGE, PUT, Records, records_of
from headwater.statefiles.sqltypes import Atomic, Field, SqlType, Struct, arrow_type, field_names, parse_value
from headwater.statefiles.stores import StateTarget
from headwater.statefiles.unsaferow import bitset_bytes, encoded_row, row_pattern

if TYPE_CHECKING:
    import numpy.typing as npt

_EIGHT_BYTES = {"long", "timestamp", "timestamp_ntz", "time"}
_FOUR_BYTES = {"integer", "date"}


@dataclass(frozen=True)
class FieldValue:
    """A field of a key, by its path in the key's schema, and the value that it has to have; None is null."""

    path: tuple[int, ...]
    type: SqlType
    value: pa.Scalar | None


def key_texts(key: Mapping[str, object]) -> dict[str, str]:
    """Return Python values of key fields as texts, in the form of ``--key``.

    A mapping within a field, ``{"window": {"start": …}}``, is the same as ``{"window.start": …}``.
    """
    found: dict[str, str] = {}
    for name, value in key.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{inner}": text for inner, text in key_texts(value).items()}
        else:
            found[name] = _text(value)
    return found


def _text(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case bytes():
            return base64.b64encode(value).decode()
        case date() | time():
            return value.isoformat()
        case _:
            return str(value)


def key_filter(decoder: RowDecoder, wanted: Mapping[str, str]) -> MatchingKeys:
    """Return a filter for the keys in which the given fields have the given values, written as text."""
    return MatchingKeys(key_fields(decoder.target, wanted), decoder)


def key_fields(target: StateTarget, wanted: Mapping[str, str]) -> list[FieldValue]:
    """Parse the fields of a key. Names refer to the grouping key; the key within a map is ``user_map_key.x``."""
    key = target.schema.key
    if target.kind not in ("map", "timers"):
        return parse_fields(key, wanted)
    grouping = key.fields[0].type
    assert isinstance(grouping, Struct)
    inner = {name: text for name, text in wanted.items() if not name.startswith("user_map_key.")}
    outer = {f"userKey.{name.partition('.')[2]}": text for name, text in wanted.items() if name not in inner}
    found = [FieldValue((0, *field.path), field.type, field.value) for field in parse_fields(grouping, inner)]
    return found + parse_fields(key, outer)


def with_key_fields(targets: list[StateTarget], wanted: Mapping[str, str]) -> list[StateTarget]:
    """Return the targets whose keys have the given fields. Raise ``UsageProblem`` if there are none."""
    found = [target for target in targets if _has_fields(target, wanted)]
    if found:
        return found
    known = dict.fromkeys(name for target in targets for name in _grouping_fields(target))
    raise UsageProblem(
        "no-key-field",
        f"no key has the {'field' if len(wanted) == 1 else plural('field')} {', '.join(wanted)}",
        evidence={"key fields": ", ".join(known) or "none"},
    )


def _has_fields(target: StateTarget, wanted: Mapping[str, str]) -> bool:
    try:
        key_fields(target, wanted)
    except UsageProblem as problem:
        if problem.code == "no-key-field":
            return False
        raise
    return True


def are_key_values(target: StateTarget, wanted: Mapping[str, str]) -> bool:
    """Return whether the key has the given fields, and their types the given values."""
    try:
        key_fields(target, wanted)
    except UsageProblem:
        return False
    return True


def grouping_key(target: StateTarget) -> Sequence[Field]:
    """Return the fields of the key by which a query groups its rows."""
    key = target.schema.key
    grouping = key.fields[0].type if target.kind in ("map", "timers") else key
    return grouping.fields if isinstance(grouping, Struct) else ()


def _grouping_fields(target: StateTarget) -> list[str]:
    return field_names(Struct(tuple(grouping_key(target))))


def parse_fields(key: Struct, wanted: Mapping[str, str]) -> list[FieldValue]:
    """Parse values given as text according to the key's schema. ``window.start`` is a field of a struct."""
    found = []
    for name, text in wanted.items():
        path, kind = find_field(key, name)
        try:
            value = None if text == "null" and kind != Atomic("string") else parse_value(kind, text)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
            raise UsageProblem(
                "bad-key", f"{text!r} is not a valid value for {name}", evidence={"type": str(arrow_type(kind))}
            ) from None
        found.append(FieldValue(path, kind, value))
    return found


def find_field(key: Struct, name: str) -> tuple[tuple[int, ...], SqlType]:
    """Return the path and the type of a field, given by name: ``window.start`` is a field of a struct."""
    for number, field in enumerate(key.fields):
        if field.name == name:
            return (number,), field.type
        if isinstance(field.type, Struct) and name.startswith(f"{field.name}."):
            inner, kind = find_field(field.type, name[len(field.name) + 1 :])
            return (number, *inner), kind
    raise UsageProblem(
        "no-key-field", f"the key has no field {name!r}", evidence={"key fields": ", ".join(field_names(key)) or "none"}
    )


class KeyFilter(Protocol):
    """Selects the records of some keys."""

    @property
    def exact(self) -> Sequence[bytes] | None:
        """The stored keys themselves, if they are known, so that a RocksDB table can be searched for them."""

    @property
    def needle(self) -> bytes | None:
        """Bytes that occur in every stored key that matches; None if there are none."""

    @property
    def pattern(self) -> tuple[bytes, bytes] | None:
        """Bytes with which every stored key that matches begins, and a mask of those that are known; None if none is."""

    def partition_of(self, partitions: int) -> int | None:
        """Return the only partition that can contain the keys, out of so many; None if it is unknown."""

    @property
    def selected(self) -> dict[str, Records]:
        """A cache of the records selected from each file: versions share files, and each is then read once."""

    def select(self, records: Records) -> Records:
        """Return all records of these keys, and possibly some of other keys."""


class ExactKeys:
    """A filter for stored keys that are known byte for byte: those of some records."""

    needle = None
    pattern = None

    def __init__(self, records: Records) -> None:
        self._records = records
        self.selected: dict[str, Records] = {}

    @cached_property
    def exact(self) -> list[bytes]:
        return sorted({self._records.key(number) for number in range(len(self._records))})

    @cached_property
    def _hashes(self) -> npt.NDArray[np.uint64]:
        return np.unique(hash_keys(self._records.keys, self._records.key_start, self._records.key_length))

    def partition_of(self, partitions: int) -> int | None:  # noqa: ARG002  several keys are in several partitions
        return None

    def select(self, records: Records) -> Records:
        """Return the records of these keys, and all range deletions."""
        if not len(records):
            return records
        hashes = hash_keys(records.keys, records.key_start, records.key_length)
        return records.take(np.isin(hashes, self._hashes) | (records.operation == DELETE_RANGE))


class MatchingKeys:
    """A filter for keys in which some fields have given values."""

    def __init__(self, fields: Sequence[FieldValue], decoder: RowDecoder) -> None:
        self._fields, self._decoder = fields, decoder
        self._row_start, self._kind = decoder.key_row_start, decoder.target.schema.key
        self.selected: dict[str, Records] = {}

    @cached_property
    def exact(self) -> list[bytes] | None:
        """The only stored key that matches, if all its fields are given."""
        if self._row_start is None or any(_may_be_null(field) for field in self._fields):
            return None
        row = encoded_row(self._kind, {field.path: field.value for field in self._fields})
        return None if row is None else [bytes(self._row_start) + row]

    @cached_property
    def needle(self) -> bytes | None:
        """The longest string among the given values, or else the stored key."""
        texts = [
            field.value.as_py().encode()
            for field in self._fields
            if field.value is not None and field.type == Atomic("string") and not _may_be_null(field)
        ]
        # A string is found faster than a complete key, which consists mostly of zeros.
        return max(texts, key=len, default=b"") or (self.exact[0] if self.exact else None)

    @cached_property
    def pattern(self) -> tuple[bytes, bytes] | None:
        """What is known of the stored keys, if the values of some fields are."""
        if self._row_start is None or any(_may_be_null(field) for field in self._fields):
            return None
        required = self._decoder.target.schema.required_key_fields
        known, mask = row_pattern(self._kind, {field.path: field.value for field in self._fields}, required)
        start = bytes(self._row_start)
        return (start + known, b"\xff" * len(start) + mask) if any(mask) else None

    def partition_of(self, partitions: int) -> int | None:
        """Return the partition that the hash of the key names, if the key is known."""
        if self.exact is None:
            return None
        from headwater.statefiles.keyencoder import partition_of_row  # noqa: PLC0415  rarely needed

        return partition_of_row(self._decoder.target, self._decoder.keys(self._stored_key()), partitions)

    def _stored_key(self) -> Records:
        assert self.exact is not None
        return records_of(list(self.exact), [b""], np.array([PUT], np.uint8), np.zeros(1, np.int64))

    def select(self, records: Records) -> Records:
        """Return the records whose keys match, and all range deletions."""
        ranges = records.operation == DELETE_RANGE
        likely = self._likely(records) & ~ranges
        found = records.take(likely)
        if len(found):
            keys = self._decoder.keys(found)
            exact = np.ones(len(found), bool)
            for field in self._fields:
                exact &= _equal(_at(keys, field.path), field)
            likely[np.flatnonzero(likely)[~exact]] = False
        return records.take(likely | ranges)

    def _likely(self, records: Records) -> Mask:
        likely = np.ones(len(records), bool)
        if self._row_start is None or not len(records):
            return likely
        for field in self._fields:
            probe = _probe(field)
            if probe is not None and len(field.path) == 1:
                chosen = np.flatnonzero(likely)
                rows = records.key_start[chosen] + self._row_start
                slot = rows + bitset_bytes(len(self._kind.fields)) + 8 * field.path[0]
                likely[chosen[~probe(records.keys, rows, slot)]] = False
        return likely


def _probe(field: FieldValue) -> Callable[[ByteSpace, Ints, Ints], Mask] | None:
    """Return a cheap test of a field's bytes that never misses an equal value; None for types that have none."""
    if field.value is None or _may_be_null(field) or not isinstance(field.type, Atomic):
        return None
    name = field.type.name
    if name in _EIGHT_BYTES or name in _FOUR_BYTES:
        number = field.value.cast(pa.int64() if name in _EIGHT_BYTES else pa.int32()).as_py()
        form = "<i8" if name in _EIGHT_BYTES else "<i4"
        return lambda space, rows, slot: space.gather(form, slot) == number  # noqa: ARG005
    if name == "string":
        wanted = field.value.as_py().encode()
        (head,) = struct.unpack("<Q", wanted[:8].ljust(8, b"\0"))
        mask = LOW_BYTES[min(len(wanted), 8)]

        def same_beginning(space: ByteSpace, rows: Ints, slot: Ints) -> Mask:
            word = space.gather("<i8", slot)
            same_length = (word & 0xFFFFFFFF) == len(wanted)
            begin = space.gather("<u8", np.where(same_length, rows + (word >> 32), 0)) & mask
            same: Mask = same_length & (begin == np.uint64(head))
            return same

        return same_beginning
    return None


def matching_keys(keys: pa.StructArray, fields: Sequence[FieldValue]) -> Mask:
    """Return which keys have the given values."""
    found = np.ones(len(keys), bool)
    for field in fields:
        found &= _equal(_at(keys, field.path), field)
    return found


def _at(keys: pa.StructArray, path: tuple[int, ...]) -> pa.Array:
    found = keys
    for number in path:
        found = found.flatten()[number]
    return found


def _equal(column: pa.Array, field: FieldValue) -> Mask:
    if field.value is None:
        return buffers.as_mask(column.is_null())
    same = pc.and_kleene(pc.equal(column, field.value), column.is_valid())
    if _may_be_null(field):
        same = pc.or_(same, column.is_null())
    return buffers.as_mask(same)


def _may_be_null(field: FieldValue) -> bool:
    """Return whether null matches. In a string field, ``name=null`` matches both the string and null."""
    return field.value is None or (field.type == Atomic("string") and field.value.as_py() == "null")
