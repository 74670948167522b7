"""Rebuild the corpus of Iceberg tables, with a PySpark that Iceberg has a release for: 4.1.

`python -m tests.corpus_maker.iceberg_tables`, in an environment with that PySpark, runs streams of a few rows on real
Spark, and writes `tests/corpus/iceberg/<name>.tar.xz`: the checkpoint of each query, a Hadoop catalog with the table, and
the rows of each snapshot as Spark reads them. Paths of the tables are relative, so that tests can unpack them anywhere.

  --only NAME      one table (may be repeated)
  --into FOLDER    where the archives go
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .archive import pack
from .case import PLACE
from .delta_tables import SCHEMA, counts, feed

TESTS = Path(__file__).resolve().parent.parent
HOME = PLACE / "iceberg"
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


@dataclass
class Story:
    """One table of the corpus, while it is made. Its folder is relative to the current one."""

    spark: Any
    name: str
    fed: int = 0

    @property
    def place(self) -> Path:
        return Path(self.name)

    @property
    def table(self) -> str:
        return f"{self.name.replace('-', '_')}.shop.sales"

    def run(
        self,
        batches: int,
        *,
        mode: str = "append",
        change: Callable[[Any], Any] = lambda rows: rows,
        partition: str | None = None,
    ) -> None:
        """Run one batch for each of some new files."""
        inbox = HOME / self.name / "input"
        inbox.mkdir(exist_ok=True)
        for _ in range(batches):
            (inbox / f"{self.fed:04d}.json").write_text("".join(f"{json.dumps(row)}\n" for row in feed(self.fed)))
            time.sleep(0.002)
            self.fed += 1
        rows = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(inbox))
        self.write(change(rows.coalesce(1)), "checkpoint", self.table, mode, partition)

    def write(self, rows: Any, checkpoint: str, table: str, mode: str = "append", partition: str | None = None) -> None:
        writer = rows.writeStream.outputMode(mode).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(HOME / self.name / checkpoint)).option(
            "fanout-enabled", "true"
        )
        if partition:
            writer = writer.partitionBy(partition)
        writer.format("iceberg").toTable(table).awaitTermination()

    def sql(self, text: str) -> Any:
        return self.spark.sql(text.replace("TABLE!", self.table).replace("CATALOG!", self.table.partition(".")[0]))

    def create(self, version: int = 2) -> None:
        self.sql("CREATE DATABASE IF NOT EXISTS CATALOG!.shop")
        self.sql(f"CREATE TABLE TABLE! ({SCHEMA}) USING iceberg TBLPROPERTIES ('format-version' = '{version}')")


def append(story: Story) -> None:
    """append mode, created by the stream, partitioned by word"""
    story.run(5, partition="word")


def complete(story: Story) -> None:
    """complete mode: every batch replaces the table"""
    story.run(4, mode="complete", change=counts)


def empty_batches(story: Story) -> None:
    """batches without rows"""
    story.run(5, change=lambda rows: rows.where("id % 20 < 10"))


def compacted(story: Story) -> None:
    """rewrite_data_files after the third batch"""
    story.run(3)
    story.sql("CALL CATALOG!.system.rewrite_data_files(table => 'shop.sales', options => map('min-input-files', '2'))")
    story.run(2)


def foreign_delete(story: Story) -> None:
    """a DELETE by another program after the third batch, which writes a file of deletes"""
    story.create()
    story.sql("ALTER TABLE TABLE! SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    story.run(3)
    story.sql("DELETE FROM TABLE! WHERE id = 11")
    story.run(2)


def expired(story: Story) -> None:
    """expire_snapshots keeps the last three"""
    story.run(5)
    story.sql(
        "CALL CATALOG!.system.expire_snapshots(table => 'shop.sales', older_than => TIMESTAMP '2100-01-01', "
        "retain_last => 3)"
    )


def rolled_back(story: Story) -> None:
    """rolled back to the second batch by hand"""
    story.run(4)
    second = story.sql("SELECT snapshot_id FROM TABLE!.snapshots ORDER BY committed_at").collect()[1][0]
    story.sql(f"CALL CATALOG!.system.rollback_to_snapshot('shop.sales', {second})")


def version_1(story: Story) -> None:
    """format version 1"""
    story.create(1)
    story.run(3)


def version_3(story: Story) -> None:
    """format version 3, with row lineage"""
    story.create(3)
    story.run(3)


def source(story: Story) -> None:
    """a second query reads the table: its first batch two snapshots, the others one file each"""
    story.run(2, partition="word")
    copy = f"{story.table}_copy"

    def read(**options: str) -> None:
        rows = story.spark.readStream.format("iceberg").options(**options).load(story.table)
        story.write(rows, "checkpoint-reader", copy)

    read()
    story.run(2)
    read(**{"streaming-max-files-per-micro-batch": "2"})


STORIES: tuple[Callable[[Story], None], ...] = (
    append,
    complete,
    empty_batches,
    compacted,
    foreign_delete,
    expired,
    rolled_back,
    version_1,
    version_3,
    source,
)


def name_of(story: Callable[[Story], None]) -> str:
    return story.__name__.replace("_", "-")


def rows_by_snapshot(spark: Any, table: str) -> dict[str, list[str]]:
    """Return the rows of each snapshot as JSON."""
    from pyspark.sql import functions as F

    found = {}
    for (number,) in spark.table(f"{table}.snapshots").select("snapshot_id").collect():
        rows = spark.read.format("iceberg").option("versionAsOf", number).load(table)
        found[str(number)] = sorted(row[0] for row in rows.select(F.to_json(F.struct("*"))).collect())
    return found


def make(spark: Any, story: Callable[[Story], None], archive: Path) -> None:
    """Write one table, the checkpoints of its queries and its rows at each snapshot to an archive."""
    name = name_of(story)
    place = HOME / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    catalog = f"spark.sql.catalog.{name.replace('-', '_')}"
    spark.conf.set(catalog, "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"{catalog}.type", "hadoop")
    spark.conf.set(f"{catalog}.warehouse", f"{name}/warehouse")
    spark.conf.set(f"{catalog}.cache-enabled", "false")
    made = Story(spark, name)
    story(made)
    notes = {
        "case": {
            "name": name,
            "description": story.__doc__,
            "spark_version": spark.version,
            "uri": f"iceberg:{made.table}?catalog.type=hadoop&catalog.warehouse={name}/warehouse",
        },
        "snapshots": rows_by_snapshot(spark, made.table),
    }
    for leftover in [*place.rglob(".*.crc"), *place.glob("input/*")]:
        leftover.unlink()
    pack(place, notes, archive)
    shutil.rmtree(place)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="iceberg_tables", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("--into", type=Path, default=TESTS / "corpus" / "iceberg", metavar="FOLDER")
    asked = parser.parse_args()
    into = asked.into.absolute()
    from headwater.jars.resolve import jar_paths

    from .__main__ import session

    HOME.mkdir(parents=True, exist_ok=True)
    os.chdir(HOME)  # the JVM keeps it, and resolves the relative paths of the tables
    jars = ",".join(str(jar) for jar in jar_paths("iceberg"))
    spark = session({"spark.sql.extensions": EXTENSIONS, "spark.jars": jars})
    for story in STORIES:
        if not asked.only or name_of(story) in asked.only:
            archive = into / f"{name_of(story)}.tar.xz"
            make(spark, story, archive)
            print(f"{archive.name}: {archive.stat().st_size:,} bytes", flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
