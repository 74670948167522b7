"""An attached query whose checkpoint is on S3: the lease is a record with a heartbeat."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.running import Command
from headwater.checkpoint.lease import RECORD, live_lease
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.record import read_job_record, read_progress
from headwater.jars.resolve import jar_paths
from s3_support import S3

pytestmark = [pytest.mark.services, pytest.mark.slow]


def test_a_checkpoint_on_s3(s3: S3, tmp_path: Path, command: Command) -> None:
    """A query is rewound only after it has stopped, and the records of both of its runs are kept."""
    jars = ",".join(str(jar) for jar in jar_paths("s3"))
    folder, rows = s3.url("attached", "s3a"), tmp_path / "rows"
    rows.mkdir()
    files = open_files(s3.url("attached/checkpoint"))
    for run in range(2):
        for number in range(run * 3, run * 3 + 3):
            (rows / f"{number}.json").write_text(f'{{"id": {number}}}\n')
        program = [sys.executable, Path(__file__).with_name("program_on_s3.py"), s3.endpoint, jars, folder, rows]
        with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == "processed\n"
            deadline = time.monotonic() + 30
            while not (files.exists(RECORD) and live_lease(files)):
                assert time.monotonic() < deadline
                time.sleep(0.2)
            refused = command("rewind", s3.url("attached/checkpoint"), "--to", 0, "--yes")
            assert (refused.status, "copies is running" in refused.err) == (14, True), refused.err
            process.stdin.write("\n")
            process.stdin.close()
            assert process.wait() == 0
        assert not files.exists(RECORD)
        assert list(read_progress(files)) == list(range(run * 3 + 3))
    record = read_job_record(files)
    assert (record.job, record.sink, record.source) == (
        "copies",
        "noop:",
        f"files:{rows}?format=json&maxFilesPerTrigger=1",
    )
    done = command("rewind", s3.url("attached/checkpoint"), "--to", 1, "--yes")
    assert done.status == 0, done.err
