"""The script that publishes the number of crash points."""

from __future__ import annotations

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "crash_points.py"


def test_points_are_added_up_by_medium() -> None:
    """What the tests print between pytest's dots is counted by medium."""
    spec = importlib.util.spec_from_file_location("crash_points", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    printed = """
aggregation-hdfs on crashingdisk: 812 points
.custom-format2 on crashingobjectstore: 30 points
.resume and abort on crashingdisk: 1 points
...a disk: 5 points
..an S3 server: 7 points
.. 9 points of something else
1494 points, Spark started on 580 trees: 20 continued, 560 refused
.10 points, Spark started on 3 trees: 1 continued, 2 refused
"""
    points = script.count_points(printed)
    assert dict(points) == {
        "local disk, in memory": 813,
        "object store, in memory": 30,
        "local disk": 5,
        "S3 server": 7,
    }
    table = script.format_table(points, script.count_trees(printed), "1234567")
    assert "| all, at version 1234567 | 855 |" in table
    assert "| different trees that Spark was started on | 583 |" in table
