"""A rewind on an object store, which has no renames: Spark writes through s3a, Headwater moves files through s3."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from s3_support import S3


@pytest.mark.slow
def test_rewind_on_s3(s3: S3) -> None:
    """Re-running batches, replanning, undo, a rewind to the start and a repartition each end like the control."""
    script = Path(__file__).with_name("s3_stream.py")
    done = subprocess.run(
        [sys.executable, script, s3.endpoint], capture_output=True, text=True, timeout=580, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["first"]["last"] == 3
    assert len(seen["first"]["sink"]) >= 3
    assert seen["again"] == seen["first"]
    assert seen["larger"]["last"] == 2
    assert {**seen["larger"], "last": 3} == seen["first"]
    assert seen["undone"] == seen["first"]
    assert seen["over"] == seen["control"]
    assert {**seen["over"], "last": 3} == seen["first"]
    assert {**seen["repartitioned"], "last": seen["over"]["last"]} == seen["over"]
    assert seen["after repartition"]["last"] == seen["control after"]["last"] + 1
    assert {**seen["after repartition"], "last": seen["control after"]["last"]} == seen["control after"]
    assert len(seen["control after"]["sink"]) > len(seen["control"]["sink"])
    snapshots = [path for path in s3.objects("rewind/checkpoint-control") if path.endswith(".zip")]
    assert snapshots, "RocksDB has not uploaded a snapshot, so none was rewound"
    assert seen["state files"]
    assert not any(name.startswith("3") for name in seen["state files"]), "state of the first run is left"
