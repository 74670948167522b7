"""Migrations of state that real Spark wrote, to schemas that new code might ask for, without Spark."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from corpus_support import as_memory_files
from headwater.checkpoint.checks import run_checks
from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.plan_record import RecordedPlan, StatefulOperator, read_plans, write_plan
from headwater.core.errors import ChangeRefused, UsageProblem
from headwater.migration.field_plan import RequestedFields
from headwater.migration.migrate import NewState, plan_migration
from headwater.migration.migration_plan import MigrationPlan
from headwater.migration.plan_text import BUFFER_SIZES
from headwater.statefiles.keyencoder import RowEncoder
from headwater.statefiles.reader import StateReader, state_rows
from headwater.statefiles.schemafile import parse_schema_file
from headwater.timemachine.undo import plan_undo
from headwater.views.migration import migration_as_dict, migration_text
from headwater.views.state_edits import plan_edit
from headwater.views.state_sql import aggregated, computed, split_expressions
from timemachine.crashing import Tree

SCHEMA = "state/0/0/_metadata/schema"
STORES = ("hdfs", "rocksdb", "changelog", "format2")


def utf(text: str) -> bytes:
    return struct.pack(">H", len(text.encode())) + text.encode()


def schema_file(key: list[dict[str, Any]], value: list[dict[str, Any]]) -> bytes:
    """Return a schema file of version 2, as Spark writes it."""
    chunks = [json.dumps({"type": "struct", "fields": fields}, separators=(",", ":")) for fields in (key, value)]
    return utf("v2") + b"".join(struct.pack(">i", 1) + utf(chunk) for chunk in chunks)


def field(name: str, kind: Any, *, nullable: bool = True) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


class Corpus:
    """A checkpoint of the corpus, and the schema that new code asks for."""

    def __init__(self, name: str) -> None:
        self.files = Tree(dict(as_memory_files(name).contents))
        (schema,) = parse_schema_file(self.files.read(SCHEMA), SCHEMA)
        self.key, self.value = (json.loads(text)["fields"] for text in (schema.key_json, schema.value_json))

    def new_state(self, operators: tuple[StatefulOperator, ...] | None = None, **buffers: Any) -> NewState:
        metadata = {path: data for path, data in self.files.contents.items() if path.endswith("/_metadata/metadata")}
        planned = {**metadata, SCHEMA: schema_file(self.key, self.value), "state/0/0/1.delta": b""}
        return NewState(MemoryTree(planned), operators, buffers.get("buffers", {}))

    def plan(
        self, new: NewState, keys: str | None = None, merge: dict[str, str] | None = None, **fields: str
    ) -> MigrationPlan:
        requested = RequestedFields(fields, split_expressions(keys) if keys else (), merge or {})
        return plan_migration(
            self.files,
            new,
            requested,
            computed,
            merge=aggregated,
            job="jobs.py",
            spark_version="4.2.0",
            recorded_at="2026-01-01T00:00:00.000Z",
        )

    def rows(self, at: int | None = None) -> dict[str, Any]:
        """Return the values by key, as text."""
        return {str(row["key"]): row["value"] for row in state_rows(self.files, at)}


def aggregation(**aggregates: int) -> tuple[StatefulOperator, ...]:
    sizes = tuple(map(str, aggregates.values()))
    return (StatefulOperator("aggregation", {"aggregates": tuple(aggregates), BUFFER_SIZES: sizes}),)


OLD = aggregation(count=1, max=1, sum=1)


@pytest.mark.parametrize(
    "name", [*(f"aggregation-{store}" for store in STORES), "row-checksum-hdfs", "row-checksum-format2"]
)
def test_fields_of_an_aggregation(name: str) -> None:
    """Kept, moved, dropped, cast, added and set fields have the values that they should, and an undo restores all."""
    one = Corpus(name)
    write_plan(one.files, RecordedPlan(0, OLD, "4.2.0"))
    before, everything = one.rows(), dict(one.files.contents)
    count, _, total = one.value
    one.value = [field("sum", "decimal(30,2)"), count, field("avg", "double"), field("first", "timestamp"), total]
    current = aggregation(mean=1, count=1, avg=1, first=1, sum=1)
    initial = [pa.array([{"x": None}]), None, pa.array([{"x": 0.5}]), None, None]
    plan = one.plan(
        one.new_state(current, buffers={0: initial}), sum="value.sum * 2", first="window.start", sum_2="sum"
    )
    assert [(found.name, found.origin) for found in plan.stores[0].fields] == [
        ("sum", "given"),
        ("count", "kept"),
        ("avg", "initial"),
        ("first", "given"),
        ("sum_2", "given"),
    ]
    assert [found.aggregate for found in plan.stores[0].dropped] == ["max"]
    assert plan.rows == len(before)
    plan.apply()
    after = one.rows()
    assert after.keys() == before.keys()
    for key, value in after.items():
        old = before[key]
        assert (value["count"], value["sum_2"], value["avg"]) == (old["count"], old["sum"], 0.5)
        assert value["sum"] == (None if old["sum"] is None else 2 * old["sum"])
        assert value["first"] is not None
    assert one.rows(plan.batch_id - 1) == before
    assert not [found for found in run_checks(CheckContext(one.files, 0)) if found.severity == "error"]
    assert [plan.operators for plan in read_plans(one.files)] == [OLD, current]
    plan_undo(one.files).apply()
    kept = {path: data for path, data in one.files.contents.items() if not path.startswith("_headwater/")}
    assert kept == {path: data for path, data in everything.items() if not path.startswith("_headwater/")}
    assert [plan.operators for plan in read_plans(one.files)] == [OLD]


def _upper(text: str | None) -> str | None:
    return None if text is None else text.upper()


def assert_right_partitions(files: Tree, batch: int) -> None:
    """Assert that every key is in the partition that its hash names."""
    reader = StateReader(files)
    (target,) = reader.targets(batch)
    decoder = reader.decoder(target, batch)
    encoder = RowEncoder(target, reader.settings(batch), decoder.hdfs)
    stores = reader.stores(target, batch)
    for store in stores:
        keys = decoder.keys(reader.partition(target, store).rows(batch))
        assert set(encoder.partitions(keys, len(stores)).tolist()) <= {store.partition_id}


@pytest.mark.parametrize("store", STORES)
def test_changed_keys(store: str) -> None:
    """Rows get new keys in the partitions that their hashes name, and no old key is left."""
    one = Corpus(f"aggregation-{store}")
    write_plan(one.files, RecordedPlan(0, OLD, "4.2.0"))
    before = state_rows(one.files)
    one.key = [field("customer", "string"), field("kind", "string"), one.key[0]]
    with pytest.raises(ChangeRefused, match="the key of the state does not have the fields") as refused:
        one.plan(one.new_state(OLD))
    assert (refused.value.remedy or "").startswith('--keys "SQL"')
    plan = one.plan(one.new_state(OLD), "upper(user), 'a, b', window")
    plan.apply()
    after = state_rows(one.files)
    assert sorted(str((row["key"], row["value"])) for row in after) == sorted(
        str(({"customer": _upper(row["key"]["user"]), "kind": "a, b", "window": row["key"]["window"]}, row["value"]))
        for row in before
    )
    assert_right_partitions(one.files, plan.batch_id)


def test_rows_that_fall_on_one_key_are_refused() -> None:
    """Rows with one key need a rule for each field, also if their values are equal."""
    one = Corpus("aggregation-changelog")
    one.key = [field("kind", "string")]
    with pytest.raises(ChangeRefused, match="would have the key of another row"):
        one.plan(one.new_state(OLD), "'all'")
    with pytest.raises(ChangeRefused, match="no rule for max, sum") as refused:
        one.plan(one.new_state(OLD), "'all'", {"count": "sum"})
    assert (refused.value.remedy or "").startswith("--merge max=sum --merge sum=sum")
    with pytest.raises(UsageProblem, match="has a field total"):
        one.plan(one.new_state(OLD), "'all'", {"total": "sum"})
    plan_edit(one.files, sql="update state set count = 1, max = null, sum = 1").apply()
    with pytest.raises(ChangeRefused, match="would have the key of another row"):
        one.plan(one.new_state(OLD), "'all'")
    with pytest.raises(UsageProblem, match="one expression for each field"):
        one.plan(one.new_state(OLD), "user, 'all'")


@pytest.mark.parametrize("store", STORES)
def test_rows_that_fall_on_one_key_are_merged(store: str) -> None:
    """Rows that end up with the same key get the aggregates that the user names; all others stay as they are."""
    one = Corpus(f"aggregation-{store}")
    write_plan(one.files, RecordedPlan(0, OLD, "4.2.0"))
    users: dict[Any, list[Any]] = {}
    for row in state_rows(one.files):
        users.setdefault(row["key"]["user"], []).append(row["value"])  # type: ignore[index]
    one.key = [found for found in one.key if found["name"] == "user"]
    plan = one.plan(one.new_state(OLD), "user", {"count": "sum", "max": "max", "sum": "sum(value.sum)"})
    plan.apply()
    largest = [
        max((value["max"] for value in found if value["max"] is not None), default=None) for found in users.values()
    ]
    totals = [[value["sum"] for value in found if value["sum"] is not None] for found in users.values()]
    expected = {
        user: {"count": sum(value["count"] for value in found), "max": most, "sum": sum(total) if total else None}
        for (user, found), most, total in zip(users.items(), largest, totals, strict=True)
    }
    assert {row["key"]["user"]: row["value"] for row in state_rows(one.files)} == expected  # type: ignore[index]
    merged = sum(map(len, users.values())) - len(users)
    assert merged > 0
    assert migration_as_dict(plan)["stores"][0]["merged_rows"] == merged
    assert any(f"{merged} rows merged" in line for line in migration_text(plan).lines())
    assert_right_partitions(one.files, plan.batch_id)
    assert not [found for found in run_checks(CheckContext(one.files, 0)) if found.severity == "error"]


def test_a_deduplication_may_lose_a_field_of_its_key() -> None:
    """Rows of a deduplication have no values, so those that end up with the same key become one."""
    one = Corpus("dedup-changelog")
    users = {row["key"]["user"] for row in state_rows(one.files)}  # type: ignore[index]
    one.key = one.key[:1]
    one.plan(one.new_state(()), "user").apply()
    assert {row["key"]["user"] for row in state_rows(one.files)} == users  # type: ignore[index]
    assert len(state_rows(one.files)) == len(users)


@pytest.mark.parametrize("store", ["hdfs", "changelog"])
def test_wider_keys_are_cast(store: str) -> None:
    """A key whose types become wider needs no expression; the rows are distributed by the hash of the new types."""
    one = Corpus(f"typed-keys-{store}")
    before = state_rows(one.files)
    wider = {"tiny": "integer", "whole": "long", "money": "decimal(20,4)"}
    one.key = [{**found, "type": wider.get(found["name"], found["type"])} for found in one.key]
    plan = one.plan(one.new_state(()))
    plan.apply()
    after = state_rows(one.files)
    assert sorted(str(list(row["key"].values())) for row in after) == sorted(  # type: ignore[attr-defined]
        str([_with_places(name, value) for name, value in row["key"].items()])  # type: ignore[attr-defined]
        for row in before
    )
    assert_right_partitions(one.files, plan.batch_id)


def _with_places(name: str, value: Any) -> Any:
    return value.quantize(Decimal("0.0001")) if name == "money" and value is not None else value


def test_sessions_repeat_their_key_in_the_value() -> None:
    """A changed key of a session changes its copy in the value too."""
    one = Corpus("session-changelog")
    operators = aggregation(count=1, sum=1)
    write_plan(one.files, RecordedPlan(0, operators, "4.2.0"))
    before = state_rows(one.files)
    one.key = [field("kind", "string"), *one.key]
    one.value = [one.value[0], field("kind", "string"), *one.value[1:]]
    metadata = "state/0/_metadata/metadata"
    new = one.new_state(operators)
    prefix = new.tree.read(metadata).replace(b'"numColsPrefixKey":1', b'"numColsPrefixKey":2')
    new.tree.write(metadata, prefix)
    one.plan(new, "'x', user").apply()
    after = state_rows(one.files)
    assert [row["value"]["kind"] for row in after] == ["x"] * len(before)  # type: ignore[index]
    assert {row["key"]["kind"] for row in after} == {"x"}  # type: ignore[index]
    assert sorted(str(row["value"]["session_window"]) for row in after) == sorted(  # type: ignore[index]
        str(row["value"]["session_window"])  # type: ignore[index]
        for row in before
    )


def test_refusals() -> None:
    """What cannot be done with certainty is refused by name, before anything is written."""
    one = Corpus("aggregation-hdfs")
    contents = dict(one.files.contents)
    value = list(one.value)
    with pytest.raises(ChangeRefused, match="nothing to migrate"):
        one.plan(one.new_state(OLD))
    with pytest.raises(UsageProblem, match="has a field total"):
        one.plan(one.new_state(OLD), total="1")
    one.value = [*value, field("min", "long")]
    more = aggregation(count=1, max=1, sum=1, min=1)
    with pytest.raises(ChangeRefused, match="the initial value of min is not known"):
        one.plan(one.new_state(more))
    with pytest.raises(ChangeRefused, match="the type of min cannot represent"):
        one.plan(one.new_state(more), min="'x'")
    with pytest.raises(UsageProblem, match="one value for each row"):
        one.plan(one.new_state(more), min="unnest([1, 2])")
    one.value = [*value, field("min", "long", nullable=False)]
    with pytest.raises(ChangeRefused, match="never null"):
        one.plan(one.new_state(more), min="null")
    with pytest.raises(ChangeRefused, match="cannot be described"):
        one.plan(one.new_state(None))
    assert one.files.contents == contents


def test_plan_as_text_and_json() -> None:
    """The plan names each field, shows rows before and after, and warns of what was matched by name only."""
    one = Corpus("aggregation-hdfs")
    one.value = [one.value[2], one.value[0], field("min", "long")]
    plan = one.plan(one.new_state(aggregation(sum=1, count=1, min=1), buffers={0: [None, None, pa.array([{"x": 7}])]}))
    lines = migration_text(plan).lines()
    assert lines[0] == "Migrate the state of memory: to jobs.py"
    assert "              = sum, count: kept" in lines
    assert "              + min bigint: Spark's initial value   (min)" in lines
    assert "              - max timestamp: dropped" in lines
    assert any("matched by name" in line for line in lines)
    shown = migration_as_dict(plan)
    (store,) = shown["stores"]
    assert json.loads(json.dumps(shown)) == shown
    assert {row["after"]["min"] for row in store["sample"]} == {7}
    assert shown["effects"] == [
        f"min covers only records from batch {plan.batch_id + 1} on, for the {plan.rows} keys in the state"
    ]
