"""A key given by all its fields is asked for by its stored bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from corpus_support import CorpusCheckpoint, corpus_names
from headwater.checkpoint.local_tree import LocalTree
from headwater.statefiles.columns import decode_all_keys
from headwater.statefiles.keyfilter import leaves
from headwater.statefiles.reader import StateReader
from headwater.statefiles.sqltypes import Struct
from headwater.statefiles.unsaferow import encoded_row
from headwater.timemachine.key_history import keys_with

Corpus = Callable[[str], CorpusCheckpoint]

# Keys with arrays, fractions and the like cannot be written in one way alone, and are looked for among all.
COMMON = [name for name in corpus_names() if "aggregation" in name or "dedup" in name]


def scalars(kind: Struct, key: Any, at: tuple[int, ...] = ()) -> dict[tuple[int, ...], Any]:
    """Every leaf of a key by its place."""
    found: dict[tuple[int, ...], Any] = {}
    for number, field in enumerate(kind.fields):
        value = key[number]
        found |= scalars(field.type, value, (*at, number)) if isinstance(field.type, Struct) else {(*at, number): value}
    return found


@pytest.mark.parametrize("name", COMMON)
def test_keys_are_written_as_spark_wrote_them(name: str, corpus: Corpus) -> None:
    """Every stored key, decoded and written again, is the same bytes."""
    reader = StateReader(LocalTree(corpus(name).path))
    batch = reader.latest()
    compared = 0
    for target in reader.targets(batch):
        if target.kind != "rows" or target.schema.encoding.layout != "whole":
            continue
        hdfs = reader.is_hdfs(target)
        for store in reader.stores(target, batch):
            rows = reader.store(target, store).rows(batch)
            keys = decode_all_keys(target, rows, reader.settings(batch), hdfs=hdfs)
            for number in range(len(rows)):
                values = {
                    path: None if value.as_py() is None else value
                    for path, value in scalars(target.schema.key, keys[number]).items()
                }
                row = encoded_row(target.schema.key, values)
                if None in values.values():
                    assert row is None
                else:
                    assert row is not None
                    assert (b"" if hdfs else b"\0") + row == rows.key(number)
                    compared += 1
    assert compared


def test_whole_key_is_found_in_every_store(corpus: Corpus) -> None:
    """Asked for by all its fields, each key of a state gives the row that the whole state has for it."""
    for name in ("aggregation-rocksdb", "aggregation-changelog", "aggregation-hdfs"):
        reader = StateReader(LocalTree(corpus(name).path))
        batch = reader.latest()
        (target,) = reader.targets(batch)
        names = leaves(target.schema.key)
        whole = reader.table(target, batch).to_pylist()
        assert whole
        for row in whole:
            asked = dict(zip(names, _texts(row["key"]), strict=True))
            keys = keys_with(reader, target, asked, batch)
            assert "null" in asked.values() or keys.exact is not None
            assert reader.table(target, batch, keys).to_pylist() == [row]


def _texts(key: dict[str, Any]) -> list[str]:
    found = []
    for value in key.values():
        found += _texts(value) if isinstance(value, dict) else ["null" if value is None else str(value)]
    return found


def test_a_key_with_a_field_missing_has_no_bytes(corpus: Corpus) -> None:
    """Some of the fields are not enough to write a key, so all keys are looked through."""
    reader = StateReader(LocalTree(corpus("aggregation-rocksdb").path))
    batch = reader.latest()
    (target,) = reader.targets(batch)
    name = leaves(target.schema.key)[-1]
    assert keys_with(reader, target, {name: "a"}, batch).exact is None
