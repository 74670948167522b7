"""The trigger decides when batches run and does not change the result."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from headwater import Files, Memory
from headwater.checkpoint.record import ProgressRecord
from headwater.core.times import iso_from_ms, ms_from_iso
from headwater.jobs.endpoints import inherit_decoding
from headwater.jobs.loading import load_job
from headwater.spark.ownership import Run
from headwater.spark.runner import run_job
from headwater.spark.writing import captured_rows

TRIGGERS = (None, "once", "available-now", "100 milliseconds")
FILES, EVENTS = 4, 5


def test_every_trigger_has_the_same_result(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """The final windows are the same for asap, once, available-now and an interval."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    start_ms = ms_from_iso("2024-03-01T10:00:00Z")
    for number in range(FILES):
        times = [iso_from_ms(start_ms + (number * EVENTS + place) * 100_000) for place in range(EVENTS)]
        file = inbox / f"{number}.json"
        file.write_text("".join(json.dumps({"User": "a", "event_time": time}) + "\n" for time in times))
        os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))
    job = load_job("sliding-counts")
    answers = []
    for number, trigger in enumerate(TRIGGERS):
        limit = {} if trigger == "once" else {"maxFilesPerTrigger": "1"}
        source = inherit_decoding(Files(str(inbox), options=limit), job.reads)
        chosen = replace(job, reads=source, writes=Memory(f"windows_{number}"), trigger=trigger)
        stop, read = threading.Event(), []

        def on_batch(batch: ProgressRecord, stop: threading.Event = stop, read: list[int] = read) -> None:
            read.append(batch.input_rows)
            if sum(read) == FILES * EVENTS:
                stop.set()

        run_job(
            headwater_spark, Run(chosen, "test", str(tmp_path / f"checkpoint-{number}")), stop=stop, on_batch=on_batch
        )
        assert len([rows for rows in read if rows]) == (1 if trigger == "once" else FILES)
        table = captured_rows(headwater_spark.table(f"windows_{number}"))
        answers.append(sorted((row["window"]["start"], row["count"]) for row in table))
    assert sum(count for _, count in answers[0]) == 2 * FILES * EVENTS
    assert answers == [answers[0]] * len(TRIGGERS)
