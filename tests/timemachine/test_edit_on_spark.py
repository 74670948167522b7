"""Edited and imported state on real Spark: Spark reads what was written, and streams continue from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from corpus_maker import answers, custom_state, queries
from corpus_support import CorpusCheckpoint, corpus_names
from headwater import Checkpoint
from headwater.checkpoint.checks import run_checks
from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.local_tree import LocalTree
from headwater.core.ids import StoreRef
from headwater.spark.internals.state_stores import unload_state_stores
from headwater.spark.session import matching_checkpoint_format
from headwater.statefiles.reader import StateReader
from headwater.timemachine.edit import StateEditor
from headwater.timemachine.fork import plan_fork
from headwater.timemachine.row_edits import ROW_COUNTER, Wanted
from headwater.timemachine.transfer import export_tables, plan_import
from timemachine.spark_runs import EAGER, STORES, Inbox, Query, Stream
from timemachine.test_erase import files_with

cloudpickle.register_pickle_by_value(custom_state)  # workers cannot import the modules of tests
Corpus = Callable[[str], CorpusCheckpoint]

READ_BY_SPARK = ("typed-values-changelog", "typed-keys-hdfs", "custom-format2", "session-rocksdb", "join-changelog")
# What this version of Spark cannot read, or what cannot be written.
LEFT_OUT = ("spark", "crashed", "offsets2", "join4", "named", "kafka-async")
OTHERS = [name for name in corpus_names() if not name.startswith(LEFT_OUT) and name not in READ_BY_SPARK]


def rewritten_by_headwater(held: CorpusCheckpoint, folder: Path) -> LocalTree:
    """Return a copy of a checkpoint in which all state was removed, and then imported from an export."""
    files = LocalTree(folder)
    origin = LocalTree(held.path)
    last = StateReader(origin).latest()
    plan_fork(origin, files, at=last).apply()
    reader = StateReader(files)
    operators = reader.logs.state.operators
    exported = {
        f"{operator} {number}": table
        for operator in operators
        for number, table in enumerate(export_tables(reader, last, StoreRef(operator)))
    }
    editor = StateEditor(files)
    everything = [target for target in editor.targets if target.kind not in ("side",)]
    parts = [target for target in everything if not (target.family or "").startswith(ROW_COUNTER)]
    editor.plan({target: Wanted(complete=True) for target in parts}).apply()
    assert not any(table.num_rows for table in export_tables(StateReader(files), last + 1))
    plan_import(files, exported).apply()
    return files


def check_against_spark(spark: SparkSession, held: CorpusCheckpoint, folder: Path) -> int:
    files = rewritten_by_headwater(held, folder)
    batch = StateReader(files).latest()
    _ = spark.streams.active
    found = 0
    with matching_checkpoint_format(spark, files):
        for question in answers._questions(answers.metadata_rows(spark, folder)):
            answer = answers._ask(spark, folder, batch, question, precise=False)
            expected = next(
                one
                for one in held.answers_at(batch - 2)
                if (one.operator_id, one.store_name, one.join_side, one.state_var, one.timers)
                == tuple(answer[name] for name in ("operator_id", "store_name", "join_side", "state_var", "timers"))
            )
            if expected.error is None:
                assert sorted(answer.get("rows", [answer.get("error")])) == sorted(expected.text), expected.question
                found += len(expected.text)
    unload_state_stores(spark)
    return found


def test_spark_reads_what_was_written(headwater_spark: SparkSession, corpus: Corpus, tmp_path: Path) -> None:
    """Rows of all types, in all stores and layouts, are read by Spark as they were before Headwater wrote them."""
    for name in READ_BY_SPARK:
        assert check_against_spark(headwater_spark, corpus(name), tmp_path / name), name


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_spark_reads_the_rest_of_the_corpus(
    headwater_spark: SparkSession, corpus: Corpus, tmp_path: Path, name: str
) -> None:
    """The same for every other checkpoint of the corpus."""
    if StateReader(corpus(name).files).logs.state.stores:
        check_against_spark(headwater_spark, corpus(name), tmp_path / name)


EVENT = "user STRING, kind STRING, amount BIGINT, at TIMESTAMP"


def event(user: str, amount: int = 1, minute: int = 0, kind: str = "buy") -> dict[str, Any]:
    return {"user": user, "kind": kind, "amount": amount, "at": f"2024-05-01T10:{minute:02}:00Z"}


def totals(inputs: dict[str, DataFrame]) -> DataFrame:
    return inputs["events"].groupBy("user").agg(F.sum("amount").alias("total"), F.count("*").alias("n"))


def once(inputs: dict[str, DataFrame]) -> DataFrame:
    return inputs["events"].dropDuplicates(["user"]).select("user")


def sessions(inputs: dict[str, DataFrame]) -> DataFrame:
    return queries.session(inputs).select("user", "n", "total")


@dataclass(frozen=True)
class Story:
    """A stream, an edit of its state, more input, and the rows that plain Python expects of it."""

    query: Query
    mode: str
    first: list[dict[str, Any]]
    edit: Callable[[Checkpoint], None]
    then: list[list[dict[str, Any]]]
    expected: list[dict[str, Any]]


def _edit_totals(held: Checkpoint) -> None:
    held.edit({"user": "a"}, set={"sum": 1000}, reason="a refund").apply()
    held.edit({"user": "b"}, delete=True).apply()
    held.edit({"user": "z"}, set={"sum": 7, "count": 1}, insert=True).apply()
    held.edit(sql="update state set count = count + 10 where user in ('c', 'z')").apply()


def _edit_once(held: Checkpoint) -> None:
    held.edit({"user": "a"}, delete=True).apply()
    held.edit({"user": "z"}, set={"__dummy__": None}, insert=True).apply()


def _edit_sessions(held: Checkpoint) -> None:
    held.edit({"user": "a"}, set={"count": 100, "sum": 5}).apply()
    held.edit({"user": "b"}, delete=True).apply()


def _edit_pandas(held: Checkpoint) -> None:
    held.edit({"user": "a"}, set={"groupState.total": 1000}).apply()
    held.edit({"user": "b"}, delete=True).apply()


def _edit_custom(held: Checkpoint) -> None:
    held.edit({"user": "a"}, var="total", set={"total": 1000}).apply()
    held.edit({"user": "a", "user_map_key.kind": "gift"}, var="by_kind", set={"amount": 5, "n": 1}, insert=True).apply()
    held.edit({"user": "a"}, var="recent", set={"list_value": [{"amount": 9, "kind": "x"}] * 3}).apply()
    held.edit({"user": "b"}, delete=True, reason="asked to be forgotten").apply()


STORIES = {
    "aggregation": Story(
        totals,
        "update",
        [event("a", 1), event("b", 2), event("c", 3)],
        _edit_totals,
        [[event("a", 5), event("b", 5), event("c", 5), event("z", 5)]],
        [
            {"user": "a", "total": 1005, "n": 2},
            {"user": "b", "total": 5, "n": 1},
            {"user": "c", "total": 8, "n": 12},
            {"user": "z", "total": 12, "n": 12},
        ],
    ),
    "dedup": Story(
        once, "append", [event("a"), event("b")], _edit_once, [[event("a"), event("b"), event("z")]], [{"user": "a"}]
    ),
    "session": Story(
        sessions,
        "append",
        [event("a", 1), event("b", 2)],
        _edit_sessions,
        [[event("a", 2, 1)], [event("c", 1, 59)], [event("c", 1, 59)]],
        [{"user": "a", "n": 101, "total": 7}],
    ),
    "pandas state": Story(
        queries.pandas_state,
        "update",
        [event("a", 1), event("b", 2)],
        _edit_pandas,
        [[event("a", 5), event("b", 5)]],
        [
            {"user": "a", "total": 1005, "n": 2, "kinds": None, "closed": False},
            {"user": "b", "total": 5, "n": 1, "kinds": None, "closed": False},
        ],
    ),
    "custom": Story(
        queries.custom,
        "update",
        [event("a", 1), event("b", 2)],
        _edit_custom,
        [[event("a", 5, 1), event("b", 5, 1)]],
        [
            {"user": "a", "total": 1005, "n": 2, "kinds": 2, "closed": False},
            {"user": "b", "total": 5, "n": 1, "kinds": 1, "closed": False},
        ],
    ),
}


_STATE = "spark.sql.streaming.stateStore"
ENCODINGS = {
    "plain": {},
    "Avro": {f"{_STATE}.encodingFormat": "avro"},
    "checksums": {f"{_STATE}.rowChecksum.enabled": "true"},
    "Avro and checksums": {f"{_STATE}.encodingFormat": "avro", f"{_STATE}.rowChecksum.enabled": "true"},
}


def follow(spark: SparkSession, folder: Path, story: Story, store: str, encoding: str = "plain") -> None:
    """Edit, undo and edit again, then continue; then rewind across the edits and continue without them."""
    inbox = Inbox(folder / "events", EVENT)
    conf = {**STORES[store], **ENCODINGS[encoding]}
    stream = Stream(spark, folder / "checkpoint", story.query, {"events": inbox}, mode=story.mode, conf=conf)
    inbox.put(story.first)
    stream.run()
    held = Checkpoint(stream.checkpoint)
    last, before = held.batches[-1].batch_id, stream.state(held.batches[-1].batch_id)
    story.edit(held)
    edits = len(held.batches) - last - 1
    for _ in range(edits):
        held.undo().apply()
    assert stream.state(held.batches[-1].batch_id) == before
    story.edit(held)
    edited = held.batches[-1].batch_id
    assert edited == last + edits
    assert not [one for one in run_checks(CheckContext(stream.files, 0)) if one.severity == "error"]
    for rows in story.then:
        inbox.put(rows)
    found = [json.loads(row) for rows in stream.run().values() for row in rows]
    assert found == story.expected

    held.plan_rewind(to=last, replan=True).apply()
    assert stream.state(last) == before
    again = [json.loads(row) for rows in stream.run().values() for row in rows]
    assert again != story.expected
    assert again


@pytest.mark.parametrize(
    ("name", "store", "encoding"),
    [("aggregation", "format2", "plain"), ("custom", "changelog", "Avro and checksums")],
)
def test_a_stream_continues_from_edited_state(
    headwater_spark: SparkSession, tmp_path: Path, name: str, store: str, encoding: str
) -> None:
    """After an edit, the stream emits what plain Python expects; after a rewind across it, it is as if never edited."""
    follow(headwater_spark, tmp_path, STORIES[name], store, encoding)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "store", "encoding"),
    [
        *(
            ("custom", store, encoding)
            for store in ("rocksdb", "format2")
            for encoding in ENCODINGS
            if encoding != "plain"
        ),
        ("aggregation", "changelog", "checksums"),  # Spark has Avro for custom state only
        ("dedup", "hdfs", "checksums"),
    ],
)
def test_all_encodings(headwater_spark: SparkSession, tmp_path: Path, name: str, store: str, encoding: str) -> None:
    """Spark finds keys in Avro by their bytes, and verifies the checksum of every row that it loads."""
    follow(headwater_spark, tmp_path, STORIES[name], store, encoding)


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", STORIES)
def test_all_operators_on_all_stores(headwater_spark: SparkSession, tmp_path: Path, name: str, store: str) -> None:
    """The same for all operators on all stores, except for custom state on HDFS-backed ones, which Spark lacks."""
    if (name, store) != ("custom", "hdfs"):
        follow(headwater_spark, tmp_path, STORIES[name], store)


def continue_after_erasure(
    spark: SparkSession, folder: Path, story: Story, store: str, batches: int = 3, encoding: str = "plain"
) -> None:
    """Erase a user after some batches, and continue for enough batches that Spark writes snapshots of its own."""
    inbox = Inbox(folder / "events", EVENT)
    conf = {**STORES[store], **EAGER, **ENCODINGS[encoding]}
    stream = Stream(spark, folder / "checkpoint", story.query, {"events": inbox}, mode=story.mode, conf=conf)
    for minute in range(batches):
        inbox.put([event("a", 1, minute), event("erased", 2, minute), event("c", 3, minute)])
        stream.run()
    held = Checkpoint(stream.checkpoint)
    before = stream.state(held.batches[-1].batch_id)
    held.edit({"user": "erased"}, delete=True, erase=True).apply()
    assert files_with(stream.checkpoint, "erased") == []
    kept = [row for row in before if "'erased'" not in str(row) and '"erased"' not in str(row)]
    assert stream.state(held.batches[-1].batch_id) == kept != before
    totals_of_a = []
    for minute in range(batches, 2 * batches):
        inbox.put([event("a", 1, minute), event("new", 1, minute)])
        totals_of_a += [row for rows in stream.run().values() for row in map(json.loads, rows) if row["user"] == "a"]
    if story.mode == "update":
        assert [row["total"] for row in totals_of_a] == list(range(batches + 1, 2 * batches + 1))
    assert files_with(stream.checkpoint, "erased") == []
    assert not [one for one in run_checks(CheckContext(stream.files, 0)) if one.severity == "error"]


def test_a_stream_continues_after_an_erasure(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """Spark loads the snapshot that Headwater wrote, and adds changelogs and snapshots of its own."""
    continue_after_erasure(headwater_spark, tmp_path, STORIES["aggregation"], "format2", batches=2)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", [name for name in ENCODINGS if name != "plain"])
def test_an_erasure_in_all_encodings(headwater_spark: SparkSession, tmp_path: Path, encoding: str) -> None:
    """The rows that stay are copied with their checksums, lists of custom state too."""
    continue_after_erasure(headwater_spark, tmp_path, STORIES["custom"], "changelog", encoding=encoding)


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", STORIES)
def test_erasures_of_all_operators_on_all_stores(
    headwater_spark: SparkSession, tmp_path: Path, name: str, store: str
) -> None:
    """The same for all operators on all stores, except for custom state on HDFS-backed ones, which Spark lacks."""
    if (name, store) != ("custom", "hdfs"):
        continue_after_erasure(headwater_spark, tmp_path, STORIES[name], store)
