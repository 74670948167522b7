"""How a case's rows reach its query: files, Kafka, or Spark's rate sources, which generate their own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pyspark.sql import functions as F

from .case import Case

KAFKA = "HEADWATER_CORPUS_KAFKA"  # environment variable: host:port of the broker


class Feeder(Protocol):
    """Passes the rows of each feed to the sources that `inputs` opened."""

    def inputs(self) -> Mapping[str, Any]: ...

    def feed(self, number: int) -> None: ...

    def close(self) -> None: ...


def open_feeder(spark: Any, case: Case) -> Feeder:
    kinds: dict[str, Callable[[Any, Case], Feeder]] = {
        "files": FileFeeder,
        "kafka": KafkaFeeder,
        "rate": RateFeeder,
        "rate-micro-batch": RateFeeder,
    }
    return kinds[case.source](spark, case)


def _reader(spark: Any, case: Case, stream: str) -> Any:
    reader = spark.readStream.options(**case.source_options)
    return reader.name(stream) if case.named else reader


class FileFeeder:
    """One JSON file for each stream and feed, written atomically."""

    def __init__(self, spark: Any, case: Case) -> None:
        self._spark, self._case = spark, case
        for name in case.streams:
            (case.place / "input" / name).mkdir(parents=True)

    def inputs(self) -> Mapping[str, Any]:
        return {
            name: _reader(self._spark, self._case, name)
            .schema(stream.schema)
            .json(str(self._case.place / "input" / name))
            for name, stream in self._case.streams.items()
        }

    def feed(self, number: int) -> None:
        drafts = []
        for name, stream in self._case.streams.items():
            lines = [json.dumps(row, ensure_ascii=False) for row in stream.feeds[number]]
            draft = self._case.place / "input" / name / f"_feed-{number:02d}.json"
            draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
            drafts.append(draft)
        for draft in drafts:
            draft.rename(draft.with_name(draft.name.removeprefix("_")))

    def close(self) -> None:
        pass


class KafkaFeeder:
    """One topic of two partitions for each stream; rows go to the partitions in turn."""

    def __init__(self, spark: Any, case: Case) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient, NewTopic

        self._spark, self._case = spark, case
        self._bootstrap = os.environ[KAFKA]
        self._topics = {name: f"corpus-{case.name}-{name}" for name in case.streams}
        self._producer = Producer({"bootstrap.servers": self._bootstrap})
        self._admin = AdminClient({"bootstrap.servers": self._bootstrap})
        self._delete_topics()
        made = self._admin.create_topics([NewTopic(topic, 2, 1) for topic in self._topics.values()])
        for outcome in made.values():
            outcome.result(30)

    def inputs(self) -> Mapping[str, Any]:
        opened = {}
        for name, stream in self._case.streams.items():
            records = (
                _reader(self._spark, self._case, name)
                .format("kafka")
                .option("kafka.bootstrap.servers", self._bootstrap)
                .option("subscribe", self._topics[name])
                .option("startingOffsets", "earliest")
                .load()
            )
            parsed = records.select(F.from_json(F.col("value").cast("string"), stream.schema).alias("row"))
            opened[name] = parsed.select("row.*")
        return opened

    def feed(self, number: int) -> None:
        for name, stream in self._case.streams.items():
            for nth, row in enumerate(stream.feeds[number]):
                value = json.dumps(row, ensure_ascii=False).encode()
                self._producer.produce(self._topics[name], value=value, partition=nth % 2)
        self._producer.flush(30)

    def close(self) -> None:
        self._delete_topics()

    def _delete_topics(self) -> None:
        held = self._admin.list_topics(timeout=30).topics
        doomed = [topic for topic in self._topics.values() if topic in held]
        for outcome in (self._admin.delete_topics(doomed) if doomed else {}).values():
            outcome.result(30)


def kafka_sink(case: Case) -> dict[str, str]:
    """Return the options that send a case's rows to a separate topic."""
    return {"kafka.bootstrap.servers": os.environ[KAFKA], "topic": f"corpus-{case.name}-out"}


class RateFeeder:
    """Spark's rate sources, made to look like the events of the other sources."""

    def __init__(self, spark: Any, case: Case) -> None:
        self._spark, self._case = spark, case

    def inputs(self) -> Mapping[str, Any]:
        ticks = _reader(self._spark, self._case, "events").format(self._case.source).load()
        events = ticks.select(
            F.concat(F.lit("user "), (F.col("value") % 5).cast("string")).alias("user"),
            F.element_at(
                F.array(F.lit("view"), F.lit("buy"), F.lit("sell")), (F.col("value") % 3 + 1).cast("int")
            ).alias("kind"),
            (F.col("value") * 7).alias("amount"),
            F.col("timestamp").alias("at"),
        )
        return {"events": events}

    def feed(self, number: int) -> None:
        pass

    def close(self) -> None:
        pass
