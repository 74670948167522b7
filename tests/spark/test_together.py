"""Several jobs in one process: what they must not share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater import Console, Files, Job, Memory, Rate
from headwater.core.errors import JobRefused
from headwater.spark.ownership import Run
from headwater.spark.together import refuse_shared, session_conf


def run_of(name: str, **fields: object) -> Run:
    job = Job(name, lambda rows: rows, reads=Rate(), writes=Console())
    return Run(replace(job, **fields), f"jobs.py:{name.upper()}", f"/checkpoints/{name}")  # type: ignore[arg-type]


def test_jobs_that_share_nothing() -> None:
    """Jobs with names, checkpoints and sinks of their own may run together, on the same source."""
    refuse_shared([run_of("a"), run_of("b"), run_of("c", writes=Memory("c")), run_of("d", writes=Files("d"))])


@pytest.mark.parametrize(
    ("runs", "problem"),
    [
        ([run_of("a"), run_of("a")], "the name a"),
        ([run_of("a"), replace(run_of("b"), checkpoint="/checkpoints/a")], "the checkpoint /checkpoints/a"),
        ([run_of("a", writes=Memory("t")), run_of("b", writes=Memory("t"))], "the memory table t"),
        ([run_of("a", writes=Files("out")), run_of("b", writes=Files("./out"))], "the output folder "),
        (
            [run_of("a", conf={"spark.driver.memory": "1g"}), run_of("b", conf={"spark.driver.memory": "2g"})],
            "different values of spark.driver.memory",
        ),
    ],
)
def test_jobs_that_collide(runs: list[Run], problem: str) -> None:
    """Jobs that would write to the same place, or that need different processes, are refused with both names."""
    with pytest.raises(JobRefused, match=problem) as refused:
        refuse_shared(runs)
    assert refused.value.code == "jobs-collide"
    assert refused.value.remedy


def test_settings_of_the_session() -> None:
    """The session starts with the settings of all jobs; settings of single queries may differ."""
    runs = [run_of("a", conf={"spark.sql.x": "1"}), run_of("b", conf={"spark.sql.x": "2", "spark.driver.memory": "2g"})]
    refuse_shared(runs)
    assert session_conf(runs) == {"spark.sql.x": "1", "spark.driver.memory": "2g"}
