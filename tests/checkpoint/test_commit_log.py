"""Commits of versions 1, 2 and 3."""

from __future__ import annotations

import pytest

from headwater.checkpoint.log_entries import parse_commit
from headwater.core.errors import CheckpointUnreadable
from headwater.core.ids import StoreKey

IDS = b'{"nextBatchWatermarkMs":7,"stateUniqueIds":{"0":[["a0"],["a1"]],"1":[["w","x","y","z"]]}}'


@pytest.mark.parametrize(
    ("data", "watermark_ms"),
    [(b"v1", None), (b"v1\n", None), (b"v1\n{}", None), (b'v1\n{"nextBatchWatermarkMs":12}', 12)],
)
def test_version_1_since_spark_2_1(data: bytes, watermark_ms: int | None) -> None:
    """Old commits contain nothing or an empty object, later ones the next watermark."""
    entry = parse_commit(data, "commits/0")
    assert (entry.version, entry.next_watermark_ms, entry.state_unique_ids) == (1, watermark_ms, None)


def test_version_2_names_the_state_files() -> None:
    """Version 2 has an id for each operator, partition and store; a join's four stores have a fixed order."""
    entry = parse_commit(b"v2\n" + IDS, "commits/0")
    assert entry.unique_id(StoreKey(0, 1)) == "a1"
    assert entry.unique_id(StoreKey(1, 0, "left-keyToNumValues")) == "w"
    assert entry.unique_id(StoreKey(1, 0, "left-keyWithIndexToValue")) == "x"
    assert entry.unique_id(StoreKey(1, 0, "right-keyWithIndexToValue")) == "z"
    assert entry.unique_id(StoreKey(0, 2)) is None
    assert entry.unique_id(StoreKey(5, 0)) is None


def test_version_3_names_the_sinks() -> None:
    """Version 3 adds the sinks, one of which is active."""
    data = (
        b'v3\n{"nextBatchWatermarkMs":0,"sinkMetadataMap":{"old":{"sinkName":"old","commitOffset":"7","providerName":"p",'
        b'"apiVersion":"DSv1","isActive":false},"new":{"sinkName":"new","commitOffset":"-","providerName":"q",'
        b'"apiVersion":"DSv2","isActive":true}}}'
    )
    entry = parse_commit(data, "commits/0")
    assert [(sink.name, sink.is_active, sink.commit_offset) for sink in entry.sinks] == [
        ("old", False, "7"),
        ("new", True, None),
    ]
    assert entry.text.to_bytes() == data


@pytest.mark.parametrize(
    "data",
    [
        b'v2\n{"stateUniqueIds":[]}',
        b'v2\n{"stateUniqueIds":{"x":[]}}',
        b'v2\n{"stateUniqueIds":{"0":[[1]]}}',
        b'v2\n{"stateUniqueIds":{"0":7}}',
        b'v3\n{"sinkMetadataMap":{"a":1}}',
        b'v1\n{"nextBatchWatermarkMs":null}',
    ],
)
def test_unknown_forms_are_refused(data: bytes) -> None:
    """A commit in an unknown form is an error."""
    with pytest.raises(CheckpointUnreadable):
        parse_commit(data, "commits/1")
