"""Plans of forks, without Spark."""

from __future__ import annotations

import json

import pytest

from corpus_support import as_memory_files
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.operator_metadata import parse_operator_metadata
from headwater.timemachine.fork import carry_out_fork, plan_fork


@pytest.mark.parametrize(
    ("spoken", "location", "expected"),
    [
        ("s3a://bucket/original", "s3://bucket/fork", "s3a://bucket/fork"),
        ("gs://bucket/original", "gs://bucket/fork", "gs://bucket/fork"),
        ("file:/data/original", "s3://bucket/fork", "s3://bucket/fork"),
    ],
)
def test_schema_files_of_custom_state_are_the_forks_own(tmp_path, spoken: str, location: str, expected: str) -> None:
    """Operator metadata names them by absolute paths, and in the scheme that Spark reads them with."""
    origin = as_memory_files("custom-changelog")
    for path, data in list(origin.contents.items()):
        if path.startswith("state/0/_metadata/v2/") and "/." not in path:
            origin.contents[path] = _moved(data, spoken)
    into = MemoryTree()
    into.location = location  # type: ignore[misc]
    carry_out_fork(plan_fork(origin, into, at=4), into)
    for path, data in into.contents.items():
        if path.startswith("state/0/_metadata/v2/"):
            for store in parse_operator_metadata(data, path).stores:
                for schema in store.schema_paths:
                    assert schema.startswith(f"{expected}/state/0/_stateSchema/")
                    assert schema.removeprefix(f"{expected}/") in into.contents


def _moved(data: bytes, root: str) -> bytes:
    version, _, body = data.decode().partition("\n")
    told = json.loads(body)
    for store in told["stateStoreInfo"]:
        paths = store["stateSchemaFilePaths"]
        store["stateSchemaFilePaths"] = [f"{root}{path[path.index('/state/') :]}" for path in paths]
    return f"{version}\n{json.dumps(told)}".encode()
