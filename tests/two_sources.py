"""Checkpoints of queries with several sources, made by hand: offsets, watermarks and records as a test needs them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.record import PROGRESS_FILE, OperatorWatermark, ProgressRecord, SourceProgress

T0 = 1_700_000_000_000
MINUTE = 60_000


def at_ms(minute: float | None) -> int:
    """Return a time in minutes after T0 as Spark writes it: 0 if there is none."""
    return 0 if minute is None else T0 + round(minute * MINUTE)


class TwoSources:
    """Batches one after another; ``read`` lists how many records each one reads from each topic or folder."""

    def __init__(self, *kinds: str, policy: str = "min", first: int = 0) -> None:
        self.kinds = kinds or ("kafka shown", "kafka clicked")
        self.policy = policy
        self.first = self.number = first
        self.contents: dict[str, bytes] = {"metadata": b'{"id":"two"}'}
        self.read = [0 if first == 0 else 100 for _ in self.kinds]
        self.records: list[ProgressRecord] = []
        for place, kind in enumerate(self.kinds):
            self._log(place, kind)

    def _log(self, place: int, kind: str) -> None:
        name, _, where = kind.partition(" ")
        if name == "kafka":
            self.contents[f"sources/{place}/0"] = f'\0v1\n{{"{where}":{{"0":0}}}}'.encode()
        elif name == "files":
            entry = json.dumps({"path": f"file://{where}/0.json", "timestamp": 1, "batchId": 0})
            self.contents[f"sources/{place}/0"] = f"v1\n{entry}".encode()

    def batch(
        self,
        *read: int,
        watermark: float | None,
        after: float | None = None,
        committed: bool = True,
        reached: Mapping[tuple[str, str], float | None] | None = None,
        lags: Sequence[int] = (),
    ) -> TwoSources:
        """Add a batch with its watermark and the one after it, in minutes after T0.

        With ``reached``, the newest event time by operator, or ``lags``, the unread records by source, it has a record.
        """
        self.read = [before + count for before, count in zip(self.read, read, strict=True)]
        planned = T0 + self.number * 1000
        conf = {"spark.sql.streaming.multipleWatermarkPolicy": self.policy}
        metadata = {"batchWatermarkMs": at_ms(watermark), "batchTimestampMs": planned, "conf": conf}
        offsets = [self._offset(kind, count) for kind, count in zip(self.kinds, self.read, strict=True)]
        self.contents[f"offsets/{self.number}"] = "\n".join(["v1", json.dumps(metadata), *offsets]).encode()
        if committed:
            commit = {"nextBatchWatermarkMs": at_ms(watermark if after is None else after)}
            self.contents[f"commits/{self.number}"] = f"v1\n{json.dumps(commit)}".encode()
        if reached is not None or lags:
            operators = tuple(
                OperatorWatermark(source, column, MINUTE, None if newest is None else at_ms(newest))
                for (source, column), newest in (reached or {}).items()
            )
            sources = tuple(
                SourceProgress(str(place), records=count, lag_rows=lag)
                for place, (count, lag) in enumerate(zip(read, lags, strict=False))
            )
            record = ProgressRecord(self.number, planned, duration_ms=10, sources=sources, watermarks=operators)
            self.records.append(record)
            self.contents[PROGRESS_FILE] = "".join(record.to_line() for record in self.records).encode()
        self.number += 1
        return self

    @staticmethod
    def _offset(kind: str, count: int) -> str:
        name, _, where = kind.partition(" ")
        if count == 0:
            return "-"
        return json.dumps({where: {"0": count}} if name == "kafka" else {"logOffset": count - 1})

    def with_job(self, **sources: str) -> TwoSources:
        """Record the sources of a job, by name."""
        self.contents[JOB_FILE] = json.dumps({"job": "join", "sources": sources}).encode()
        return self

    def write(self, folder: Path) -> Path:
        """Write the checkpoint to a folder."""
        files = LocalTree(folder)
        for path, data in self.contents.items():
            files.write(path, data)
        return folder

    @property
    def files(self) -> MemoryTree:
        return MemoryTree(dict(self.contents))
