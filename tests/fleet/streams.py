"""Checkpoints for tests of many streams: small ones made by hand, with the records that Headwater would have written."""

from __future__ import annotations

import json
from pathlib import Path

from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.record import PROGRESS_FILE, ProgressRecord

T0 = 1_700_000_000_000


def write_stream(
    folder: Path,
    *,
    batches: int = 8,
    committed: int | None = None,
    source: str = "visits",
    job: dict[str, object] | None = None,
    records: list[ProgressRecord] | None = None,
) -> Path:
    """Write a checkpoint that reads 100 rows per batch, one batch per second, from a Kafka topic."""

    def write(path: str, text: str) -> None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)

    write("metadata", '{"id":"9d8e"}')
    for number in range(batches):
        about = {"batchWatermarkMs": T0 - 60_000, "batchTimestampMs": T0 + 1000 * number, "conf": {}}
        offsets = json.dumps({source: {"0": 100 * (number + 1)}})
        write(f"offsets/{number}", f"v1\n{json.dumps(about)}\n{offsets}")
        if committed is None or number < committed:
            write(f"commits/{number}", 'v1\n{"nextBatchWatermarkMs":0}')
    if job is not None:
        write(JOB_FILE, json.dumps(job))
    if records:
        write(PROGRESS_FILE, "".join(record.to_line() for record in records))
    return folder


def record(number: int, **values: int) -> ProgressRecord:
    """Return the record of a batch of `write_stream`."""
    return ProgressRecord(number, T0 + 1000 * number, input_rows=100, duration_ms=200, **values)  # type: ignore[arg-type]
