"""Offsets in all forms that Spark has written."""

from __future__ import annotations

import pytest

from headwater.checkpoint.log_entries import SourceOffset, parse_offsets
from headwater.core.errors import CheckpointUnreadable

VERSION_1 = (
    b'v1\n{"batchWatermarkMs":5,"batchTimestampMs":7,"conf":{"spark.sql.shuffle.partitions":"3","x":"y"}}\n'
    b'{"visits":{"0":1}}\n-\n12'
)
VERSION_2 = (
    b'v2\n{"batchWatermarkMs":0,"batchTimestampMs":9,"conf":{},"sourceMetadataInfo":{"events":{"sourceId":"events",'
    b'"providerName":"kinesis","apiVersion":"DSv2"}}}\nevents:{"a:b":1}\nlate:-'
)


def test_version_1() -> None:
    """Version 1 has a line for each source, with a dash if the source has no offset yet."""
    entry = parse_offsets(VERSION_1, "offsets/4")
    assert (entry.watermark_ms, entry.timestamp_ms, entry.shuffle_partitions) == (5, 7, 3)
    assert entry.sources == (
        SourceOffset("0", '{"visits":{"0":1}}'),
        SourceOffset("1", None),
        SourceOffset("2", "12"),
    )


def test_version_2_names_its_sources() -> None:
    """Version 2 has the name of each source, and its provider if recorded."""
    entry = parse_offsets(VERSION_2, "offsets/4")
    assert entry.sources == (SourceOffset("events", '{"a:b":1}', "kinesis"), SourceOffset("late", None))
    assert entry.shuffle_partitions is None


@pytest.mark.parametrize(
    ("data", "watermark_ms"), [(b"v1\n\n0", None), (b'v1\n{"batchWatermarkMs":3,"batchTimestampMs":1}\n0', 3)]
)
def test_spark_2_1(data: bytes, watermark_ms: int | None) -> None:
    """Spark 2.1 wrote no configuration, and its first release no metadata at all."""
    entry = parse_offsets(data, "offsets/0")
    assert (entry.watermark_ms, dict(entry.conf)) == (watermark_ms, {})
    assert entry.sources == (SourceOffset("0", "0"),)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty-file"),
        (b"\0\0\0\0", "torn-file"),
        (b"v1", "torn-file"),
        (b'v1\n{"batchWatermarkMs":5,"batchTi', "torn-file"),
        (b"x1\n{}\n1", "bad-version"),
        (b"v0\n{}\n1", "bad-version"),
        (b"v9\n{}\n1", "newer-version"),
        (b"v1\n{]}\n1", "bad-json"),
        (b"v1\n[1]\n1", "bad-json"),
        (b'v1\n{"batchWatermarkMs":"five"}\n1', "bad-json"),
        (b'v1\n{"batchWatermarkMs":true}\n1', "bad-json"),
        (b'v1\n{"conf":[]}\n1', "bad-json"),
        (b'v1\n{"conf":{"a":"\\ud800"}}\n1', "bad-json"),
        (b"v1\n" + b"[" * 100_000, "bad-json"),
        (b"v2\n\na:1", "bad-json"),
        (b'v2\n{"conf":{}}\nnoname', "torn-file"),
        (b"v1\n{}\n\xff\xfe", "not-text"),
    ],
)
def test_unreadable_file(data: bytes, code: str) -> None:
    """A corrupt file is refused with a code for the kind of damage, its path and a remedy."""
    with pytest.raises(CheckpointUnreadable) as refused:
        parse_offsets(data, "offsets/3")
    assert refused.value.code == code
    assert "offsets/3" in refused.value.problem
    assert refused.value.remedy
