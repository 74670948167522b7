"""A Spark Connect session: a client without the driver's JVM, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys, warnings
from pyspark.sql import SparkSession
import headwater
from headwater import Job, Memory, Rate
from headwater.errors import HeadwaterError

spark = SparkSession.builder.remote("local[1]").getOrCreate()
assert spark.range(3).count() == 3
job = Job("ticks", lambda rows: rows, reads=Rate(1), writes=Memory("ticks"))
found = []
for session in (spark, None):
    try:
        job.start(session)
    except HeadwaterError as error:
        found.append([error.code, str(error), dict(error.evidence), error.remedy])
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    attached = headwater.attach(spark).is_active
spark.stop()
print(json.dumps({"refusals": found, "attached": attached, "warned": [str(one.message) for one in warned]}))
"""


@pytest.mark.slow
@pytest.mark.services
def test_a_real_session_is_refused(tmp_path: Path) -> None:
    """A job is refused with what the client lacks, whether the session is given or found; attach warns."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    given, of_the_process = found["refusals"]
    assert given == of_the_process
    code, problem, evidence, remedy = given
    assert code == "spark-connect"
    assert "cannot start ticks on a Spark Connect session" in problem
    assert "the driver's JVM" in evidence["missing"]
    assert "SparkSession.builder.master" in remedy
    assert found["attached"] is False
    assert any("cannot attach to a Spark Connect session" in text for text in found["warned"])
    assert not (tmp_path / ".headwater").exists()
