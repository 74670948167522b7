"""A declarative pipeline in a bucket: its flows are found and rewound with their tables, without Spark."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from broker_support import run_here
from headwater.core.times import iso_from_ms
from pipelines.trees import checkpoint_of, unpack
from s3_support import BUCKET, S3
from waiting_support import wait_until

LATER = {"sales": [1], "big_sales": [1], "totals": [2, 3]}


@pytest.mark.slow
def test_a_pipeline_in_a_bucket_is_rewound_with_its_tables(s3: S3, tmp_path: Path) -> None:
    """The warehouse is found where a flow has read another flow's files; one undo restores every object."""
    home = unpack("files", tmp_path / "home")
    for log in [*home.rglob("sources/0/*"), *home.rglob("_spark_metadata/*")]:
        log.write_text(log.read_text().replace(f"file://{home}", f"s3a://{BUCKET}/shop"))
    late = {}
    for flow, batches in LATER.items():
        for batch in batches:
            commit = checkpoint_of(home, flow) / "commits" / str(batch)
            late[f"shop/{commit.relative_to(home)}"] = commit.read_bytes()
            commit.unlink()
    s3.upload(home, "shop")
    moment = time.time()
    wait_until(lambda: time.time() > moment + 2, "the clock of the store, which counts seconds")
    for key, data in late.items():
        s3.client.put_object(Bucket=BUCKET, Key=key, Body=data)

    storage = s3.url("shop/storage")
    before = set(s3.objects("shop"))
    shown = run_here("log", storage, "--json").stdout.splitlines()
    assert sorted(json.loads(line)["name"] for line in shown) == ["big_sales", "sales", "totals"]
    to_time = ("--to-time", iso_from_ms(int(moment * 1000) + 1000))
    done = run_here("rewind", storage, *to_time, "--yes")
    assert done.returncode == 0, done.stderr
    gone = before - set(s3.objects("shop"))
    assert gone >= {key.removeprefix("shop/") for key in late}
    assert {key.split("/")[1] for key in gone if key.startswith("spark-warehouse")} == set(LATER)
    again = run_here("rewind", storage, *to_time, "--yes")
    assert "error[nothing-to-undo]" in again.stderr
    undone = run_here("undo", storage, "--yes")
    assert undone.returncode == 0, undone.stderr
    assert before <= set(s3.objects("shop"))
