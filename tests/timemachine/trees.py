"""Checkpoints of the corpus and file sinks as trees in memory."""

from __future__ import annotations

import json

from corpus_support import as_memory_files
from headwater.checkpoint.layout import HEADWATER_FOLDER, hadoop_crc_of
from headwater.timemachine.rewind import plan_rewind
from timemachine.crashing import Tree

Contents = dict[str, bytes]
SINK = "/out/sink"
MATRIX = (
    "aggregation-hdfs",
    "aggregation-rocksdb",
    "aggregation-changelog",
    "aggregation-format2",
    "dedup-changelog",
    "join-hdfs",
    "session-rocksdb",
    "custom-changelog",
    "custom-format2",
)


def checkpoint(name: str) -> Contents:
    return dict(as_memory_files(name).contents)


def sink(batches: int, *, first: int = 0) -> Contents:
    """Return the contents of a file sink after so many batches: two data files per batch, and the log."""
    found: Contents = {}
    for number in range(first, batches):
        names = [f"part-0000{part}-{number:04d}.json" for part in range(2)]
        lines = [
            json.dumps({"path": f"file://{SINK}/{name}", "size": 7, "modificationTime": 1000 + number, "action": "add"})
            for name in names
        ]
        found[f"_spark_metadata/{number}"] = "\n".join(["v1", *lines]).encode()
        found[hadoop_crc_of(f"_spark_metadata/{number}")] = b"crc"
        found |= {name: f"batch {number}".encode() for name in names}
    return found


def spark_files(contents: Contents) -> Contents:
    """Return all files but Headwater's own."""
    return {path: data for path, data in contents.items() if path.partition("/")[0] != HEADWATER_FOLDER}


def as_spark_sees(contents: Contents) -> Contents:
    """Return the files that Spark reads: no temporary files of Headwater, and no checksum of the query's identity.

    Spark verifies that checksum only if it exists.
    """
    return {
        path: data
        for path, data in spark_files(contents).items()
        if not path.endswith(".headwater.tmp") and path != ".metadata.crc"
    }


def rerun(contents: Contents, before: Contents, first: int, last: int) -> Contents:
    """Return a checkpoint after batches ran again with other results: the same files, with other state in them."""
    undone = _set_aside(before, first - 1)
    later = _set_aside(before, last)
    again = {path: before[path] for path in undone if path not in later}
    return contents | {path: data + b" again" if path.startswith("state/") else data for path, data in again.items()}


def _set_aside(contents: Contents, to: int) -> list[str]:
    return [path for path in plan_rewind(Tree(contents), to=to).set_aside if path in contents]
