"""Run one case on real Spark, feed by feed, and archive the result."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import queries
from .answers import metadata_rows, note_session_windows, rows_as_json, state_answers
from .archive import pack, unpack
from .case import Case
from .sources import Feeder, kafka_sink, open_feeder

SETTLE_SECONDS = 0.35  # three maintenance intervals: snapshots are written by a background thread


class Crash(Exception):
    """Raised in a batch to simulate a crash."""


def make(spark: Any, case: Case, archive: Path) -> None:
    """Write the checkpoint of a case and everything that is known about it to one archive."""
    shutil.rmtree(case.place, ignore_errors=True)
    case.place.mkdir(parents=True)
    for key, value in case.settings.items():
        spark.conf.set(key, value)
    try:
        feeder = open_feeder(spark, case)
        run = _Run(spark, case, feeder)
        run.all_feeds()
        feeder.close()
        wait_until_quiet(case.place)
        left = case.place.with_name(f".{case.name}")  # reading must not change what is packed
        shutil.rmtree(left, ignore_errors=True)
        shutil.copytree(case.place, left, copy_function=shutil.copy2)
        notes = {"case": _describe(spark, case), "progress": run.progress, "emitted": run.emitted}
        notes |= answer_notes(spark, case)
        pack(left, notes, archive)
        shutil.rmtree(left)
        shutil.rmtree(case.place)
    finally:
        for key in {**case.settings, **case.conf_after_restart}:
            spark.conf.unset(key)


def answer_again(spark: Any, case: Case, archive: Path) -> None:
    """Add this Spark's answers to an archive that another Spark version or an earlier run created."""
    left = case.place.with_name(f".{case.name}")
    for place in (case.place, left):
        shutil.rmtree(place, ignore_errors=True)
        unpack(archive, place)
    notes = {note.stem: json.loads(note.read_text("utf-8")) for note in sorted(left.glob("*.json"))}
    for name in notes:
        (left / f"{name}.json").unlink()
    settings = notes["case"]["settings"]
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        notes["case"]["answered_by"] = spark.version
        pack(left, notes | answer_notes(spark, case), archive)
    finally:
        for key in settings:
            spark.conf.unset(key)
        for place in (case.place, left):
            shutil.rmtree(place)


def answer_notes(spark: Any, case: Case) -> dict[str, Any]:
    """Return the answers of Spark's readers for the checkpoint in the case's folder."""
    checkpoint = case.place / "checkpoint"
    if not (checkpoint / "state").exists() or spark.version.startswith("3."):
        return {"metadata": [], "answers": []}
    metadata = metadata_rows(spark, checkpoint)
    if not metadata and case.query is queries.session:
        note_session_windows(checkpoint)
    return {
        "metadata": metadata,
        "answers": state_answers(spark, checkpoint, case.precise),
    }


def wait_until_quiet(place: Path) -> None:
    """Return when nothing has changed for a while: stores outlive their query until maintenance unloads them."""
    before: dict[Path, int] = {}
    while (now := {path: path.lstat().st_mtime_ns for path in place.rglob("*")}) != before:
        before = now
        time.sleep(2 * SETTLE_SECONDS)


def _describe(spark: Any, case: Case) -> dict[str, Any]:
    return {
        "name": case.name,
        "description": case.description,
        "spark_version": spark.version,
        "answered_by": spark.version,
        "location": str(case.place),
        "operator_query": case.query.__name__,
        "mode": case.mode,
        "store": case.store,
        "source": case.source,
        "sink": case.sink,
        "crash": case.crash,
        "settings": case.settings,
    }


class _Run:
    def __init__(self, spark: Any, case: Case, feeder: Feeder) -> None:
        self._spark, self._case, self._feeder = spark, case, feeder
        self.progress: list[dict[str, Any]] = []
        self.emitted: list[dict[str, Any]] = []
        self._crash_now = False
        self._query = case.query

    def all_feeds(self) -> None:
        query = None
        for feed in range(self._case.feed_count):
            last = feed == self._case.feed_count - 1
            self._crash_now = last and self._case.crash is not None
            self._feeder.feed(feed)
            query = query or self._start(feed)
            self._wait(query, feed)
            if self._case.runs_each_feed or feed + 1 == self._case.restart_after:
                self._end(query)
                query = None
        if query:
            self._end(query)

    def _wait(self, query: Any, feed: int) -> None:
        try:
            if self._case.runs_each_feed:
                query.awaitTermination()
            elif self._case.real_time:
                self._wait_for_rows(query, feed)
            else:
                query.processAllAvailable()
        except Exception:
            if not self._crash_now:
                raise
        time.sleep(SETTLE_SECONDS)

    def _wait_for_rows(self, query: Any, feed: int) -> None:
        """Wait until a batch has ended that read the feed: a real-time query never reports that it has nothing to do."""
        fed = sum(len(rows) for stream in self._case.streams.values() for rows in stream.feeds[: feed + 1])
        while sum(progress["numInputRows"] for progress in query.recentProgress) < fed:
            if not query.isActive:
                raise RuntimeError(f"{self._case.name} has ended: {query.exception()}")
            time.sleep(SETTLE_SECONDS)

    def _start(self, feed: int) -> Any:
        case, restarted = self._case, self._case.restart_after == feed
        if restarted:
            for key, value in case.conf_after_restart.items():
                self._spark.conf.set(key, value)
        self._query = case.query_after_restart if restarted and case.query_after_restart else self._query
        writer = self._query(self._feeder.inputs()).writeStream.outputMode(case.mode).queryName(case.name)
        writer = writer.options(checkpointLocation=str(case.place / "checkpoint"), **case.sink_options)
        if case.trigger:
            writer = writer.trigger(**case.trigger)
        if case.named:
            writer._jwrite.name("corpus_sink")  # PySpark has no method for it yet
        if case.sink == "kafka":
            return writer.format("kafka").options(**kafka_sink(case)).start()
        if case.sink == "files":
            return writer.format("json").start(str(case.place / "sink"))
        return writer.foreachBatch(self._note_batch()).start()

    def _end(self, query: Any) -> None:
        self.progress += [json.loads(_progress_json(progress)) for progress in query.recentProgress]
        query.stop()

    def _note_batch(self) -> Callable[[Any, int], None]:
        def note(frame: Any, batch: int) -> None:
            if self._crash_now and self._case.crash == "before":
                raise Crash
            rows = rows_as_json(frame)
            if self._crash_now:
                raise Crash
            self.emitted.append({"batch_id": batch, "rows": rows})

        return note


def _progress_json(progress: Any) -> str:
    return str(progress.json) if hasattr(progress, "json") else json.dumps(progress)
