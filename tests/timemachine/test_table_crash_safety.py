"""A change to a checkpoint and its table can be interrupted at any moment: both end up old, or both new."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from headwater.checkpoint.layout import METADATA
from headwater.core.errors import ChangeRefused
from headwater.lakehouse.delta_actions import commit_path
from headwater.lakehouse.delta_log import DeltaLog
from headwater.lakehouse.delta_table import DeltaTable
from headwater.lakehouse.iceberg_catalog import VERSION_HINT, HadoopTable
from headwater.lakehouse.iceberg_metadata import TableMetadata
from headwater.lakehouse.iceberg_table import IcebergTable
from headwater.lakehouse.tables import RewindableTable
from headwater.timemachine.change import Change
from headwater.timemachine.executor import Executor, guard_notice
from headwater.timemachine.journal import read_pending
from headwater.timemachine.rewind import plan_rewind
from headwater.timemachine.undo import plan_undo
from timemachine.crashing import Crashed, CrashingDisk, CrashingObjectStore, CrashSchedule, Tree, sampled_points
from timemachine.trees import Contents, as_spark_sees, checkpoint, rerun, spark_files

TABLE = "/out/table"
BATCHES = 10
Media = type[CrashingDisk]
Action = Callable[[Executor], Any]
QUERY_ID, EPOCH_ID = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"


def _commit(version: int, *actions: dict[str, Any]) -> Contents:
    info = {"commitInfo": {"operation": "STREAMING UPDATE", "timestamp": version}}
    return {commit_path(version): "".join(json.dumps(action) + "\n" for action in (info, *actions)).encode()}


def table(query_id: str, batches: int = BATCHES, *, first: int = 0, version: int = 0) -> Contents:
    """Return a table after some batches, each of which adds a file and a row."""
    found: Contents = {}
    for batch in range(first, batches):
        name = f"part-{version + batch:05d}.parquet"
        found[name] = b"rows"
        start = [] if version + batch else [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, _METADATA]
        add = {"path": name, "partitionValues": {}, "size": 4, "modificationTime": batch, "dataChange": True}
        txn = {"txn": {"appId": query_id, "version": batch, "lastUpdated": batch}}
        found |= _commit(version + batch, *start, txn, {"add": {**add, "stats": '{"numRecords":1}'}})
    return found


_METADATA = {"metaData": {"id": "t", "format": {"provider": "parquet"}, "schemaString": "{}", "partitionColumns": []}}


@dataclass(frozen=True)
class Pair:
    """A checkpoint and its Delta table."""

    checkpoint: Contents
    table: Contents

    @property
    def sparks(self) -> tuple[Contents, Any]:
        return spark_files(self.checkpoint), self.contents

    @property
    def seen(self) -> tuple[Contents, Any]:
        return as_spark_sees(self.checkpoint), self.contents

    @property
    def contents(self) -> tuple[frozenset[Any], dict[str, int]]:
        """What a reader of the table sees and what a query compares with; taking back adds a version."""
        log = DeltaLog(Tree(self.table))
        snapshot = log.snapshot(log.head)
        return frozenset(snapshot.files), snapshot.transactions

    @property
    def head(self) -> int:
        return DeltaLog(Tree(self.table)).head

    def opened(self, folder: Tree) -> RewindableTable:
        return DeltaTable(folder, f"delta:{TABLE}")

    def ran_again(self, checkpoint: Contents, query_id: str) -> Pair:
        """Return the pair after batches 5 to 7 have run again: versions 0 to 9 and the rewind's 10 are there."""
        return Pair(checkpoint, self.table | table(query_id, 8, first=5, version=6))

    def inserted(self) -> Pair:
        """Return the pair after another program has committed to the table."""
        theirs = {"path": "theirs.parquet", "partitionValues": {}, "size": 1, "dataChange": True}
        return replace(self, table=self.table | _commit(self.head + 1, {"add": theirs}))

    def executor(self, medium: Media, schedule: CrashSchedule) -> tuple[Executor, CrashingDisk, CrashingDisk]:
        files, folder = medium(self.checkpoint, schedule), medium(self.table, schedule, TABLE)
        return Executor({"checkpoint": files}, table=self.opened(folder)), files, folder


