"""Looking up keys by their fields. A key whose fields are all given is looked up by its stored bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from corpus_support import CorpusCheckpoint, corpus_names
from headwater.statefiles.key_lookup import MatchingKeys, key_filter, parse_fields
from headwater.statefiles.reader import StateReader
from headwater.statefiles.sqltypes import Atomic, Field, Struct, field_names
from headwater.statefiles.stores import StateTarget
from headwater.statefiles.unsaferow import encoded_row

Corpus = Callable[[str], CorpusCheckpoint]

# Keys with arrays, fractions and the like have more than one valid encoding, so all keys are searched for them.
COMMON = [name for name in corpus_names() if "aggregation" in name or "dedup" in name]


def scalars(kind: Struct, key: Any, at: tuple[int, ...] = ()) -> dict[tuple[int, ...], Any]:
    """Return every leaf of a key by its path."""
    found: dict[tuple[int, ...], Any] = {}
    for number, field in enumerate(kind.fields):
        value = key[number]
        found |= scalars(field.type, value, (*at, number)) if isinstance(field.type, Struct) else {(*at, number): value}
    return found


@pytest.mark.parametrize("name", COMMON)
def test_keys_are_encoded_as_by_spark(name: str, corpus: Corpus) -> None:
    """Every stored key, decoded and encoded again, has the same bytes."""
    reader = StateReader(corpus(name).files)
    batch = reader.latest()
    compared = 0
    for target in reader.targets(batch):
        if target.kind != "rows" or target.schema.encoding.layout != "row":
            continue
        decoder = reader.decoder(target, batch)
        for store in reader.stores(target, batch):
            rows = reader.partition(target, store).rows(batch)
            keys = decoder.keys(rows)
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
                    assert (b"" if decoder.hdfs else b"\0") + row == rows.key(number)
                    compared += 1
    assert compared


def lookup(reader: StateReader, target: StateTarget, batch: int, wanted: dict[str, str]) -> MatchingKeys:
    return key_filter(reader.decoder(target, batch), wanted)


def test_complete_key_is_found_in_every_store(corpus: Corpus) -> None:
    """Looking up a key by all its fields returns its row in the complete state."""
    for name in ("aggregation-rocksdb", "aggregation-changelog", "aggregation-hdfs"):
        reader = StateReader(corpus(name).files)
        batch = reader.latest()
        (target,) = reader.targets(batch)
        names = field_names(target.schema.key)
        rows = reader.table(target, batch).to_pylist()
        assert rows
        for row in rows:
            wanted = dict(zip(names, _texts(row["key"]), strict=True))
            keys = lookup(reader, target, batch, wanted)
            assert "null" in wanted.values() or keys.exact is not None
            assert reader.table(target, batch, keys).to_pylist() == [row]


def _texts(key: dict[str, Any]) -> list[str]:
    found = []
    for value in key.values():
        found += _texts(value) if isinstance(value, dict) else ["null" if value is None else str(value)]
    return found


def test_a_key_with_a_missing_field_has_no_stored_bytes(corpus: Corpus) -> None:
    """Some of the fields are not enough to encode a key, so all keys have to be searched."""
    reader = StateReader(corpus("aggregation-rocksdb").files)
    batch = reader.latest()
    (target,) = reader.targets(batch)
    name = field_names(target.schema.key)[-1]
    assert lookup(reader, target, batch, {name: "a"}).exact is None


@pytest.mark.parametrize(
    "text",
    [
        "2024-05-01T00:00",
        "2024-05-01 00:00:00Z",
        "2024-05-01T02:00:00+02:00",
        "2024-04-30T19:00:00.000-05:00",
    ],
)
def test_times_without_an_offset_are_utc(text: str) -> None:
    """A timestamp can be given with any UTC offset; without one it is in UTC."""
    key = Struct((Field("at", Atomic("timestamp")),))
    (field,) = parse_fields(key, {"at": text})
    assert field.value is not None
    assert field.value.cast("int64").as_py() == 1_714_521_600_000_000
