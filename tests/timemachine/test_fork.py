"""Forks, without Spark."""

from __future__ import annotations

import contextlib
import json

import pytest

from corpus_support import as_memory_files
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.object_tree import ObjectTree
from headwater.checkpoint.operator_metadata import parse_operator_metadata
from headwater.checkpoint.plan_record import RecordedPlan, StatefulOperator, read_plans, write_plan
from headwater.timemachine.fork import plan_fork
from headwater.timemachine.keep import make_point
from timemachine.crashing import Crashed, CrashingDisk, CrashingObjectStore, CrashSchedule
from timemachine.trees import checkpoint


class S3Tree(MemoryTree):
    """A tree in memory that Spark would know as a prefix in an S3 bucket."""

    location = "s3://bucket/fork"

    def spark_uri(self, path: str = "", *, like: str | None = None) -> str:
        return ObjectTree(self.location).spark_uri(path, like=like)


@pytest.mark.parametrize(
    ("original", "expected"),
    [
        ("s3a://bucket/original", "s3a://bucket/fork"),
        ("s3://bucket/original", "s3://bucket/fork"),
        ("file:/data/original", "s3a://bucket/fork"),
        ("s3a://bucket/state/0/original", "s3a://bucket/fork"),
    ],
)
def test_operator_metadata_refers_to_schema_files_of_the_fork(original: str, expected: str) -> None:
    """The absolute paths of schema files lead into the fork, with the scheme that the original uses."""
    origin = as_memory_files("custom-changelog")
    for path, data in list(origin.contents.items()):
        if path.startswith("state/0/_metadata/v2/") and "/." not in path:
            origin.contents[path] = _moved(data, original)
    into = S3Tree()
    plan_fork(origin, into, at=4).apply()
    checked = 0
    for path, data in into.contents.items():
        if path.startswith("state/0/_metadata/v2/"):
            for store in parse_operator_metadata(data, path).stores:
                for schema in store.schema_paths:
                    assert schema.startswith(f"{expected}/state/0/_stateSchema/")
                    assert schema.removeprefix(f"{expected}/") in into.contents
                    checked += 1
    assert checked


def _moved(data: bytes, root: str) -> bytes:
    version, _, body = data.decode().partition("\n")
    metadata = json.loads(body)
    for store in metadata["stateStoreInfo"]:
        paths = store["stateSchemaFilePaths"]
        store["stateSchemaFilePaths"] = [f"{root}{path[path.index('/state/') :]}" for path in paths]
    return f"{version}\n{json.dumps(metadata)}".encode()


def test_a_fork_knows_what_its_state_means() -> None:
    """The recorded plans of batches that the fork has, so that changed code is refused there too."""
    origin, into = as_memory_files("aggregation-changelog"), MemoryTree()
    old, new = (RecordedPlan(since, (StatefulOperator(kind),)) for since, kind in ((0, "old"), (4, "new")))
    for plan in (old, new):
        write_plan(origin, plan)
    plan_fork(origin, into, at=3).apply()
    assert read_plans(into) == (old,)
    later = MemoryTree()
    plan_fork(origin, later, at=4).apply()
    assert read_plans(later) == (old, new)
    point = make_point(origin, at="4")
    kept = read_plans(MemoryTree({"_headwater/plans.json": origin.read(f"{point.place}/_headwater/plans.json")}))
    assert kept == (old, new)


@pytest.mark.parametrize("medium", [CrashingDisk, CrashingObjectStore])
@pytest.mark.parametrize("name", ["aggregation-hdfs", pytest.param("custom-format2", marks=pytest.mark.slow)])
def test_an_interrupted_fork_is_complete_or_does_not_start(name: str, medium: type[CrashingDisk]) -> None:
    """At each point the fork is complete or has no identity that Spark accepts, and the original is as it was."""
    origin = MemoryTree(checkpoint(name))
    whole = medium({}, CrashSchedule(), "/fork")
    plan_fork(origin, whole, at=4).apply()
    points = whole.schedule.passed
    complete = 0
    for number in range(points):
        fork = medium({}, CrashSchedule(number), "/fork")
        with contextlib.suppress(Crashed):
            plan_fork(origin, fork, at=4).apply()
        assert origin.contents == checkpoint(name)
        if fork.contents.get("metadata", b"").startswith(b"{"):
            complete += 1
            assert fork.contents.keys() - {".metadata.headwater.tmp"} == whole.contents.keys(), number
    print(f"fork of {name} on {medium.__name__.lower()}: {points} points")
    assert 0 < complete < 5
