"""The SQL query of ``headwater run``: run when the job ends and, with ``--every``, while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.cli.supervision import SupervisedJob
from headwater.core.errors import UsageProblem

if TYPE_CHECKING:
    from headwater.jobs.job import Job


@dataclass(frozen=True)
class RunQuery:
    """The SQL query of ``--query``, to run when the job ends and, if ``seconds`` is set, at this interval."""

    text: str | None
    seconds: float | None


def parse_query(query: str | None, every: str | None, job: Job) -> RunQuery:
    """Return the query of ``--query`` and ``--every``; raise if they contradict each other."""
    return RunQuery(query, _interval(every, query, job))


def _interval(text: str | None, query: str | None, job: Job) -> float | None:
    """Return the seconds of ``--every``. Raise unless there is a query to repeat, on a table in this process."""
    from headwater.core.times import seconds_from_text
    from headwater.jobs.endpoints import Memory

    if text is None:
        return None
    if query is None or not isinstance(job.writes, Memory):
        raise UsageProblem(
            "bad-option",
            f"--every needs {'--query' if query is None else 'a memory sink'}: it repeats a SQL query on a memory table",
            evidence={"sink": job.writes.kind},
            remedy='--sink memory:counts --query "SELECT * FROM counts" --every 5s',
        )
    try:
        seconds = seconds_from_text(text)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise UsageProblem(
            "bad-option",
            "--every takes a duration greater than zero",
            evidence={"found": text},
            remedy="--every 5s, 500ms, 2m or 1h",
        )
    return seconds


def repeated(
    spark: Any, job: Job, sql: RunQuery, show: Callable[[str], None]
) -> Callable[[SupervisedJob], None] | None:
    """Return a function that repeats the query of ``--every``, if there is one."""
    if not sql.text or not sql.seconds:
        return None
    from headwater.spark.memory_tables import RepeatedQuery
    from headwater.spark.running import explained_death

    repeated = RepeatedQuery(spark, job, sql.text, sql.seconds, show)

    def poll(supervised: SupervisedJob) -> None:
        if supervised.handle:
            with explained_death(job):
                repeated.poll(supervised.handle.query)

    return poll
