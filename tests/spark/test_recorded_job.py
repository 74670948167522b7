"""What a run records of its job, without Spark: where it reads and writes, as later commands look for it."""

from __future__ import annotations

from dataclasses import replace
from os.path import normpath
from pathlib import Path

import pytest

from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.record import folder_of
from headwater.jobs.gallery.browser_stats_stateful import BROWSER_STATS_STATEFUL
from headwater.jobs.loading import load_job
from headwater.jobs.uris import sink_from_uri
from headwater.lakehouse.tables import parse_table_uri
from headwater.spark.ownership import Run, job_record
from headwater.spark.recorded_job import recorded_job

NAMES = ["out", "files", "l", "my out", "50%25", "x/../out"]


@pytest.mark.parametrize("name", NAMES)
def test_a_relative_sink_is_found_in_any_working_directory(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if its name occurs in ``files:``, has to be percent-encoded, or has ``..``, which Spark resolves."""
    monkeypatch.chdir(tmp_path)
    expected = normpath(tmp_path / name.replace("%25", "%"))
    for kind in ("files", "delta"):
        sink_given = sink_from_uri(f"{kind}:{name}", BROWSER_STATS_STATEFUL.writes)
        job = replace(BROWSER_STATS_STATEFUL, writes=sink_given)
        sink = job_record(Run(job, None, str(tmp_path / "ckpt"))).sink or ""
        table = parse_table_uri(sink)
        assert (table.path if table else folder_of(sink)) == expected


JOB_FILE_TEXT = """
from headwater import Console, Files, Job

def chosen(visits, *, browsers: tuple = ("Firefox",), limit: int | None = None, share: float = 0.5):
    return visits

SETTINGS = {"browsers": ("Chrome", "Opera"), "limit": 5}
CHOSEN = Job("chosen", chosen, reads=Files("in", "a INT"), writes=Console(), settings=SETTINGS)
"""


def test_recorded_settings_keep_their_type(tmp_path: Path) -> None:
    """A later command runs the job with the tuples and numbers that the run had, and not with their text."""
    file = tmp_path / "chosen.py"
    file.write_text(JOB_FILE_TEXT)
    reference = f"{file}:CHOSEN"
    run = Run(load_job(reference).with_settings({"share": "0.25"}), reference, "checkpoint")
    files = MemoryTree({JOB_FILE: job_record(run).to_bytes()})
    expected = {"browsers": ("Chrome", "Opera"), "limit": 5, "share": 0.25}
    assert recorded_job(files).settings == expected
    assert recorded_job(files, settings={"limit": None}).settings == {**expected, "limit": None}
