"""What a run records of its job, without Spark: where it reads and writes, as later commands look for it."""

from __future__ import annotations

from dataclasses import replace
from os.path import normpath
from pathlib import Path

import pytest

from headwater.checkpoint.record import folder_of
from headwater.jobs.gallery.browser_stats_stateful import BROWSER_STATS_STATEFUL
from headwater.jobs.uris import sink_from_uri
from headwater.lakehouse.tables import parse_table_uri
from headwater.spark.ownership import Run, job_record

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
