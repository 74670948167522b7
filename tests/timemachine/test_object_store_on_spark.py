"""A rewind on an object store, where nothing is renamed: Spark writes through s3a, Headwater moves through s3."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from s3_support import S3


@pytest.mark.timeout(600)
def test_rewind_on_s3(s3: S3) -> None:
    """The same batches again, other batches, undo, starting over, repartition: each ends as an undisturbed run would."""
    script = Path(__file__).with_name("s3_stream.py")
    done = subprocess.run(
        [sys.executable, script, s3.endpoint], capture_output=True, text=True, timeout=580, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["first"]["last"] == 3
    assert len(told["first"]["sink"]) >= 3
    assert told["again"] == told["first"]
    assert told["larger"]["last"] == 2
    assert {**told["larger"], "last": 3} == told["first"]
    assert told["undone"] == told["first"]
    assert told["over"] == told["calm"]
    assert {**told["over"], "last": 3} == told["first"]
    assert {**told["repartitioned"], "last": told["over"]["last"]} == told["over"]
    assert told["after repartition"]["last"] == told["calm after"]["last"] + 1
    assert {**told["after repartition"], "last": told["calm after"]["last"]} == told["calm after"]
    assert len(told["calm after"]["sink"]) > len(told["calm"]["sink"])
    snapshots = [path for path in s3.objects("rewind/checkpoint-calm") if path.endswith(".zip")]
    assert snapshots, "RocksDB has not put up a snapshot, so none was rewound"
    assert told["state files"]
    assert not any(name.startswith("3") for name in told["state files"]), "state of the first run was left"
