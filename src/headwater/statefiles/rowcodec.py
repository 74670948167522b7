"""How a store turns rows into bytes: UnsafeRow as HDFS-backed stores and RocksDB have it, or Avro."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from headwater.statefiles.bytespace import ByteSpace, Ints
from headwater.statefiles.sqltypes import Struct
from headwater.statefiles.unsaferow import bitset_bytes, decode_fields, struct_of


class RowCodec(Protocol):
    """Rows of any schema from bytes. ``schema_id`` is False for the one part of a key that is written without one."""

    def rows(self, kind: Struct, space: ByteSpace, start: Ints, length: Ints) -> pa.StructArray: ...

    def fields(
        self, kind: Struct, space: ByteSpace, start: Ints, length: Ints, *, schema_id: bool = True
    ) -> list[pa.Array]: ...

    def range_columns(self, count: int, space: ByteSpace, start: Ints, length: Ints) -> tuple[list[Ints], list[Ints]]:
        """Where the marker and the number of each ordering column of a range key stand."""


@dataclass(frozen=True)
class UnsafeRows:
    """``version_byte``: RocksDB has a byte before each row, which is 0; HDFS-backed stores have none."""

    version_byte: bool

    def rows(self, kind: Struct, space: ByteSpace, start: Ints, length: Ints) -> pa.StructArray:
        return struct_of(kind, self.fields(kind, space, start, length), len(start), None)

    def fields(
        self,
        kind: Struct,
        space: ByteSpace,
        start: Ints,
        length: Ints,  # noqa: ARG002  a row knows where its parts are
        *,
        schema_id: bool = True,  # noqa: ARG002  there is none
    ) -> list[pa.Array]:
        return decode_fields(kind, space, self._row_start(space, start), None)

    def range_columns(
        self,
        count: int,
        space: ByteSpace,
        start: Ints,
        length: Ints,  # noqa: ARG002
    ) -> tuple[list[Ints], list[Ints]]:
        row = self._row_start(space, start)
        slots = [row + bitset_bytes(count) + 8 * number for number in range(count)]
        markers = [row + (space.gather("<i8", slot) >> 32) for slot in slots]
        return markers, [marker + 1 for marker in markers]

    def _row_start(self, space: ByteSpace, start: Ints) -> Ints:
        if not self.version_byte:
            return start
        versions = space.gather("u1", start)
        if versions.any():
            raise ValueError(f"a row of encoding version {int(versions.max())}, where 0 is known")
        return start + 1


@dataclass(frozen=True)
class AvroRows:
    """A version byte, the id of the schema that it was written with (int16 little-endian), and Avro's binary form.

    ``written`` holds the schemas by id, for values whose schema has evolved.
    """

    written: Mapping[int, Struct] = field(default_factory=dict)

    def rows(self, kind: Struct, space: ByteSpace, start: Ints, length: Ints) -> pa.StructArray:
        return struct_of(kind, self.fields(kind, space, start, length), len(start), None)

    def fields(
        self, kind: Struct, space: ByteSpace, start: Ints, length: Ints, *, schema_id: bool = True
    ) -> list[pa.Array]:
        from headwater.statefiles.avro import decode_records, evolved  # noqa: PLC0415  few stores use it

        if not schema_id or not self.written:
            return decode_records(kind, space, start + (3 if schema_id else 1), start + length)
        ids = space.gather("<i2", start + 1)
        used = np.unique(ids).tolist()
        if all(self.written.get(used_id, kind) == kind for used_id in used):
            return decode_records(kind, space, start + 3, start + length)
        return evolved(kind, self.written, ids, space, start + 3, start + length)

    def range_columns(self, count: int, space: ByteSpace, start: Ints, length: Ints) -> tuple[list[Ints], list[Ints]]:
        from headwater.statefiles.avro import byte_strings  # noqa: PLC0415

        at = byte_strings(2 * count, space, start + 1, start + length)
        return at[0::2], at[1::2]


def key_codec(*, avro: bool, hdfs: bool) -> RowCodec:
    return AvroRows() if avro else UnsafeRows(version_byte=not hdfs)
