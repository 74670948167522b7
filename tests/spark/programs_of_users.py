"""Programs that start jobs: one on a session that Headwater creates, one on a session of its own.

Each prints one JSON object per line for the test that runs it.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headwater import Console, Files, Job, Kafka
from headwater.errors import HeadwaterError
from headwater.spark.prepared import prepare_job

NUMBERS = Files("in", schema="number INT", options={"maxFilesPerTrigger": "1"})


def per_parity(rows: DataFrame) -> DataFrame:
    """How many numbers are even, how many odd."""
    return rows.groupBy((rows.number % 2).alias("odd")).count()


def slowly(rows: DataFrame) -> DataFrame:
    """The numbers, a second later."""
    time.sleep(1)
    return rows


PARITY = Job("parity", per_parity, reads=NUMBERS, writes=Console(), mode="complete")
SLOW = Job("slow", slowly, reads=NUMBERS, writes=Files("out", format="json"), per_batch=True)
ON_KAFKA = Job("on-kafka", slowly, reads=Kafka("visits", schema="number INT"), writes=Console())


def show(**values: Any) -> None:
    print("\n" + json.dumps(values), flush=True)


def headwaters_session() -> None:
    """Start two jobs on one session, and run until killed."""
    first = PARITY.start()
    second = SLOW.start()
    while first.progress is None or second.progress is None:
        time.sleep(0.05)
    show(
        same=first.spark.sparkContext is second.spark.sparkContext,
        zone=first.spark.conf.get("spark.sql.session.timeZone"),
    )
    time.sleep(600)


def own_session() -> None:
    """Use a session with few settings, none of them Headwater's, then exit within a batch."""
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with PARITY.start(spark, trigger="available-now") as parity:
            parity.wait()
        again = PARITY.start(trigger="available-now")  # the same session: it is the one of this process
        again.wait()
    assert parity.progress is not None
    show(
        warned=[(str(one.message), one.filename) for one in warned if issubclass(one.category, UserWarning)],
        first_batch=parity.progress.batch_id - parity.totals.batches + 1,
        batches=len(parity.checkpoint.batches),
        again=again.totals.batches,
    )
    try:
        prepare_job(spark, ON_KAFKA)
    except HeadwaterError as error:
        show(code=error.code, remedy=error.remedy)
    running = SLOW.start(spark)
    while running.status != "processing new data":
        time.sleep(0.01)


def stopped_session() -> None:
    """Stop the session below a running job, then start the job again, in the same process."""
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    warnings.simplefilter("ignore")
    running = SLOW.start(spark)
    while running.progress is None:
        time.sleep(0.05)
    spark.stop()
    running.stop()
    try:
        SLOW.start(spark)
    except HeadwaterError as error:
        show(ended=not running.is_active, code=error.code)
    again = SLOW.start(trigger="available-now")
    again.wait()
    show(zone=again.spark.conf.get("spark.sql.session.timeZone"), batches=again.totals.batches)


if __name__ == "__main__":
    {"headwaters": headwaters_session, "own": own_session, "stopped": stopped_session}[sys.argv[1]]()
