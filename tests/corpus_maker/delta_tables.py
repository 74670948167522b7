"""Rebuild the corpus of Delta tables: `.venv/bin/python -m tests.corpus_maker.delta_tables`, which takes three minutes.

Runs streams of a few rows on real Spark with Delta, and writes `tests/corpus/delta/<name>.tar.xz`: the checkpoint of each
query, the table, and the rows of each version of the table as Delta reads them.

  --only NAME      one table (may be repeated)
  --into FOLDER    where the archives go
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .archive import pack
from .case import PLACE

TESTS = Path(__file__).resolve().parent.parent
SCHEMA = "id INT, word STRING, price DOUBLE"
WORDS = ("ant", "bee", "cow")
APP, VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
Start = Callable[[Any], Any]


def feed(number: int) -> list[dict[str, Any]]:
    """Return the rows of one input file: a word occurs in many of them, an id in one."""
    return [{"id": 10 * number + row, "word": WORDS[(number + row) % 3], "price": number + row / 4} for row in range(3)]


@dataclass
class Query:
    """A stream over a folder of JSON files into the table of a story. Each run drains the folder, a batch per file."""

    story: Story
    name: str
    mode: str = "append"
    fed: int = 0

    @property
    def inbox(self) -> Path:
        return self.story.place / f"input-{self.name}"

    @property
    def checkpoint(self) -> Path:
        return self.story.place / ("checkpoint" if self.name == "main" else f"checkpoint-{self.name}")

    def run(self, batches: int, start: Start | None = None, change: Callable[[Any], Any] = lambda rows: rows) -> None:
        self.inbox.mkdir(exist_ok=True)
        for _ in range(batches):
            text = "".join(f"{json.dumps(row)}\n" for row in feed(self.fed))
            (self.inbox / f"{self.fed:04d}.json").write_text(text)
            time.sleep(0.002)
            self.fed += 1
        rows = self.story.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self.inbox))
        writer = change(rows.coalesce(1)).writeStream.outputMode(self.mode).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        (start or self.into_delta)(writer).awaitTermination()

    def into_delta(self, writer: Any) -> Any:
        return writer.format("delta").start(str(self.story.table))

    def merging(self, writer: Any) -> Any:
        """Upsert by word, with the transaction of the query and the batch."""

        def merge(batch: Any, number: int) -> None:
            spark = batch.sparkSession
            batch.createOrReplaceTempView("incoming")
            spark.conf.set(APP, spark.sparkContext.getLocalProperty("sql.streaming.queryId"))
            spark.conf.set(VERSION, str(number))
            spark.sql(
                f"MERGE INTO delta.`{self.story.table}` kept USING incoming ON kept.word = incoming.word "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
            spark.conf.unset(APP)
            spark.conf.unset(VERSION)

        return writer.foreachBatch(merge).start()

    def appending_without_transactions(self, writer: Any) -> Any:
        return writer.foreachBatch(
            lambda batch, _: batch.write.format("delta").mode("append").save(str(self.story.table))
        ).start()


@dataclass
class Story:
    """One table of the corpus, while it is made."""

    spark: Any
    place: Path

    @property
    def table(self) -> Path:
        return self.place / "table"

    def query(self, name: str = "main", mode: str = "append") -> Query:
        return Query(self, name, mode)

    def create(self, *, properties: str = "", partitioned: str = "", clustered: str = "") -> None:
        self.sql(
            f"CREATE TABLE delta.`{self.table}` ({SCHEMA}) USING delta"
            + (f" PARTITIONED BY ({partitioned})" if partitioned else "")
            + (f" CLUSTER BY ({clustered})" if clustered else "")
            + (f" TBLPROPERTIES ({properties})" if properties else "")
        )

    def sql(self, text: str) -> None:
        self.spark.sql(text.replace("TABLE!", f"delta.`{self.table}`")).collect()

    @contextmanager
    def settings(self, **values: str) -> Iterator[None]:
        names = {name.replace("__", "."): value for name, value in values.items()}
        for name, value in names.items():
            self.spark.conf.set(name, value)
        yield
        for name in names:
            self.spark.conf.unset(name)


def counts(rows: Any) -> Any:
    from pyspark.sql import functions as F

    return rows.groupBy("word").agg(F.count("*").alias("seen"), F.sum("price").alias("price"))


def append(story: Story) -> None:
    """append mode, created by the stream"""
    story.query().run(6)


def complete(story: Story) -> None:
    """complete mode: every batch replaces the table"""
    story.query(mode="complete").run(5, change=counts)


def merge(story: Story) -> None:
    """upserts by MERGE in foreachBatch, with txnAppId and txnVersion"""
    story.create()
    query = story.query(mode="update")
    query.run(6, start=query.merging, change=last_of_each_word)


def merge_dv(story: Story) -> None:
    """the same with deletion vectors"""
    story.create(properties="'delta.enableDeletionVectors' = 'true'")
    story.sql("INSERT INTO TABLE! SELECT 1000 + id, concat('old', id), 0.5 FROM range(40)")
    query = story.query(mode="update")
    query.run(6, start=query.merging, change=last_of_each_word)


def last_of_each_word(rows: Any) -> Any:
    return rows.selectExpr("id", "concat(word, id % 2) word", "price").dropDuplicates(["word"])


def partitioned(story: Story) -> None:
    """partitioned by word, optimized after the third batch"""
    story.create(partitioned="word")
    query = story.query()
    query.run(3)
    story.sql("OPTIMIZE TABLE!")
    query.run(3)


def optimized(story: Story) -> None:
    """optimized after the second and the fourth batch"""
    query = story.query()
    query.run(2)
    story.sql("OPTIMIZE TABLE!")
    query.run(2)
    story.sql("OPTIMIZE TABLE!")
    query.run(2)


def log_checkpoint(story: Story) -> None:
    """a log checkpoint every third version"""
    story.create(properties="'delta.checkpointInterval' = '3'")
    story.query().run(8)


def log_checkpoint_parts(story: Story) -> None:
    """log checkpoints in several files, with statistics as columns only"""
    story.create(
        properties="'delta.checkpointInterval' = '4', 'delta.checkpoint.writeStatsAsJson' = 'false', "
        "'delta.checkpoint.writeStatsAsStruct' = 'true'"
    )
    with story.settings(spark__databricks__delta__checkpoint__partSize="2"):
        story.query().run(6)


def log_checkpoint_v2(story: Story) -> None:
    """log checkpoints of version 2, with sidecar files"""
    story.create(
        properties="'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '3', "
        "'delta.enableDeletionVectors' = 'true'"
    )
    query = story.query(mode="update")
    query.run(7, start=query.merging, change=last_of_each_word)


def two_queries(story: Story) -> None:
    """two queries append to one table by turns"""
    first, second = story.query(), story.query("second")
    for _ in range(3):
        first.run(1)
        second.run(1)
        first.run(1)


def foreign_insert(story: Story) -> None:
    """an INSERT by another program after the third batch"""
    query = story.query()
    query.run(3)
    story.sql("INSERT INTO TABLE! VALUES (900, 'inserted', 9.0)")
    query.run(2)


def foreign_delete(story: Story) -> None:
    """a DELETE by another program after the third batch, which rewrites a file of the second"""
    query = story.query()
    query.run(3)
    story.sql("DELETE FROM TABLE! WHERE id = 11")
    query.run(2)


def merge_schema(story: Story) -> None:
    """the third batch adds a column"""
    query = story.query()
    query.run(2)
    query.run(
        2,
        start=lambda writer: query.into_delta(writer.option("mergeSchema", "true")),
        change=lambda rows: rows.selectExpr("*", "price * 2 AS doubled"),
    )


def restored(story: Story) -> None:
    """RESTORE to the version of the second batch, by hand"""
    query = story.query()
    query.run(4)
    story.sql("RESTORE TABLE TABLE! TO VERSION AS OF 1")


def restored_by_time(story: Story) -> None:
    """RESTORE by time, by hand, then two more batches"""
    query = story.query()
    query.run(3)
    time.sleep(1.1)
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    time.sleep(1.1)
    query.run(1)
    story.sql(f"RESTORE TABLE TABLE! TO TIMESTAMP AS OF '{moment}'")


def features(story: Story) -> None:
    """column mapping, row tracking, in-commit timestamps, change data feed, deletion vectors and clustering"""
    story.create(
        clustered="id",
        properties="'delta.columnMapping.mode' = 'name', 'delta.enableRowTracking' = 'true', "
        "'delta.enableInCommitTimestamps' = 'true', 'delta.enableChangeDataFeed' = 'true', "
        "'delta.enableDeletionVectors' = 'true'",
    )
    query = story.query(mode="update")
    query.run(5, start=query.merging, change=last_of_each_word)


def without_transactions(story: Story) -> None:
    """foreachBatch that appends without txnAppId and txnVersion"""
    query = story.query()
    query.run(3, start=query.appending_without_transactions)


STORIES: tuple[Callable[[Story], None], ...] = (
    append,
    complete,
    merge,
    merge_dv,
    partitioned,
    optimized,
    log_checkpoint,
    log_checkpoint_parts,
    log_checkpoint_v2,
    two_queries,
    foreign_insert,
    foreign_delete,
    merge_schema,
    restored,
    restored_by_time,
    features,
    without_transactions,
)


def make(spark: Any, story: Callable[[Story], None], archive: Path) -> None:
    """Write one table, the checkpoints of its queries and its rows at each version to an archive."""
    place = PLACE / "delta" / name_of(story)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    made = Story(spark, place)
    story(made)
    notes = {
        "case": {
            "name": name_of(story),
            "description": story.__doc__,
            "spark_version": spark.version,
            "location": str(place),
        },
        "versions": rows_by_version(spark, made.table),
        "history": [
            json.loads(line) for line in spark.sql(f"DESCRIBE HISTORY delta.`{made.table}`").toJSON().collect()
        ],
    }
    for leftover in [*place.rglob(".*.crc"), *place.glob("input-*/*")]:
        leftover.unlink()
    pack(place, notes, archive)
    shutil.rmtree(place)


def rows_by_version(spark: Any, table: Path) -> dict[str, list[str]]:
    from pyspark.sql import functions as F

    found = {}
    for file in sorted((table / "_delta_log").glob("*.json")):
        if file.stem.isdigit():
            read = spark.read.format("delta").option("versionAsOf", int(file.stem)).load(str(table))
            lines = (
                read.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect() if read.columns else []
            )
            found[str(int(file.stem))] = sorted(line[0] for line in lines)
    return found


def name_of(story: Callable[[Story], None]) -> str:
    return story.__name__.replace("_", "-")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="delta_tables", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("--into", type=Path, default=TESTS / "corpus" / "delta", metavar="FOLDER")
    asked = parser.parse_args()
    from headwater.jars.resolve import jar_paths
    from headwater.spark.table_formats import format_settings

    from .__main__ import session

    jars = ",".join(str(jar) for jar in jar_paths("delta"))
    spark = session({**format_settings(["delta"], {}, "2"), "spark.jars": jars})
    for story in STORIES:
        if not asked.only or name_of(story) in asked.only:
            archive = asked.into / f"{name_of(story)}.tar.xz"
            make(spark, story, archive)
            print(f"{archive.name}: {archive.stat().st_size:,} bytes", flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
