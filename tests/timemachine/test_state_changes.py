"""diff, history and bisect, compared with complete states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from corpus_support import CorpusCheckpoint, as_memory_files
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.core.errors import UsageProblem
from headwater.spark.state_source import StateSource
from headwater.statefiles.answer import StateAnswer
from headwater.statefiles.key_lookup import with_key_fields
from headwater.statefiles.reader import StateReader
from headwater.statefiles.sqltypes import Atomic
from headwater.statefiles.stores import StateTarget
from headwater.timemachine.bisect import binary_search, first_by_changes
from headwater.timemachine.diff import diff, diff_of_answers
from headwater.timemachine.key_history import key_history

Corpus = Callable[[str], CorpusCheckpoint]
Rows = dict[str, Any]

STORES = ["aggregation-hdfs", "aggregation-changelog", "aggregation-rocksdb", "session-format2", "join-changelog"]
CUSTOM = ["custom-changelog", "custom-rocksdb", "custom-format2", "custom-ttl"]


def shown(reader: StateReader) -> list[StateTarget]:
    return [target for target in reader.targets(reader.latest()) if target.kind not in ("hidden", "side")]


def by_key(answer: StateAnswer) -> Rows:
    """Return values by key; the elements of a list are one value, the entries of a map are separate."""
    found: Rows = {}
    for row in answer.rows():
        value = row["value"]
        assert isinstance(value, dict)
        key = repr((row["key"], value.get("user_map_key"), value.get("expiration_timestamp_ms")))
        if "list_element" in value:
            found.setdefault(key, {"list_value": []})["list_value"].append(value["list_element"])
        else:
            found[key] = value
    return found


@pytest.mark.parametrize("name", STORES + CUSTOM)
def test_diff_is_the_difference_of_complete_states(name: str, corpus: Corpus) -> None:
    """Whichever files it reads, a diff equals the difference of two complete states, forwards and backwards."""
    reader = StateReader(LocalTree(corpus(name).path))
    batches = reader.committed
    pairs = [(batches[1], batches[2]), (batches[0], batches[-1]), (batches[-1], batches[2])]
    for a, b in pairs:
        for target in shown(reader):
            before, after = by_key(reader.answer(target, a)), by_key(reader.answer(target, b))
            expected = {
                key: (before.get(key), after.get(key))
                for key in before.keys() | after.keys()
                if before.get(key) != after.get(key)
            }
            found = diff(reader, target, a, b)
            values = list(zip(found.before.to_pylist(), found.after.to_pylist(), strict=True))
            keys = [
                repr((key, held.get("user_map_key"), held.get("expiration_timestamp_ms")))
                for key, held in zip(found.key.to_pylist(), (new or old for old, new in values), strict=True)
            ]
            assert dict(zip(keys, values, strict=True)) == expected
            changes = {
                (old is not None, new is not None): change
                for (old, new), change in zip(values, found.change.to_pylist(), strict=True)
            }
            assert (
                changes.items() <= {(False, True): "added", (True, False): "removed", (True, True): "changed"}.items()
            )


@pytest.mark.parametrize("name", ["aggregation-changelog", "custom-changelog"])
def test_diff_of_answers_agrees(name: str, corpus: Corpus) -> None:
    """The diff of two states from another reader has the same keys as the native one."""
    reader = StateReader(LocalTree(corpus(name).path))
    a, b = reader.committed[1], reader.committed[-1]
    for target in shown(reader):
        ours = diff(reader, target, a, b)
        theirs = diff_of_answers(reader.answer(target, a), reader.answer(target, b))
        assert sorted(map(repr, ours.key.to_pylist())) == sorted(map(repr, theirs.key.to_pylist()))
        assert sorted(ours.change.to_pylist()) == sorted(theirs.change.to_pylist())


class CountedFiles(MemoryTree):
    """A tree that records which files were read."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        super().__init__(contents)
        self.reads: list[str] = []

    def read(self, path: str) -> bytes:
        self.reads.append(path)
        return super().read(path)

    def state_reads(self) -> list[str]:
        return [path for path in self.reads if path.endswith((".changelog", ".delta", ".snapshot", ".sst"))]


@pytest.mark.parametrize("name", ["aggregation-changelog", "aggregation-rocksdb", "aggregation-hdfs"])
def test_history_reads_each_file_once(name: str) -> None:
    """A key's history reads no state file twice, however many batches there are."""
    files = CountedFiles(as_memory_files(name).contents)
    reader = StateReader(files)
    (target,) = shown(reader)
    field = next(field.name for field in target.schema.key.fields if field.type == Atomic("string"))
    value = reader.answer(target, reader.committed[2]).rows()[0]["key"][field]  # type: ignore[index]
    files.reads.clear()
    found = key_history(reader, target, {field: str(value)})
    assert len(set(found.batch_id.to_pylist())) == len(reader.readable())
    assert len(files.state_reads()) == len(set(files.state_reads()))


