"""The pytest plugin: the fixture ``scenario``, and one Spark session for the entire test run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headwater.jobs.job import Job
    from headwater.testing.initial_state import GivenState
    from headwater.testing.scenario import Scenario

MISSING = pytest.StashKey[str | None]()
HELP = "Spark settings for the session that Headwater's fixtures share, one key=value per line"

JARS_HELP = (
    "sets of jars that the session starts with besides Kafka's, one per line: delta for jobs that write Delta tables"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("headwater_conf", HELP, type="linelist")
    parser.addini("headwater_jars", JARS_HELP, type="linelist")


@pytest.fixture(scope="session")
def headwater_spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that all scenarios of a test run share, with Headwater's defaults."""
    from headwater.jars.versions import has_release  # noqa: PLC0415
    from headwater.spark.missing import missing_internals_note  # noqa: PLC0415
    from headwater.testing.session import start_scenario_session  # noqa: PLC0415  other test runs do not import Spark

    folder = tmp_path_factory.mktemp("headwater")
    chosen = dict(line.split("=", 1) for line in request.config.getini("headwater_conf"))
    # A format without a release for this Spark is refused when a scenario needs it: the others can run.
    jars = ("spark", *(name for name in request.config.getini("headwater_jars") if has_release(name)))
    spark = start_scenario_session(folder, chosen, jars)
    request.config.stash[MISSING] = missing_internals_note(spark)
    yield spark
    spark.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what Headwater went without on this Spark."""
    note = terminalreporter.config.stash.get(MISSING, None)
    if note:
        terminalreporter.write_line(note)


@pytest.fixture
def scenario(
    headwater_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Scenario]]:
    """Create scenarios for jobs: ``s = scenario(JOB)``, then ``s.feed(...).emits(...)``.

    ``mode`` and ``settings`` replace those of the job. With ``start_empty``, batch 0 has no records. ``schema``
    describes the rows of a source without decoding, such as a table, or of several sources by name. ``tables`` has the
    rows of static tables by name, for tests that do not read the job's own tables. ``state`` is the state to start with:
    rows as dictionaries, an Arrow table or a DataFrame, or what ``headwater export`` wrote. ``migrated_from`` is the
    checkpoint of an older version of the job, whose state is migrated to its code; ``migration`` has the options
    ``fields``, ``keys``, ``merge`` and ``accept_change`` of the migration.
    """
    from headwater.testing.scenario import Scenario  # noqa: PLC0415

    def open_scenario(
        job: Job,
        *,
        mode: str | None = None,
        settings: Mapping[str, Any] | None = None,
        start_empty: bool = False,
        schema: str | Mapping[str, str] | None = None,
        tables: Mapping[str, Sequence[Any]] | None = None,
        state: GivenState | None = None,
        migrated_from: str | Path | None = None,
        migration: Mapping[str, Any] | None = None,
    ) -> Scenario:
        changes: dict[str, Any] = {"mode": mode} if mode else {}
        if settings:
            changes["settings"] = {**job.settings, **settings}
        created = Scenario(
            headwater_spark,
            replace(job, **changes),
            tmp_path_factory.mktemp("scenario"),
            start_empty=start_empty,
            schema=schema,
            tables=tables,
            state=state,
            migrated_from=migrated_from,
            migration=migration,
        )
        opened.callback(created.close)
        return created

    with ExitStack() as opened:  # closes all of them, also if one fails
        yield open_scenario
