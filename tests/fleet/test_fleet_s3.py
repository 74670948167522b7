"""Checkpoints below a prefix of a bucket."""

from __future__ import annotations

from pathlib import Path

from fleet.streams import write_stream
from headwater.fleet.fleet import Fleet
from s3_support import BUCKET, S3


def test_streams_of_a_bucket(s3: S3, tmp_path: Path) -> None:
    """Checkpoints in a bucket are found and summarized, and read again only when they change."""
    for name in ("team/a", "b"):
        s3.upload(write_stream(tmp_path / name), f"fleet/{name}")
    fleet = Fleet([f"s3://{BUCKET}/fleet"])
    assert [stream.name for stream in fleet.refresh().streams] == ["b", "team/a"]
    fleet.refresh()
    assert fleet.summaries_read == 2
    write_stream(tmp_path / "b", batches=9)
    for log in ("offsets", "commits"):
        data = (tmp_path / "b" / log / "8").read_bytes()
        s3.client.put_object(Bucket=BUCKET, Key=f"fleet/b/{log}/8", Body=data)
    (changed, _) = fleet.refresh().streams
    assert (changed.summary.last_batch, fleet.summaries_read) == (8, 3)
    assert [finding for finding in fleet.check("b") if finding.severity == "error"] == []
