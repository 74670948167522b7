"""Checkpoints that each vary one option, source, sink or ending, most of them on one store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import feeds, queries, typed_columns
from .case import STORES, Case, Inputs, Stream

_STATE = "spark.sql.streaming.stateStore"
_EVENTS = {"events": feeds.events()}
_MANY_EVENTS = {"events": feeds.events(feeds=7)}
_ADS = feeds.shown_and_clicked()
_FEW_RETAINED = {"spark.sql.streaming.minBatchesToRetain": "2", "spark.sql.streaming.asyncLogPurge.enabled": "false"}


def variations() -> list[Case]:
    return [
        *_other_operators(),
        *_state_encodings(),
        *_types(),
        *_retention_and_endings(),
        *_logs_and_sinks(),
        *_other_sources(),
    ]


def _case(
    name: str,
    description: str,
    query: Callable[[Inputs], Any],
    mode: str,
    streams: Mapping[str, Stream] = _EVENTS,
    store: str = "changelog",
    **more: Any,
) -> Case:
    return Case(name, description, query, streams, mode, store, **more)


def _aggregation(name: str, description: str, **more: Any) -> Case:
    return _case(name, description, queries.aggregation, "update", **more)


def _custom_with_ttl(name: str, conf: Mapping[str, str] | None = None, **more: Any) -> Case:
    # With processing time, Spark always plans another batch, and the run would never end.
    resting = {"spark.sql.streaming.noDataMicroBatches.enabled": "false", **(conf or {})}
    return _case(name, "custom state with a time-to-live", queries.custom_with_ttl, "update", conf=resting, **more)


def _other_operators() -> list[Case]:
    q = queries
    both = ("hdfs", "changelog")
    made = [
        _case(f"complete-{on}", "counts per kind, complete mode", q.complete_aggregation, "complete", store=on)
        for on in both
    ]
    made += [
        _case(f"global-{on}", "one global count: the key has no columns", q.global_count, "update", store=on)
        for on in both
    ]
    made += [
        _case(f"dedup-within-{on}", "dropDuplicatesWithinWatermark", q.dedup_within_watermark, "append", store=on)
        for on in both
    ]
    made += [
        _case(f"left-join-{on}", "left outer stream-stream join", q.left_outer_join, "append", _ADS, on) for on in both
    ]
    return [
        *made,
        _case("dedup-forever", "dropDuplicates without a watermark", q.dedup_without_watermark, "append"),
        _case("dedup-window", "dedup, then windowed counts", q.dedup_then_window, "append"),
        _custom_with_ttl("custom-ttl"),
        _custom_with_ttl("custom-ttl-rocksdb", store="rocksdb"),
        _case("custom-in-pandas", "transformWithStateInPandas", q.custom_in_pandas, "update"),
        _case("stateless", "a filter, no state", q.stateless, "append"),
    ]


def _state_encodings() -> list[Case]:
    q = queries
    codec, checksum = f"{_STATE}.compression.codec", {f"{_STATE}.rowChecksum.enabled": "true"}
    made = [
        _aggregation(f"{name}-{on}", f"state files compressed with {name}", store=on, conf={codec: name})
        for name in ("zstd", "snappy", "lzf")
        for on in ("hdfs", "changelog")
    ]
    made += [
        _aggregation(f"row-checksum-{on}", "a checksum in every state row", store=on, conf=checksum) for on in STORES
    ]
    join, merge = "spark.sql.streaming.join.stateFormatVersion", f"{_STATE}.rocksdb.mergeOperatorVersion"
    avro = {f"{_STATE}.encodingFormat": "avro"}
    return [
        *made,
        _case("row-checksum-custom", "a checksum in every row, lists too", q.custom, "update", conf=checksum),
        _case("avro-custom", "custom state encoded with Avro", q.custom, "update", conf=avro),
        _case("avro-custom-rocksdb", "custom state encoded with Avro", q.custom, "update", store="rocksdb", conf=avro),
        _custom_with_ttl("avro-ttl", conf=avro),
        _case("avro-format2", "custom state encoded with Avro", q.custom, "update", store="format2", conf=avro),
        _case(
            "avro-evolved",
            "Avro custom state whose value got a column after a restart",
            q.custom,
            "update",
            conf=avro,
            restart_after=3,
            query_after_restart=q.custom_with_one_more_column,
        ),
        _case("merge1-custom", "lists joined by a comma", q.custom, "update", conf={merge: "1"}),
        _case(
            "merge1-custom-rocksdb", "lists joined by a comma", q.custom, "update", store="rocksdb", conf={merge: "1"}
        ),
        _case("join3", "join in one store of column families", q.left_outer_join, "append", _ADS, conf={join: "3"}),
        _case(
            "join3-rocksdb",
            "join in one store of column families",
            q.inner_join,
            "append",
            _ADS,
            "rocksdb",
            conf={join: "3"},
        ),
        _case(
            "join4",
            "join state format 4: keys with event times",
            q.left_outer_join,
            "append",
            _ADS,
            conf={join: "4", "spark.sql.streaming.join.stateFormatV4.enabled": "true"},
        ),
        _aggregation(
            "aggregation1-hdfs",
            "aggregation state format 1: the key again in the value",
            store="hdfs",
            conf={"spark.sql.streaming.aggregation.stateFormatVersion": "1"},
        ),
    ]


def _types() -> list[Case]:
    t, newer = typed_columns, {"spark.sql.timeType.enabled": "true"}
    keys = "every type in the key, by dropDuplicates"
    values = "every type in the value, by last()"
    made = [
        _case(f"typed-keys-{on}", keys, t.distinct_keys, "append", t.key_rows(), on, precise=True)
        for on in ("hdfs", "changelog")
    ]
    made += [
        _case(f"typed-values-{on}", values, t.last_values, "update", t.value_rows(), on, conf=newer, precise=True)
        for on in ("hdfs", "changelog")
    ]
    made += [
        _case(f"typed-struct-{on}", values, t.last_struct, "update", t.value_rows(), on, conf=newer, precise=True)
        for on in ("rocksdb", "format2")
    ]
    return made


def _retention_and_endings() -> list[Case]:
    made = [
        _aggregation(f"pruned-{on}", "early batches pruned", streams=_MANY_EVENTS, store=on, conf=_FEW_RETAINED)
        for on in STORES
    ]
    made += [
        _aggregation(f"crashed-after-{on}", "last batch planned, its state written, no commit", store=on, crash="after")
        for on in STORES
    ]
    changelog = "rocksdb.changelogCheckpointing.enabled"
    return [
        *made,
        _case("pruned-custom", "early batches pruned", queries.custom, "update", _MANY_EVENTS, conf=_FEW_RETAINED),
        _aggregation("crashed-before", "last batch planned, nothing else", crash="before"),
        _case("crashed-custom", "custom state, no commit of the last batch", queries.custom, "update", crash="after"),
        _aggregation("no-snapshots", "changelogs only", conf={f"{_STATE}.minDeltasForSnapshot": "50"}),
        _aggregation("often-snapshots", "a snapshot every second batch", conf={f"{_STATE}.minDeltasForSnapshot": "2"}),
        _aggregation("five-partitions", "five shuffle partitions", conf={"spark.sql.shuffle.partitions": "5"}),
        _aggregation("restarted", "stopped and started again", restart_after=3),
        _aggregation(
            "changelog-turned-on",
            "RocksDB snapshots first, changelogs after a restart",
            store="rocksdb",
            restart_after=3,
            conf_after_restart={f"{_STATE}.{changelog}": "true"},
        ),
        _aggregation("unloaded", "stores closed after every commit", conf={f"{_STATE}.unloadOnCommit": "true"}),
        _case(
            "evictions", "append mode: rows leave the state when emitted", queries.aggregation, "append", _MANY_EVENTS
        ),
    ]


def _logs_and_sinks() -> list[Case]:
    gone = {
        f"spark.sql.streaming.{log}.log.{key}": value
        for log in ("fileSource", "fileSink")
        for key, value in (("compactInterval", "2"), ("cleanupDelay", "0"))
    }
    evolution = "spark.sql.streaming.queryEvolution"
    offsets2 = {"spark.sql.streaming.offsetLog.formatVersion": "2"}
    return [
        _case("sink-stateless", "file sink, compacted log", queries.stateless, "append", _MANY_EVENTS, sink="files"),
        _case("sink-session-hdfs", "file sink", queries.session, "append", store="hdfs", sink="files"),
        _case("sink-session", "file sink", queries.session, "append", _MANY_EVENTS, sink="files"),
        _case("sink-format2", "file sink", queries.session, "append", store="format2", sink="files"),
        _case(
            "sink-compacted",
            "file logs without what was compacted",
            queries.stateless,
            "append",
            _MANY_EVENTS,
            sink="files",
            conf=gone,
        ),
        _aggregation("one-file-per-batch", "a backlog read file by file", source_options={"maxFilesPerTrigger": "1"}),
        _aggregation("offsets2", "offset log version 2", conf=offsets2),
        _case("offsets2-join", "offset log version 2, two sources", queries.inner_join, "append", _ADS, conf=offsets2),
        _case(
            "named",
            "named sources and sink: offset log 2, commit log 3",
            queries.inner_join,
            "append",
            _ADS,
            named=True,
            conf={f"{evolution}.enableSourceEvolution": "true", f"{evolution}.enableSinkEvolution": "true", **offsets2},
        ),
    ]


def _other_sources() -> list[Case]:
    six_runs = {"events": Stream("", ((),) * 6)}
    paced = {"rowsPerBatch": "9", "startTimestamp": "1714557600000", "advanceMillisPerBatch": "300000"}
    made = [
        _aggregation(
            f"rate-micro-batch-{on}",
            "rate-micro-batch source",
            streams=six_runs,
            store=on,
            source="rate-micro-batch",
            source_options={**paced, "numPartitions": "1"},
        )
        for on in ("hdfs", "changelog")
    ]
    made += [
        _aggregation("rate", "rate source", streams=six_runs, source="rate", source_options={"rowsPerSecond": "3"}),
        _case("rate-stateless", "rate source", queries.stateless, "append", six_runs, source="rate"),
    ]
    made += [_aggregation(f"kafka-{on}", "Kafka source", store=on, source="kafka") for on in STORES]
    return [
        *made,
        _case("kafka-join", "Kafka, two topics", queries.inner_join, "append", _ADS, source="kafka"),
        _case("kafka-custom", "Kafka, custom state", queries.custom, "update", source="kafka"),
        _case("kafka-stateless", "Kafka, a filter", queries.stateless, "append", source="kafka"),
        _case("kafka-to-kafka", "Kafka to Kafka", queries.stateless_as_json, "append", source="kafka", sink="kafka"),
        _case(
            "kafka-async",
            "asynchronous progress: offsets and commits only now and then",
            queries.stateless_as_json,
            "append",
            _MANY_EVENTS,
            source="kafka",
            sink="kafka",
            sink_options={
                "asyncProgressTrackingEnabled": "true",
                "asyncProgressTrackingCheckpointIntervalMs": "1000",
            },
        ),
        _case("kafka-to-files", "Kafka to files", queries.stateless, "append", source="kafka", sink="files"),
        _aggregation("kafka-pruned", "Kafka", streams=_MANY_EVENTS, source="kafka", conf=_FEW_RETAINED),
        _aggregation(
            "kafka-limited", "a few records a batch", source="kafka", source_options={"maxOffsetsPerTrigger": "5"}
        ),
    ]
