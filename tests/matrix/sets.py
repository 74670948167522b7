"""The sets of tests that `make matrix` runs on a version of PySpark."""

from __future__ import annotations

from dataclasses import dataclass

VERSIONS = ("3.5", "4.0", "4.1", "4.2", "4.3")


@dataclass(frozen=True)
class TestSet:
    """Files or tests of pytest, with the marks that choose among them and other options; a part of them if ``part``."""

    __test__ = False

    name: str
    tests: tuple[str, ...]
    marks: str = "not slow"
    options: tuple[str, ...] = ()
    part: bool = False


ALL = "slow or not slow"
# Plain PySpark programs write and continue these, so that they run on versions on which Headwater runs no jobs.
PLAIN = (
    TestSet(
        "rewinds of state", ("tests/timemachine/test_state_on_spark.py::test_all_operators_on_all_stores",), marks=ALL
    ),
    TestSet("rewinds of plain programs", ("tests/timemachine/test_plain_on_spark.py",), marks=ALL),
)
JOBS = (
    TestSet("golden scenarios", ("tests/jobs/test_gallery_golden.py",)),
    TestSet("commands", ("tests/cli/test_run.py", "tests/spark/test_connect.py"), marks=ALL),
    TestSet(
        "jobs",
        (
            "tests/spark/test_internals.py",
            "tests/spark/test_running.py",
            "tests/spark/test_replay.py",
            "tests/spark/test_dropped.py",
            "tests/timemachine/test_repartition_on_spark.py",
            "tests/timemachine/test_sources_and_sinks_on_spark.py",
        ),
    ),
    TestSet(
        "uses of internals",
        (
            "tests/spark/test_attach.py",
            "tests/spark/test_change_guard.py",
            "tests/spark/test_decoding.py",
            "tests/spark/test_join_checks.py",
            "tests/spark/test_memory_tables.py",
            "tests/spark/test_static_tables.py",
            "tests/spark/test_workers.py",
            "tests/cli/test_check_checkpoint.py",
        ),
    ),
    TestSet(
        "Python workers",
        ("tests/spark/test_workers.py::test_same_output_as_pyspark_for_all_types_of_keys",),
        marks=ALL,
    ),
    TestSet("real-time trigger", ("tests/spark/test_real_time.py",), marks=ALL),
    TestSet("Delta tables", ("tests/spark/test_delta.py",), marks=ALL),
    TestSet(
        "Iceberg tables",
        ("tests/matrix/iceberg_tables.py", "tests/matrix/iceberg_rewinds.py"),
        options=("-o", "headwater_jars=iceberg\npostgres"),
    ),
)
# The rows of the table that count the tests of a file.
FILES = {
    "test_gallery_golden": "golden scenarios",
    "test_run": "`run` on the command line",
    "test_running": "jobs in Python",
    "test_replay": "`replay`",
    "test_dropped": "`late`",
    "test_repartition_on_spark": "`repartition`, or its refusal",
    "test_attach": "`headwater.attach`",
    "test_check_checkpoint": "`check --checkpoint`",
    "test_change_guard": "refusal of code that changes the meaning of state",
    "test_decoding": "decoding of records",
    "test_join_checks": "checks of stream-stream joins",
    "test_static_tables": "joins with static tables",
    "test_memory_tables": "memory tables",
    "test_workers": "Headwater's Python workers",
    "test_real_time": "the real-time trigger with state, or its refusal",
    "test_connect": "refusal of Spark Connect",
    "test_delta": "Delta tables",
    "iceberg_tables": "Iceberg tables, or their refusal",
    "iceberg_rewinds": "rewinds of Iceberg tables",
    "test_internals": "parts of Spark that are not public",
}


def sets_of(version: str) -> tuple[TestSet, ...]:
    """Return the sets of a version. Headwater runs no jobs on 3.5."""
    return PLAIN if version.startswith("3.") else JOBS + PLAIN
