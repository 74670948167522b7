"""Sources that Spark identifies by their order in the plan, or by their names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from broker_support import run_here
from headwater import Console, Files, Job
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.core.errors import JobRefused
from headwater.spark.dropped import DroppedRecords
from headwater.spark.internals.state_stores import unload_state_stores
from headwater.spark.reading import NAMING
from headwater.spark.replay import replay, replayable
from headwater.spark.session import temporary_settings
from headwater.statefiles.reader import state_rows
from headwater.timemachine.fork import plan_fork
from sink_support import committed_lines
from spark.draining import drain_source
from spark.replay_support import put

PARTITIONS = "spark.sql.shuffle.partitions"


def joined(left: DataFrame, right: DataFrame) -> DataFrame:
    """Pairs of the same id within an hour, and rows of the left side without a match."""
    left, right = left.withWatermark("at", "10 minutes"), right.withWatermark("then", "10 minutes")
    return left.join(right, F.expr("id = other AND then BETWEEN at AND at + INTERVAL 1 HOUR"), "left_outer")


def exchanged(left: DataFrame, right: DataFrame) -> DataFrame:
    """The same rows from a plan with the sources in another order."""
    left, right = left.withWatermark("at", "10 minutes"), right.withWatermark("then", "10 minutes")
    pairs = right.join(left, F.expr("id = other AND then BETWEEN at AND at + INTERVAL 1 HOUR"), "right_outer")
    return pairs.select("id", "at", "other", "then")


def with_itself(left: DataFrame, right: DataFrame) -> DataFrame:
    """Uses the left source twice."""
    return joined(left.union(left), right)


def lines(batch: int, names: tuple[str, str]) -> list[str]:
    times = [f"2024-01-01T{10 + batch}:{minute:02d}:00Z" for minute in (0, 10, 20)]
    late = ["2024-01-01T00:00:00Z"] if batch == 2 else []
    alone = [json.dumps({"id": 9, "at": f"2024-01-01T{10 + batch}:15:00Z"})] if names[0] == "id" else []
    return [*alone, *(json.dumps({names[0]: number, names[1]: time}) for number, time in enumerate([*times, *late]))]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    schemas = {"left": "id INT, at TIMESTAMP", "right": "other INT, then TIMESTAMP"}
    folders = {name: tmp_path / name for name in schemas}
    for folder in folders.values():
        folder.mkdir()
    reads = {
        name: Files(str(folders[name]), schema=schema, options={"maxFilesPerTrigger": "1"})
        for name, schema in schemas.items()
    }
    for batch in range(3):
        put(folders["left"], batch, lines(batch, ("id", "at")))
        put(folders["right"], batch, lines(batch, ("other", "then")))
    writes = Files(str(tmp_path / "out"), format="json")
    return Job("joined", joined, reads=reads, writes=writes, trigger="available-now")


@pytest.fixture
def naming(headwater_spark: SparkSession) -> Iterator[None]:
    with temporary_settings(headwater_spark, {NAMING: "true"}):
        yield


def test_a_changed_order_is_refused(headwater_spark: SparkSession, job: Job, tmp_path: Path) -> None:
    """Without names, a plan with the sources in another order would read the offsets of the other source: it is refused."""
    drain_source(headwater_spark, job, tmp_path / "c")
    record = json.loads((tmp_path / "c" / "_headwater" / "job.json").read_text())
    assert record["source_order"] == ["left", "right"]
    with pytest.raises(JobRefused) as refused:
        drain_source(headwater_spark, replace(job, transform=exchanged), tmp_path / "c")
    assert refused.value.code == "source-order"
    assert refused.value.evidence["now"] == "right, left"


@pytest.mark.slow
@pytest.mark.usefixtures("naming")
def test_named_sources(headwater_spark: SparkSession, job: Job, tmp_path: Path) -> None:
    """With names, the number of partitions is kept, and the time machine works as without."""
    checkpoint = tmp_path / "c"
    progress = drain_source(headwater_spark, job, checkpoint)
    expected, files = committed_lines(tmp_path / "out"), LocalTree(checkpoint)
    assert any("then" not in json.loads(row) for row in expected)
    assert sorted(file.name for file in (checkpoint / "sources").iterdir()) == ["left", "right"]
    assert [part.name for part in History(files).batch(2).sources] == ["left", "right"]
    before = sorted(map(str, state_rows(files, 2)))

    finder = DroppedRecords(headwater_spark, job, History(files))
    dropped = [one for batch in progress for one in finder.in_batch(batch.batch_id)]
    assert [one.source for one in dropped] == ["left", "right"]
    assert sum(batch.dropped for batch in progress) == 2
    (again,) = replay(headwater_spark, replayable(job), files, 1, 1)
    assert {row["id"] for row in again.rows} >= {0, 1, 2}

    unload_state_stores(headwater_spark)
    for command in (["fsck", "--strict"], ["log"]):
        done = run_here(command[0], checkpoint, *command[1:])
        assert done.returncode == 0, done.stdout
    plan_fork(files, LocalTree(tmp_path / "fork"), at=1).apply()
    assert sorted(map(str, state_rows(LocalTree(tmp_path / "fork")))) == sorted(map(str, state_rows(files, 1)))
    rewound = run_here("rewind", checkpoint, "--to", 0, "--yes")
    assert rewound.returncode == 0, rewound.stderr
    assert committed_lines(tmp_path / "out") != expected
    with temporary_settings(headwater_spark, {NAMING: "false", PARTITIONS: "5"}):
        drain_source(headwater_spark, job, checkpoint)
    assert committed_lines(tmp_path / "out") == expected
    assert sorted(map(str, state_rows(files, 2))) == before


def counted(left: DataFrame, right: DataFrame, *, swap: bool = False) -> DataFrame:
    """Records of both sources per hour."""
    right = right.select(F.col("other").alias("id"), F.col("then").alias("at"))
    both = right.union(left) if swap else left.union(right)
    return both.withWatermark("at", "10 minutes").groupBy(F.window("at", "1 hour")).count()


@pytest.mark.usefixtures("naming")
def test_named_sources_in_another_order(headwater_spark: SparkSession, job: Job, tmp_path: Path) -> None:
    """With names, the sources of a union may change their order; those of a join may not, because of its state."""
    union = replace(job, transform=counted)
    drain_source(headwater_spark, union, tmp_path / "c")
    for name, columns in {"left": ("id", "at"), "right": ("other", "then")}.items():
        put(tmp_path / name, 3, lines(3, columns))
    drain_source(headwater_spark, replace(union, settings={"swap": True}), tmp_path / "c")
    counts = [json.loads(row)["count"] for row in committed_lines(tmp_path / "out")]
    assert counts == [7, 7, 7]
    drain_source(headwater_spark, replace(job, writes=Console()), tmp_path / "join")
    with pytest.raises(JobRefused, match="order of the sources has changed"):
        drain_source(headwater_spark, replace(job, writes=Console(), transform=exchanged), tmp_path / "join")


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"transform": with_itself}, "uses left twice"), ({"reads": Files("in", schema="a INT")}, "does not name")],
)
@pytest.mark.usefixtures("naming")
def test_sources_that_cannot_be_named(
    headwater_spark: SparkSession, job: Job, tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    """If names are asked for and Spark cannot use them, the job is refused before it starts."""
    chosen = replace(job, **change) if "transform" in change else Job("one", lambda a: a, writes=Console(), **change)
    with pytest.raises(JobRefused) as refused:
        drain_source(headwater_spark, replace(chosen, trigger="available-now"), tmp_path / "c")
    assert refused.value.code == "source-names"
    assert reason in refused.value.evidence["reason"]
