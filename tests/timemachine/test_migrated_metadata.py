"""Batches before a migration keep their own schema: for readers, rewinds, forks and restore points."""

from __future__ import annotations

import pytest

from headwater.checkpoint.history import History
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.migrated import FOLDER
from headwater.core.errors import UsageProblem
from headwater.core.ids import ANY_STORE
from headwater.statefiles.reader import StateReader, state_rows
from headwater.statefiles.stores import select_one
from headwater.timemachine.diff import diff
from headwater.timemachine.extra_batch import plan_extra_batch
from headwater.timemachine.fork import plan_fork
from headwater.timemachine.keep import make_point
from headwater.timemachine.key_history import key_history
from headwater.timemachine.restore import plan_restore
from headwater.timemachine.rewind import plan_rewind
from headwater.timemachine.undo import plan_undo
from timemachine.crashing import Tree
from timemachine.test_crash_safety import new_layout
from timemachine.trees import checkpoint, spark_files

SCHEMA = "state/0/0/_metadata/schema"


def migrated(files: Tree) -> int:
    """Rename a field of the state, which changes the schema file and no row. Return the batch that does it."""
    data = files.read(SCHEMA).replace(b'"name":"count"', b'"name":"total"')
    assert data != files.read(SCHEMA)
    batch = plan_extra_batch(History(files), {}, verb="migrate", about="a migration", metadata={SCHEMA: data})
    batch.apply(files, None)
    return batch.batch_id


@pytest.fixture
def files() -> Tree:
    return Tree(checkpoint("aggregation-hdfs"))


def names(files: Tree, batch: int) -> list[str]:
    (target,) = StateReader(files).targets(batch)
    return target.schema.value.names


def test_earlier_batches_are_read_with_their_schema(files: Tree) -> None:
    """Each batch is read with the schema that it was written with, also after several migrations."""
    before = state_rows(files, 9)
    first = migrated(files)
    renamed = files.read(SCHEMA).replace(b'"name":"max"', b'"name":"top"')
    second = plan_extra_batch(History(files), {}, verb="migrate", about="another", metadata={SCHEMA: renamed})
    second.apply(files, None)
    assert [names(files, batch) for batch in (9, first, second.batch_id)] == [
        ["count", "max", "sum"],
        ["total", "max", "sum"],
        ["total", "top", "sum"],
    ]
    assert state_rows(files, 9) == before


def test_a_rewind_brings_the_old_schema_back(files: Tree) -> None:
    """A rewind across a migration restores the schema file, and an undo of it the migrated one."""
    old = files.read(SCHEMA)
    batch = migrated(files)
    new, everything = files.read(SCHEMA), dict(files.contents)
    plan_rewind(files, to=8).apply()
    assert files.read(SCHEMA) == old
    assert CheckpointLogs(files).former.paths == {}
    plan_undo(files).apply()
    assert files.read(SCHEMA) == new
    assert names(files, batch - 1) == ["count", "max", "sum"]
    assert spark_files(files.contents) == spark_files(everything)
    plan_undo(files).apply()
    assert files.read(SCHEMA) == old
    assert not any(path.startswith(FOLDER) for path in files.contents)


def test_a_rewind_to_the_migration_keeps_it(files: Tree) -> None:
    """A rewind that does not cross the migration leaves schemas as they are."""
    batch = migrated(files)
    new = files.read(SCHEMA)
    plan_extra_batch(History(files), {}, verb="edit", about="an edit").apply(files, None)
    plan_rewind(files, to=batch).apply()
    assert files.read(SCHEMA) == new
    assert names(files, 9) == ["count", "max", "sum"]


def test_a_fork_has_the_schema_of_its_batch(files: Tree) -> None:
    """A fork before the migration has the old schema; one after it can still be rewound across it."""
    old = files.read(SCHEMA)
    batch = migrated(files)
    earlier, later = Tree({}, "memory:earlier"), Tree({}, "memory:later")
    plan_fork(files, earlier, at=8).apply()
    assert earlier.read(SCHEMA) == old
    assert CheckpointLogs(earlier).former.paths == {}
    plan_fork(files, later, at=batch).apply()
    assert later.read(SCHEMA) == files.read(SCHEMA)
    plan_rewind(later, to=8).apply()
    assert later.read(SCHEMA) == old


def test_a_restore_point_has_the_schema_of_its_batch(files: Tree) -> None:
    """Restore points on both sides of a migration, made before and after it, bring their own schema back."""
    old = files.read(SCHEMA)
    before = make_point(files, "before", at="8")
    batch = migrated(files)
    new = files.read(SCHEMA)
    points = {before: old, make_point(files, "earlier", at="7"): old, make_point(files, "after"): new}
    for point, schema in points.items():
        plan_restore(files, point).apply()
        assert files.read(SCHEMA) == schema, point.name
        assert (batch in CheckpointLogs(files).former.paths) == (schema == new)
        plan_undo(files).apply()
        assert files.read(SCHEMA) == new
        assert batch in CheckpointLogs(files).former.paths


def test_comparisons_do_not_mix_schemas(files: Tree) -> None:
    """A diff across a migration is refused, and a key's history begins with it."""
    batch = migrated(files)
    reader = StateReader(files)
    target = select_one(reader.targets(batch), ANY_STORE)
    with pytest.raises(UsageProblem, match="has different fields after batch") as refused:
        diff(reader, target, 9, batch)
    assert refused.value.evidence["migrated in batch"] == str(batch)
    user = state_rows(files)[0]["key"]["user"]  # type: ignore[index]
    assert set(key_history(reader, target, {"user": user}).batch_id.to_pylist()) == {batch}


def test_leftover_state_is_set_aside_once() -> None:
    """A migration that moves operators sets all their files aside, also those that a killed batch has left."""
    files = Tree(checkpoint("aggregation-changelog"))
    files.contents["state/0/0/11.changelog"] = b"left by a kill"
    layout = new_layout(History(files))
    plan_extra_batch(History(files), {}, verb="migrate", about="m", layout=layout).apply(files, None)
    assert not files.exists("state/0/0/11.changelog")
