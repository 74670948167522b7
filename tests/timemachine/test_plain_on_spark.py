"""Rewinds of plain PySpark programs with a file sink, without Headwater's session: they run on every PySpark."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from headwater.checkpoint.locate import open_files
from headwater.timemachine.rewind import plan_rewind
from timemachine.spark_runs import Inbox, Stream

SCHEMA = "id INT, word STRING"
FEEDS, MORE, TO = 8, 2, 3


def words(inputs: dict[str, DataFrame]) -> DataFrame:
    return inputs["words"]


def rows_of(spark: SparkSession, out: Path) -> list[str]:
    """Return the rows in the folder of a file sink, all of which its log has."""
    present = [line for file in out.glob("part-*.json") for line in file.read_text().splitlines()]
    assert len(present) == spark.read.schema(SCHEMA).json(str(out)).count()
    return sorted(json.dumps(json.loads(line), sort_keys=True) for line in present)


def test_plain_files_to_files(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """The rewound program writes what an undisturbed one writes, with the recorded batches and with larger ones."""

    def stream(name: str) -> tuple[Stream, Inbox, Path]:
        inbox, out = Inbox(tmp_path / name / "in", SCHEMA), tmp_path / name / "out"
        checkpoint = tmp_path / name / "checkpoint"
        return Stream(headwater_spark, checkpoint, words, {"words": inbox}, mode="append"), inbox, out

    def run(one: tuple[Stream, Inbox, Path], upto: int, files_per_batch: int = 1) -> None:
        query, inbox, out = one
        for number in range(inbox.count, upto):
            inbox.put([{"id": number, "word": "first"}, {"id": number, "word": "second"}])
        query.run_into(lambda writer: writer.format("json").start(str(out)), files_per_batch)

    rewound, control = stream("rewound"), stream("control")
    run(rewound, FEEDS)
    first = rows_of(headwater_spark, rewound[2])
    assert len(first) == 2 * FEEDS
    plan_rewind(rewound[0].files, to=TO, sink=open_files(str(rewound[2]))).apply()
    assert len(rows_of(headwater_spark, rewound[2])) == 2 * (TO + 1)
    run(rewound, FEEDS)
    assert rows_of(headwater_spark, rewound[2]) == first

    plan_rewind(rewound[0].files, to=TO, replan=True, sink=open_files(str(rewound[2]))).apply()
    run(rewound, FEEDS + MORE, files_per_batch=3)
    run(control, FEEDS + MORE)
    assert rows_of(headwater_spark, rewound[2]) == rows_of(headwater_spark, control[2])