@dataclass(frozen=True)
class IcebergPair(Pair):
    """A checkpoint and its Iceberg table, of which there is only metadata."""

    @property
    def metadata(self) -> TableMetadata:
        found = HadoopTable(Tree(self.table)).load()
        assert found is not None
        return found

    @property
    def contents(self) -> Any:
        found = self.metadata
        return found.head, json.dumps(found.refs, sort_keys=True), dict(found.properties)

    @property
    def head(self) -> Any:
        return self.metadata.head

    def opened(self, folder: Tree) -> RewindableTable:
        return IcebergTable(HadoopTable(folder), "iceberg:lake.shop.sales", "iceberg:lake.shop.sales")

    def ran_again(self, checkpoint: Contents, query_id: str) -> Pair:
        summaries = [{"operation": "append", QUERY_ID: query_id, EPOCH_ID: str(batch)} for batch in range(5, 8)]
        return IcebergPair(checkpoint, self._with(*summaries))

    def inserted(self) -> Pair:
        return replace(self, table=self._with({"operation": "append"}))

    def _with(self, *summaries: dict[str, str]) -> Contents:
        found = self.metadata
        return self.table | iceberg_metadata(found.value, *summaries, version=len(self.table))


def iceberg_metadata(base: Mapping[str, Any], *summaries: dict[str, str], version: int) -> Contents:
    """Return a further version of the metadata of a table, with snapshots after its current one."""
    snapshots, head = [*base["snapshots"]], TableMetadata(base, "").head
    for summary in summaries:
        number = 100 + len(snapshots)
        snapshots.append({"snapshot-id": number, "parent-snapshot-id": head, "summary": summary, "manifests": []})
        head = number
    main = {"main": {"snapshot-id": head, "type": "branch"}}
    value = {**base, "snapshots": snapshots, "current-snapshot-id": head, "refs": {**base["refs"], **main}}
    return {f"metadata/v{version}.metadata.json": json.dumps(value).encode(), VERSION_HINT: str(version).encode()}


def iceberg_table(query_id: str) -> Contents:
    """Return a table after some batches."""
    first = {"operation": "append", "total-data-files": "0", QUERY_ID: query_id, EPOCH_ID: "0"}
    rest = [{"operation": "append", QUERY_ID: query_id, EPOCH_ID: str(batch)} for batch in range(1, BATCHES)]
    base = {"format-version": 2, "table-uuid": "t", "location": TABLE, "snapshots": [], "refs": {}, "properties": {}}
    return iceberg_metadata(base, first, *rest, version=1)


KINDS = [pytest.param(Pair, id="delta"), pytest.param(IcebergPair, id="iceberg")]


@dataclass(frozen=True)
class Verb:
    """A change to a pair, and the pair before and after it."""

    before: Pair
    change: Change
    after: Pair

    @classmethod
    def of(cls, before: Pair, change: Change) -> Verb:
        return cls(before, change, _run(before, CrashingDisk, lambda executor: executor.apply(change))[0])


def _run(pair: Pair, medium: Media, action: Action, crash_at: int | None = None) -> tuple[Pair, int]:
    schedule = CrashSchedule(crash_at)
    executor, files, folder = pair.executor(medium, schedule)
    with contextlib.suppress(Crashed):
        action(executor)
    return replace(pair, checkpoint=files.contents, table=folder.contents), schedule.passed


def _verbs(name: str, kind: type[Pair] = Pair) -> Iterator[tuple[str, Verb]]:
    query_id = json.loads(checkpoint(name)[METADATA])["id"]
    start = kind(checkpoint(name), (table if kind is Pair else iceberg_table)(query_id))

    def trees(pair: Pair) -> tuple[Tree, RewindableTable]:
        return Tree(pair.checkpoint), pair.opened(Tree(pair.table, TABLE))

    files, folder = trees(start)
    kept = Verb.of(start, plan_rewind(files, to=4, table=folder).change)
    yield "rewind", kept
    yield "rewind --redo 0", Verb.of(start, plan_rewind(files, to=None, table=folder).change)
    files, folder = trees(kept.after)
    yield "undo", Verb.of(kept.after, plan_undo(files, table=folder).change)
    ran = kept.after.ran_again(rerun(kept.after.checkpoint, start.checkpoint, 5, 7), query_id)
    files, folder = trees(ran)
    yield "undo --drop-newer", Verb.of(ran, plan_undo(files, table=folder, drop_newer=True).change)


def _points(medium: Media, start: Pair, action: Action, *, every: int = 1) -> Iterator[Pair]:
    complete, count = _run(start, medium, action)
    for number in sampled_points(count, every):
        yield _run(start, medium, action, number)[0]
    yield complete


