"""Logs that only Spark 4.3 writes."""

from __future__ import annotations

import pytest

from corpus_support import as_memory_files
from headwater.checkpoint.logs import CheckpointLogs

PINNED = (
    "spark.sql.streaming.statefulOperator.alwaysNullableOutput.enabled",
    "spark.sql.dropDuplicates.deterministicKeyOrder.enabled",
)


@pytest.mark.parametrize(
    ("name", "commit_version", "offset_version", "is_format_two"),
    [
        ("aggregation-changelog", 1, 1, False),
        ("real-time", 2, 1, True),
        ("real-time-stateless", 2, 1, False),
        ("named", 3, 2, False),
        ("named-join4-format2", 3, 2, True),
    ],
)
def test_state_ids_decide_the_format(name: str, commit_version: int, offset_version: int, is_format_two: bool) -> None:
    """Commits of each version occur with and without ids of state files; only the ids make it checkpoint format 2."""
    logs = CheckpointLogs(as_memory_files(f"spark4.3-{name}"))
    last = logs.commits.ids[-1]
    commit, offsets = logs.commits.get(last), logs.offsets.get(last)
    assert commit is not None
    assert offsets is not None
    assert (commit.version, offsets.version) == (commit_version, offset_version)
    assert logs.is_format_two is is_format_two
    assert [sink.name for sink in commit.sinks] == (["corpus_sink"] if commit_version == 3 else [])
    assert {setting: offsets.conf[setting] for setting in PINNED} == dict.fromkeys(PINNED, "true")