@pytest.mark.parametrize("name", [*STORES[:4], *CUSTOM])
def test_history_equals_that_of_complete_states(name: str, corpus: Corpus) -> None:
    """For every batch, a key's history has the rows that the complete state has for it."""
    reader = StateReader(LocalTree(corpus(name).path))
    compared = 0
    for target in shown(reader):
        states = {batch: reader.answer(target, batch) for batch in reader.committed}
        key_type = states[reader.latest()].key_type
        field = next((field.name for field in key_type.fields if field.type == Atomic("string")), None)
        if field is None:
            continue
        values = {row["key"][field] for state in states.values() for row in state.rows()} - {None}  # type: ignore[index]
        for value in sorted(values)[:2]:
            found = key_history(reader, target, {field: value})
            history = zip(found.batch_id.to_pylist(), found.key.to_pylist(), found.value.to_pylist(), strict=True)
            ours = sorted(repr((batch, key, part)) for batch, key, held in history for part in _parts(held))
            complete = [
                repr((batch, row["key"], row["value"]))
                for batch, state in states.items()
                for row in state.rows()
                if row["key"][field] == value  # type: ignore[index]
            ]
            assert ours == sorted(complete)
            compared += len(complete)
    assert compared


def _parts(value: Rows | None) -> list[Rows]:
    if value is None:
        return []
    return [{"list_element": element} for element in value["list_value"]] if "list_value" in value else [value]


def test_history_by_a_field_inside_another(corpus: Corpus) -> None:
    """The start of a window selects the window, and a value that is not a time is refused."""
    reader = StateReader(LocalTree(corpus("aggregation-changelog").path))
    (target,) = shown(reader)
    start = reader.answer(target, reader.latest()).rows()[0]["key"]["window"]["start"]  # type: ignore[index]
    found = key_history(reader, target, {"window.start": start.isoformat()})
    assert {key["window"]["start"] for key in found.key.to_pylist()} == {start}
    with pytest.raises(UsageProblem, match="not a valid value for"):
        key_history(reader, target, {"window.start": "noon"})


def test_history_of_a_field_that_no_key_has(corpus: Corpus) -> None:
    """The error for an unknown field lists the fields of the key."""
    reader = StateReader(LocalTree(corpus("aggregation-changelog").path))
    with pytest.raises(UsageProblem) as refused:
        with_key_fields(shown(reader), {"nope": "1"})
    assert "window.start" in refused.value.evidence["key fields"]


@pytest.mark.parametrize(
    "name", ["aggregation-hdfs", "aggregation-changelog", "aggregation-rocksdb", "custom-changelog"]
)
def test_bisect_finds_the_first_batch(name: str, corpus: Corpus) -> None:
    """For every row that ever exists, bisect finds the first batch whose complete state has it."""
    reader = StateReader(LocalTree(corpus(name).path))
    batches = list(reader.committed)
    target = shown(reader)[-1]
    states = {batch: set(map(repr, reader.answer(target, batch).rows())) for batch in batches}
    for row in sorted(set().union(*states.values()))[:5]:
        expected = next(batch for batch in batches if row in states[batch])
        found = first_by_changes(reader, target, batches, lambda answer, row=row: row in map(repr, answer.rows()))  # type: ignore[misc]
        assert found.first_batch == expected
        assert found.tested == tuple(batches[: batches.index(expected) + 1])


@pytest.mark.parametrize("first", [0, 1, 5, 11])
def test_binary_search_tests_few_batches(first: int) -> None:
    """A condition that stays true is found by testing few batches."""
    found = binary_search(range(12), lambda batch: batch >= first)
    assert found.first_batch == first
    assert len(found.tested) <= 5


def test_binary_search_of_a_condition_that_does_not_stay_true() -> None:
    """If a condition does not hold after the last batch, all batches are tested from the first."""
    assert binary_search(range(12), lambda batch: batch in (3, 4)).first_batch == 3
    assert binary_search(range(12), lambda batch: False).first_batch is None


def test_diff_as_one_table(corpus: Corpus) -> None:
    """A diff can be read as one Arrow table."""
    files = LocalTree(corpus("aggregation-changelog").path)
    (found,) = StateSource(files).diffs(0, 3)
    table = found.table
    assert table.column_names == ["change", "key", "before", "after", "partition_id"]
    assert set(table["change"].to_pylist()) <= {"added", "removed", "changed"}