def _check_point(verb: Verb, medium: Media, crashed: Pair) -> None:
    pending = read_pending(Tree(crashed.checkpoint))
    guarded = crashed.checkpoint.get(METADATA) == guard_notice(verb.change)
    if not guarded:
        assert crashed.seen in (verb.before.seen, verb.after.seen)
    if not pending:
        return
    if not guarded and not pending.all_done and crashed.head != verb.before.head:
        # An abort has taken back the table and everything else; only pending.json is left.
        with pytest.raises(ChangeRefused, match="has changed since"):
            _run(crashed, medium, Executor.resume)
    else:
        finished, _ = _run(crashed, medium, Executor.resume)
        assert finished.sparks == verb.after.sparks
        assert read_pending(Tree(finished.checkpoint)) is None
    if pending.all_done and not guarded:
        with pytest.raises(ChangeRefused, match="all steps of the interrupted"):
            _run(crashed, medium, Executor.abort)
        return
    rolled_back, _ = _run(crashed, medium, Executor.abort)
    assert rolled_back.sparks == verb.before.sparks
    assert read_pending(Tree(rolled_back.checkpoint)) is None


def _check_verb(verb: Verb, medium: Media, *, every: int = 1) -> int:
    count = 0
    for crashed in _points(medium, verb.before, lambda executor: executor.apply(verb.change), every=every):
        _check_point(verb, medium, crashed)
        count += 1
    return count


def _check_finishing(verb: Verb, medium: Media, *, every: int) -> int:
    """Check the points of ``resume`` and ``abort`` after a crash around the table's commit, and at some other points."""
    count = 0
    crashes = list(_points(medium, verb.before, lambda executor: executor.apply(verb.change)))
    commit = next(number for number, crashed in enumerate(crashes) if crashed.contents != verb.before.contents)
    for number, crashed in enumerate(crashes):
        pending = read_pending(Tree(crashed.checkpoint))
        if pending is None or pending.all_done or (number % every and abs(number - commit) > 1):
            continue
        for action in (Executor.resume, Executor.abort):
            for twice in _points(medium, crashed, action):
                _check_point(verb, medium, twice)
                count += 1
    return count


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("medium", "every"), [(CrashingDisk, 5), (CrashingObjectStore, 5)])
def test_every_point_of_every_change(medium: Media, every: int, kind: type[Pair]) -> None:
    """At each point checkpoint and table are both old or both new, or Spark refuses; resume and abort end it."""
    points = 0
    for _, verb in _verbs("aggregation-hdfs", kind):
        assert verb.before.contents != verb.after.contents
        points += _check_verb(verb, medium, every=every)
    print(f"a table on {medium.__name__.lower()}: {points} points")
    assert points > 100


@pytest.mark.parametrize("kind", KINDS)
def test_resume_and_abort_can_be_interrupted_too(kind: type[Pair]) -> None:
    """A crash while a rewind or an undo is resumed or rolled back is handled like any other."""
    verbs = dict(_verbs("aggregation-hdfs", kind))
    assert sum(_check_finishing(verbs[name], CrashingDisk, every=1000) for name in ("rewind", "undo")) > 100


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("medium", [CrashingDisk, CrashingObjectStore])
@pytest.mark.parametrize("name", ["aggregation-hdfs", "custom-format2"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_point_over_the_matrix(name: str, medium: Media, kind: type[Pair]) -> None:
    """All points of all changes, with resume and abort at many of them."""
    points = 0
    for _, verb in _verbs(name, kind):
        points += _check_verb(verb, medium) + _check_finishing(verb, medium, every=67)
    print(f"{name} and a table on {medium.__name__.lower()}: {points} points")


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_of_another_program_is_never_overwritten(kind: type[Pair]) -> None:
    """If another program commits in between, the change stops, and abort restores the checkpoint."""
    verb = dict(_verbs("aggregation-hdfs", kind))["rewind"]
    crashed, _ = _run(verb.before, CrashingDisk, lambda executor: executor.apply(verb.change), 60)
    assert read_pending(Tree(crashed.checkpoint)) is not None
    met = crashed.inserted()
    with pytest.raises(ChangeRefused, match="another program has committed"):
        _run(met, CrashingDisk, Executor.resume)
    rolled_back, _ = _run(met, CrashingDisk, Executor.abort)
    assert spark_files(rolled_back.checkpoint) == spark_files(verb.before.checkpoint)
    assert rolled_back.table == met.table


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_before_the_guard_makes_the_plan_stale(kind: type[Pair]) -> None:
    """A plan is refused if the table has changed since it was made."""
    verb = dict(_verbs("aggregation-hdfs", kind))["rewind"]
    met = verb.before.inserted()
    with pytest.raises(ChangeRefused, match="has changed since") as refusal:
        _run(met, CrashingDisk, lambda executor: executor.apply(verb.change))
    assert refusal.value.code == "plan-stale"
