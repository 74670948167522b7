"""Encoding of rows and keys: the bytes are those that Spark wrote, and every value is decoded as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Context
from decimal import Decimal as Number
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_support import CorpusCheckpoint, corpus_names, sampled
from headwater.statefiles.buffers import ByteSpace, one_array
from headwater.statefiles.keyencoder import RowEncoder, storage_target
from headwater.statefiles.murmur3 import partition_of
from headwater.statefiles.reader import StateReader
from headwater.statefiles.rowcodec import UnsafeRows, decode_keys
from headwater.statefiles.rowencoder import encode_structs
from headwater.statefiles.schemafile import FamilySchema, KeyEncoding
from headwater.statefiles.sqltypes import Array, Atomic, Decimal, Field, Interval, Map, SqlType, Struct, arrow_type
from headwater.statefiles.stores import StateTarget, StoreSettings

Corpus = Callable[[str], CorpusCheckpoint]

PLAIN = StoreSettings(avro=False, row_checksums=False, list_delimiter=0, partitions=None)


@pytest.mark.parametrize("batches", ["last batch", pytest.param("all batches", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", sampled(corpus_names()))
def test_rows_are_encoded_as_spark_wrote_them(name: str, batches: str, corpus: Corpus) -> None:
    """Every key and value of the corpus has the bytes, and the partition, that Spark gave it."""
    reader = StateReader(corpus(name).files)
    if not reader.committed:
        return
    for batch in [reader.latest()] if batches == "last batch" else reader.readable():
        for found in reader.targets(batch):
            if found.kind not in ("side", "raw"):
                mixed = name == "avro-evolved" and batch < reader.latest()
                _assert_same_bytes(reader, storage_target(found), batch, mixed_schemas=mixed)


def _assert_same_bytes(reader: StateReader, target: StateTarget, batch: int, *, mixed_schemas: bool) -> None:
    decoder = reader.decoder(target, batch)
    encoder = RowEncoder(target, replace(reader.settings(batch), list_delimiter=0), decoder.hdfs)
    stores = reader.stores(target, batch)
    for store in stores:
        rows = reader.one_row_per_key(target, reader.partition(target, store).rows(batch), batch)
        if not len(rows):
            continue
        keys = decoder.keys(rows)
        assert encoder.keys(keys) == [rows.key(number) for number in range(len(rows))], target.label
        assert set(encoder.partitions(keys, len(stores)).tolist()) == {store.partition_id}
        if target.is_list:
            table = decoder.list_table(rows, np.zeros(len(rows), np.int32))[1]
            values = encoder.lists(one_array(table["list_value"]))
        else:
            values = encoder.values(decoder.values(rows))
        stored = [rows.value(number) for number in range(len(rows))]
        if mixed_schemas:  # a row that was not changed since an older schema still has its number
            values, stored = _of_one_schema(values, stored)
        assert values == stored, target.label


def _of_one_schema(values: list[bytes], stored: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    assert all(other[:3] <= value[:3] for value, other in zip(values, stored, strict=True))
    same = [(value, other) for value, other in zip(values, stored, strict=True) if value[:3] == other[:3]]
    return [value for value, _ in same], [other for _, other in same]


_SIMPLE: dict[SqlType, st.SearchStrategy[Any]] = {
    Atomic("void"): st.none(),
    Atomic("boolean"): st.booleans(),
    Atomic("byte"): st.integers(-(2**7), 2**7 - 1),
    Atomic("short"): st.integers(-(2**15), 2**15 - 1),
    Atomic("integer"): st.integers(-(2**31), 2**31 - 1),
    Atomic("long"): st.integers(-(2**63), 2**63 - 1),
    Atomic("float"): st.floats(width=32, allow_nan=False),
    Atomic("double"): st.floats(allow_nan=False),
    Atomic("string"): st.text(max_size=20),
    Atomic("binary"): st.binary(max_size=20),
    Atomic("date"): st.dates(),
    Atomic("timestamp"): st.datetimes(timezones=st.just(UTC)),
    Atomic("timestamp_ntz"): st.datetimes(),
    Atomic("time"): st.times(),
    Atomic("interval"): st.tuples(
        st.integers(-(2**31), 2**31 - 1),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(-(2**40), 2**40).map(lambda micros: micros * 1000),
    ).map(pa.MonthDayNano),
    Decimal(9, 2): st.decimals(-(10**6), 10**6, places=2),
    Decimal(18, 0): st.integers(-(10**18) + 1, 10**18 - 1).map(Number),
    Decimal(38, 10): st.integers(-(10**38) + 1, 10**38 - 1).map(
        lambda unscaled: Number(unscaled).scaleb(-10, Context(prec=40))
    ),
    Interval(True, "year to month"): st.integers(-(2**31), 2**31 - 1).map(
        lambda months: pa.MonthDayNano([months, 0, 0])
    ),
    Interval(False, "day to second"): st.timedeltas(timedelta(days=-(10**5)), timedelta(days=10**5)),
}


def _kinds() -> st.SearchStrategy[SqlType]:
    simple = st.sampled_from(list(_SIMPLE))
    not_void = st.sampled_from([kind for kind in _SIMPLE if kind != Atomic("void")])
    return st.recursive(
        simple,
        lambda inner: st.one_of(
            inner.map(Array),
            st.tuples(not_void, inner).map(lambda pair: Map(*pair)),
            st.lists(inner, min_size=1, max_size=4).map(_struct),
        ),
        max_leaves=6,
    )


def _struct(kinds: list[SqlType]) -> Struct:
    return Struct(tuple(Field(f"f{number}", kind) for number, kind in enumerate(kinds)))


def _values(kind: SqlType) -> st.SearchStrategy[Any]:
    match kind:
        case Array(element):
            found: st.SearchStrategy[Any] = st.lists(_values(element), max_size=9)
        case Map(key, value):
            found = st.lists(st.tuples(_SIMPLE[key], _values(value)), max_size=3)
        case Struct(fields):
            found = st.fixed_dictionaries({field.name: _values(field.type) for field in fields})
        case _:
            found = _SIMPLE[kind]
    return st.none() | found


@st.composite
def _tables(draw: st.DrawFn) -> tuple[Struct, pa.StructArray]:
    kind = _struct(draw(st.lists(_kinds(), min_size=1, max_size=5)))
    row = st.fixed_dictionaries({field.name: _values(field.type) for field in kind.fields})
    rows = draw(st.lists(row, max_size=5))
    return kind, pa.array(rows, arrow_type(kind))


@settings(max_examples=100, deadline=None)
@given(_tables())
def test_encoded_rows_are_decoded_as_they_were(given_rows: tuple[Struct, pa.StructArray]) -> None:
    """Rows of any type, with nulls at any depth, survive being encoded and decoded."""
    kind, rows = given_rows
    encoded = encode_structs(kind, rows)
    assert all(len(row) % 8 == 0 for row in encoded)
    start = np.cumsum([0, *map(len, encoded)])[:-1].astype(np.int64)
    length = np.array([*map(len, encoded)], np.int64)
    found = UnsafeRows(version_byte=False).rows(kind, ByteSpace(b"".join(encoded)), start, length)
    assert found.to_pylist() == rows.to_pylist()


def test_a_slice_of_a_column_is_encoded_like_a_copy_of_it() -> None:
    """Arrow columns that begin in the middle of their buffers are read from there."""
    kinds: dict[SqlType, list[Any]] = {
        Atomic("string"): ["one", None, "three", "four and more"],
        Atomic("boolean"): [True, None, False, True],
        Decimal(38, 2): [Number("1.25"), None, Number("-3"), Number("1e20")],
        Interval(True, "year"): [
            pa.MonthDayNano([1, 0, 0]),
            None,
            pa.MonthDayNano([-2, 0, 0]),
            pa.MonthDayNano([9, 0, 0]),
        ],
        Array(Atomic("long")): [[1], None, [2, None], []],
        Map(Atomic("string"), Atomic("integer")): [[("a", 1)], None, [("b", None)], []],
        Array(_struct([Atomic("string")])): [[{"f0": "x"}], [None], None, [{"f0": None}]],
    }
    kind = _struct(list(kinds))
    rows = [dict(zip(kind.names, row, strict=True)) for row in zip(*kinds.values(), strict=True)]
    entire = pa.array(rows, arrow_type(kind))
    assert encode_structs(kind, entire.slice(1, 3)) == encode_structs(kind, pa.array(rows[1:], arrow_type(kind)))


_RANGED = [Atomic(name) for name in ("byte", "short", "integer", "long", "float", "double", "boolean")]


@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from(_RANGED), st.sampled_from(["row", "prefix", "range"]))
def test_keys_of_every_layout_are_decoded_as_they_were(data: st.DataObject, first: Atomic, layout: Any) -> None:
    """A key survives in every layout, and range keys sort like their numbers."""
    kind = _struct([first, Atomic("string"), Atomic("timestamp")])
    row = st.fixed_dictionaries({field.name: _values(field.type) for field in kind.fields})
    keys = pa.array(data.draw(st.lists(row, min_size=1, max_size=6)), arrow_type(kind))
    encoding = KeyEncoding(layout, () if layout == "row" else (0,))
    target = StateTarget(0, "x", "default", "v", "value", "default", "v", FamilySchema("", "v", "", "", encoding))
    target.schema.__dict__["key"] = kind
    encoded = RowEncoder(target, PLAIN, hdfs=False).keys(keys)
    length = np.array([*map(len, encoded)], np.int64)
    start = np.cumsum(length) - length
    space = ByteSpace(b"".join(encoded))
    found = decode_keys(kind, encoding, UnsafeRows(version_byte=True), space, start, length)
    assert found.to_pylist() == keys.to_pylist()
    if layout == "range":
        present = [
            (one["f0"], text) for one, text in zip(keys.to_pylist(), encoded, strict=True) if one["f0"] is not None
        ]
        by_number = [number for number, _ in sorted(present, key=lambda pair: pair[0])]
        assert [number for number, _ in sorted(present, key=lambda pair: pair[1])] == by_number


# What Spark's hash() returns, which is how it chooses a partition.
_HASHES: list[tuple[SqlType, Any, int]] = [
    (Atomic("integer"), 42, 29417773),
    (Atomic("long"), 42, 1316951768),
    (Atomic("string"), "Spark", 228093765),
    (Atomic("boolean"), True, -559580957),
    (Atomic("double"), 1.5, 1290763749),
    (Atomic("float"), -0.0, 933211791),
    (Atomic("byte"), 1, -559580957),
    (Atomic("integer"), None, 42),
    (Atomic("string"), "a longer text, ünïcode", -1185424766),
    (Atomic("binary"), b"\xff\xfe\xfd\xfc\xfb", 1324213860),
    (Decimal(20, 2), Number("123.45"), 589679666),
    (Decimal(9, 2), Number("123.45"), 1416086240),
    (Array(Atomic("integer")), [1, None, 2], -222940379),
    (_struct([Atomic("integer"), Atomic("string")]), {"f0": 1, "f1": "x"}, -1305545736),
    (Atomic("date"), date(2024, 2, 29), 653915859),
    (Atomic("timestamp"), datetime(2024, 2, 29, tzinfo=UTC), -1074694574),
    (Interval(True, "year to month"), pa.MonthDayNano([14, 0, 0]), 335551368),
    (Interval(False, "day to second"), timedelta(days=1, hours=2, minutes=3, seconds=4), 1431373363),
]


@pytest.mark.parametrize(("kind", "value", "expected"), _HASHES, ids=str)
def test_the_hash_is_that_of_spark(kind: SqlType, value: Any, expected: int) -> None:
    """The hash of a value of each type is the one that Spark's `hash` function returns."""
    column = pa.array([value], arrow_type(kind))
    assert int(partition_of([kind], [column], 1, 1 << 40)[0]) == expected % (1 << 40)
