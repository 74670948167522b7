"""Which keys a question is about, so that the rest of a state need not be decoded, nor even looked at."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core.errors import UsageProblem
from headwater.statefiles import buffers
from headwater.statefiles.buffers import ByteSpace, Ints, Mask
from headwater.statefiles.latest import hash_keys
from headwater.statefiles.records import DELETE_RANGE, Records
from headwater.statefiles.sqltypes import Atomic, SqlType, Struct, arrow_type
from headwater.statefiles.unsaferow import bitset_bytes, encoded_row

if TYPE_CHECKING:
    import numpy.typing as npt

_EIGHT_BYTES = {"long": "<q", "timestamp": "<q", "timestamp_ntz": "<q", "time": "<q"}
_FOUR_BYTES = {"integer": "<i", "date": "<i"}
_LOW_BYTES = np.array([(1 << (8 * count)) - 1 for count in range(9)], dtype="<u8")


class KeyFilter(Protocol):
    @property
    def exact(self) -> Sequence[bytes] | None:
        """The stored keys themselves, where they are known: a table can then be asked for them alone."""

    @property
    def needle(self) -> bytes | None:
        """Bytes that stand in every stored key that fits; None where there are none."""

    @property
    def picked(self) -> dict[str, Records]:
        """What was picked from which file: versions share files, and each is then read once."""

    def pick(self, records: Records) -> Records:
        """The records about these keys. Some that are not may be left in; none that is may be left out."""


class TheseKeys:
    """Stored keys that are known byte for byte."""

    needle = None

    def __init__(self, records: Records) -> None:
        self._records = records
        self.picked: dict[str, Records] = {}

    @cached_property
    def exact(self) -> list[bytes]:
        return sorted({self._records.key(number) for number in range(len(self._records))})

    @cached_property
    def _hashes(self) -> npt.NDArray[np.uint64]:
        return np.unique(hash_keys(self._records.keys, self._records.key_start, self._records.key_length))

    def pick(self, records: Records) -> Records:
        if not len(records):
            return records
        hashes = hash_keys(records.keys, records.key_start, records.key_length)
        return records.take(np.isin(hashes, self._hashes) | (records.operation == DELETE_RANGE))


@dataclass(frozen=True)
class FieldValue:
    """One field of a key, by its place in the key's columns, and the value that it has to have; None is null."""

    path: tuple[int, ...]
    type: SqlType
    value: pa.Scalar | None


class KeysWith:
    """Keys in which some fields have given values. ``decode`` turns records into a struct array of their keys."""

    def __init__(
        self,
        fields: Sequence[FieldValue],
        decode: Callable[[Records], pa.StructArray],
        row_start: int | None,
        kind: Struct,
    ) -> None:
        # row_start is where the key's row begins in a stored key, None where keys are no plain rows.
        self._fields, self._decode, self._row_start, self._kind = fields, decode, row_start, kind
        self.picked: dict[str, Records] = {}

    @cached_property
    def exact(self) -> list[bytes] | None:
        """The one stored key, where all its fields are given."""
        if self._row_start is None or any(_may_be_null(field) for field in self._fields):
            return None
        row = encoded_row(self._kind, {field.path: field.value for field in self._fields})
        return None if row is None else [bytes(self._row_start) + row]

    @cached_property
    def needle(self) -> bytes | None:
        texts = [
            field.value.as_py().encode()
            for field in self._fields
            if field.value is not None and field.type == Atomic("string") and not _may_be_null(field)
        ]
        # A text is found sooner than a whole key, which is full of zeros.
        return max(texts, key=len, default=b"") or (self.exact[0] if self.exact else None)

    def pick(self, records: Records) -> Records:
        ranges = records.operation == DELETE_RANGE
        likely = self._likely(records) & ~ranges
        found = records.take(likely)
        if len(found):
            keys = self._decode(found)
            exact = np.ones(len(found), bool)
            for field in self._fields:
                exact &= _equal(_at(keys, field.path), field)
            likely[np.flatnonzero(likely)[~exact]] = False
        return records.take(likely | ranges)

    def _likely(self, records: Records) -> Mask:
        fits = np.ones(len(records), bool)
        if self._row_start is None or not len(records):
            return fits
        for field in self._fields:
            probe = _probe(field)
            if probe is not None and len(field.path) == 1:
                chosen = np.flatnonzero(fits)
                rows = records.key_start[chosen] + self._row_start
                slot = rows + bitset_bytes(len(self._kind.fields)) + 8 * field.path[0]
                fits[chosen[~probe(records.keys, rows, slot)]] = False
        return fits


def _probe(field: FieldValue) -> Callable[[ByteSpace, Ints, Ints], Mask] | None:
    """A cheap look at a field's bytes that never misses an equal value; None for types without one."""
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
        mask = _LOW_BYTES[min(len(wanted), 8)]

        def same_beginning(space: ByteSpace, rows: Ints, slot: Ints) -> Mask:
            word = space.gather("<i8", slot)
            fits = (word & 0xFFFFFFFF) == len(wanted)
            begin = space.gather("<u8", np.where(fits, rows + (word >> 32), 0)) & mask
            same: Mask = fits & (begin == np.uint64(head))
            return same

        return same_beginning
    return None


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
    """``name=null`` means the text and the null, where the field is a text."""
    return field.value is None or (field.type == Atomic("string") and field.value.as_py() == "null")


def field_values(key: Struct, asked: Mapping[str, str]) -> list[FieldValue]:
    """What a user wrote as ``name=value``, understood by the key's schema. ``window.start`` is a field of a struct."""
    found = []
    for name, text in asked.items():
        path, kind = _find(key, name)
        try:
            value = None if text == "null" and kind != Atomic("string") else _value(kind, text)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
            raise UsageProblem(
                "bad-key", f"{text!r} is no value for {name}", evidence={"type": str(arrow_type(kind))}
            ) from None
        found.append(FieldValue(path, kind, value))
    return found


def _find(key: Struct, name: str) -> tuple[tuple[int, ...], SqlType]:
    for number, field in enumerate(key.fields):
        if field.name == name:
            return (number,), field.type
        if isinstance(field.type, Struct) and name.startswith(f"{field.name}."):
            inner, kind = _find(field.type, name[len(field.name) + 1 :])
            return (number, *inner), kind
    raise UsageProblem(
        "no-key-field", f"the key has no field {name!r}", evidence={"key fields": ", ".join(leaves(key)) or "none"}
    )


def leaves(key: Struct, before: str = "") -> list[str]:
    """The names by which the fields of a key can be given."""
    found = []
    for field in key.fields:
        if isinstance(field.type, Struct):
            found += leaves(field.type, f"{before}{field.name}.")
        else:
            found.append(before + field.name)
    return found


def _value(kind: SqlType, text: str) -> pa.Scalar:
    arrow = arrow_type(kind)
    if pa.types.is_timestamp(arrow) and arrow.tz is not None and not text.endswith("Z") and "+" not in text:
        text = f"{text}Z"
    return buffers.text(text).cast(arrow)
