"""State whose schema files are recorded in another way, have moved, or do not exist."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from corpus_support import as_memory_files, load
from headwater.checkpoint.checks import CheckContext, run_checks
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.core.errors import CheckpointUnreadable, UsageProblem
from headwater.core.ids import StoreRef
from headwater.spark.state_source import StateSource
from headwater.statefiles.key_lookup import key_filter
from headwater.statefiles.reader import StateReader, read_answers, read_state, state_rows
from headwater.statefiles.stores import StateTarget
from headwater.timemachine.key_history import key_history
from statefiles.ddl_text import schema_text

Store = dict[str, object]
CUSTOM = [
    "custom-changelog",
    "custom-format2",
    "custom-ttl",
    "avro-evolved",
    "avro-custom",
    "join3",
    "join4",
    "spark4.0-custom-changelog",
    "spark4.0-custom-rocksdb",
    "spark4.1-custom-changelog",
]
PLAIN = [
    "aggregation-hdfs",
    "aggregation-changelog",
    "aggregation-rocksdb",
    "aggregation1-hdfs",
    "dedup-format2",
    "global-hdfs",
    "join-hdfs",
    "join-rocksdb",
    "pandas-changelog",
    "row-checksum-rocksdb",
    "session-hdfs",
    "session-changelog",
    "spark3.5-aggregation-hdfs",
    "spark3.5-join-changelog",
    "spark3.5-session-changelog",
    "typed-keys-hdfs",
    "typed-struct-rocksdb",
    "typed-values-changelog",
]
AGGREGATION = (
    "key: window STRUCT<start: TIMESTAMP, end: TIMESTAMP>, user STRING; value: count BIGINT, max TIMESTAMP, sum BIGINT"
)


def with_metadata(name: str, change: Callable[[Store], None]) -> MemoryTree:
    """Return a checkpoint in which the metadata of every store of version 2 was changed."""
    files = as_memory_files(name)
    changed = 0
    for path, data in list(files.contents.items()):
        if re.search(r"/_metadata/v2/\d+$", path):
            version, _, body = data.decode().partition("\n")
            metadata = json.loads(body)
            for store in metadata["stateStoreInfo"]:
                change(store)
                changed += 1
            files.write(path, f"{version}\n{json.dumps(metadata)}".encode())
    assert changed
    return files


def singular(store: Store) -> None:
    paths = store.pop("stateSchemaFilePaths")
    assert isinstance(paths, list)
    store["stateSchemaFilePath"] = paths[-1]


def on_another_machine(store: Store) -> None:
    paths = store["stateSchemaFilePaths"]
    assert isinstance(paths, list)
    store["stateSchemaFilePaths"] = [f"hdfs://elsewhere:8020/moved/{path.rpartition('/')[2]}" for path in paths]


def under_another_name(store: Store) -> None:
    store["stateSchemaFilePaths"] = ["s3a://bucket/state/0/_stateSchema/default/0_00000000"]


def absent(store: Store) -> None:
    del store["stateSchemaFilePaths"]


def null(store: Store) -> None:
    store["stateSchemaFilePaths"] = None


def schema_findings(files: MemoryTree) -> set[str]:
    return {one.path for one in run_checks(CheckContext(files, now_ms=1000)) if one.code == "schema-missing"}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        # All changes of one checkpoint, and one change of each of the others.
        pytest.param(name, change, marks=() if name == "custom-format2" or change is absent else pytest.mark.slow)
        for name in CUSTOM
        for change in (singular, on_another_machine, under_another_name, absent, null)
        # A build that recorded a single path could not evolve a schema.
        if (name, change) != ("avro-evolved", singular)
    ],
)
def test_schema_files_are_found(name: str, change: Callable[[Store], None]) -> None:
    """The state does not depend on how, or whether, the metadata names the schema files."""
    changed = with_metadata(name, change)
    assert repr(state_rows(changed)) == repr(state_rows(as_memory_files(name)))
    reported = schema_findings(changed)
    assert bool(reported) == (change is under_another_name)


def test_schema_files_of_later_batches_are_not_used() -> None:
    """As of each batch, only the schema files up to that batch are found by their names."""
    changed, unchanged = (
        StateReader(with_metadata("avro-evolved", absent)),
        StateReader(as_memory_files("avro-evolved")),
    )
    for batch in unchanged.readable():
        known = {target.label: len(target.older_schemas) for target in unchanged.targets(batch)}
        assert {target.label: len(target.older_schemas) for target in changed.targets(batch)} == known


@pytest.mark.parametrize("stray_is_newer", [False, True])
def test_of_two_schema_files_of_a_batch_the_newer_is_used(tmp_path: Path, stray_is_newer: bool) -> None:
    """A batch that was planned twice may have left two schema files; the one that was written last is used."""
    folder = load("custom-changelog", tmp_path).path
    expected = repr(state_rows(LocalTree(folder)))
    (valid,) = (path for path in folder.glob("state/0/_stateSchema/default/*") if path.name[0] != ".")
    for path in folder.glob("state/0/_metadata/v2/[0-9]*"):
        path.write_text(path.read_text().replace("stateSchemaFilePaths", "unknown"))
    stray = valid.with_name("0_zzzz")
    stray.write_bytes(b"left over")
    os.utime(valid, (1000, 1000))
    os.utime(stray, (2000, 2000) if stray_is_newer else (500, 500))
    if stray_is_newer:
        with pytest.raises(CheckpointUnreadable, match="0_zzzz"):
            state_rows(LocalTree(folder))
    else:
        assert repr(state_rows(LocalTree(folder))) == expected


def test_custom_state_without_any_schema_file() -> None:
    """Without a schema file, custom state cannot be read: the error and fsck name the file."""
    files = with_metadata("custom-changelog", absent)
    for path in [path for path in files.contents if "/_stateSchema/" in path]:
        files.remove(path)
    with pytest.raises(CheckpointUnreadable) as refused:
        state_rows(files)
    assert refused.value.code == "missing-file"
    assert schema_findings(files) == {"state/0/_stateSchema/default"}


def without_schemas(name: str) -> MemoryTree:
    files = as_memory_files(name)
    for path in [path for path in files.contents if path.endswith("/_metadata/schema")]:
        files.remove(path)
    return files


def plain_targets(reader: StateReader) -> list[StateTarget]:
    return [target for target in reader.targets(reader.latest()) if target.kind == "rows"]


@pytest.mark.parametrize("name", PLAIN)
def test_a_given_schema_replaces_the_missing_one(name: str) -> None:
    """With the schema as DDL, a store without a schema file is read exactly as with its file; without, as bytes."""
    reader, files = StateReader(as_memory_files(name)), without_schemas(name)
    batch = reader.latest()
    for target in plain_targets(reader):
        expected = reader.table(target, batch)
        ref = StoreRef(target.operator_id, target.store)
        found = read_state(files, ref=ref, schema=schema_text(target.schema))
        assert found.schema == expected.schema
        assert repr(found.to_pylist()) == repr(expected.to_pylist())
        raw = read_state(files, ref=ref)
        assert raw.schema.field("key").type == pa.struct([("key_bytes", pa.binary())])
        assert raw.schema.field("value").type == pa.struct([("value_bytes", pa.binary())])
        assert raw.num_rows == expected.num_rows


def diff_table(files: MemoryTree, schema: str | None = None) -> pa.Table:
    (found,) = StateSource(files, schema=schema).diffs(6, 8)
    return found.table


def test_changes_and_history_of_bytes() -> None:
    """Changes between batches are found without a schema, and the history of a key that is given in base64."""
    files, decoded = without_schemas("aggregation-hdfs"), as_memory_files("aggregation-hdfs")
    changes, expected = diff_table(files), diff_table(decoded)
    assert changes["change"].to_pylist() == expected["change"].to_pylist()
    reader = StateReader(files)
    (target,) = reader.targets(8)
    key = changes["key"][0].as_py()["key_bytes"]
    wanted = {"key_bytes": base64.b64encode(key).decode()}
    history = key_history(reader, target, wanted)
    assert set(history.key.field(0).to_pylist()) == {key}
    assert len(history) == len(reader.readable())
    assert reader.table(target, 8, key_filter(reader.decoder(target, 8), wanted)).num_rows == 1
    with pytest.raises(UsageProblem) as refused:
        key_history(reader, target, {"key_bytes": "not base64"})
    assert refused.value.code == "bad-key"


def test_changes_with_a_given_schema() -> None:
    """A diff accepts the schema too."""
    expected = diff_table(as_memory_files("aggregation-hdfs"))
    assert diff_table(without_schemas("aggregation-hdfs"), AGGREGATION) == expected


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (AGGREGATION.replace(", sum BIGINT", ""), "a row of 32 bytes, where exactly 24 were expected"),
        (AGGREGATION.replace("sum BIGINT", "sum STRING"), "a row whose field sum is not of the type string"),
        (AGGREGATION.replace("window STRUCT<start: TIMESTAMP, end: TIMESTAMP>, ", ""), "a row with more than 1 fields"),
    ],
)
def test_a_schema_that_does_not_match(schema: str, reason: str) -> None:
    """A schema with another number or other sizes of fields is refused, instead of showing wrong values."""
    with pytest.raises(UsageProblem) as refused:
        read_state(without_schemas("aggregation-hdfs"), schema=schema)
    assert refused.value.code == "bad-schema"
    assert refused.value.evidence["reason"] == reason


def test_a_schema_for_a_store_that_has_one() -> None:
    """A schema is refused where the checkpoint has one, and where it could mean several stores."""
    with pytest.raises(UsageProblem) as refused:
        read_state(as_memory_files("aggregation-hdfs"), schema=AGGREGATION)
    assert refused.value.code == "schema-not-needed"
    with pytest.raises(UsageProblem) as refused:
        read_answers(without_schemas("join-hdfs"), schema=AGGREGATION)
    assert refused.value.code == "which-state"
