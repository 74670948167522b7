"""Let Spark and Delta write the commit that rewinds a table, for tables that Headwater cannot write to by itself.

The plan is the same, with the same files. Delta checks it and writes it, so every feature that Delta knows is kept. The
commit is recognized after an interruption by the id of the change, because its bytes are Delta's.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from pyspark.sql import SparkSession

from headwater.core.errors import SetupProblem, UsageProblem
from headwater.lakehouse.delta_actions import Commit, parse_commit
from headwater.lakehouse.delta_commit import Restoration
from headwater.lakehouse.delta_features import refuse_features
from headwater.lakehouse.delta_lineage import Mark, mark_of
from headwater.lakehouse.delta_log import DeltaLog
from headwater.lakehouse.delta_table import DeltaTable
from headwater.lakehouse.tables import RewindableTable
from headwater.spark.internals import delta_commits
from headwater.spark.session import jars_for_location, own_or_active_session


def written_by_spark(table: RewindableTable) -> RewindableTable:
    """Return a Delta table to which Spark writes."""
    if not isinstance(table, DeltaTable):
        raise UsageProblem(
            "bad-option",
            f"--engine spark is for Delta tables, and {table.uri} is not one",
            remedy="leave out --engine: Headwater commits to an Iceberg table through its catalog",
        )
    return SparkDeltaTable(table.files, table.uri, table.own_app_id)


class SparkDeltaTable(DeltaTable):
    """A Delta table whose commits Delta itself writes, in the session of this process or in one that is started."""

    @property
    def reference(self) -> str:
        return f"{super().reference}?engine=spark"

    def refuse_features(self, found: Restoration) -> None:
        refuse_features(found.head, self.uri, engine="spark")

    def make(self, version: int, text: str) -> None:
        with self._session() as spark:
            if not delta_commits.probe(spark):
                raise SetupProblem(
                    "no-delta",
                    "this Spark session has no Delta that can write the commit",
                    evidence={"Spark": spark.version},
                    remedy="headwater jars --configuration delta",
                )
            planned = parse_commit(text.encode(), version)
            delta_commits.commit(spark, self.files.spark_uri(), version - 1, planned)

    def is_made(self, version: int, text: str) -> bool:
        log = DeltaLog(self.files)
        return log.has(version) and _identity(log.commit(version)) == _identity(parse_commit(text.encode(), version))

    def _session(self) -> AbstractContextManager[SparkSession]:
        jars = ["delta", *jars_for_location(self.files.location)]
        log = Path(".headwater/logs/delta.log")
        return own_or_active_session("headwater rewind", jars=jars, log=log)


def _identity(commit: Commit) -> tuple[Mark | None, tuple[tuple[str, int], ...]]:
    """Return what distinguishes a commit of Headwater: its mark, and the transactions that it sets."""
    marks = tuple(sorted((str(txn["appId"]), int(txn["version"])) for txn in commit.actions.get("txn", ())))
    return mark_of(commit), marks
