"""Another number of state partitions on real Spark: what comes after is what comes without it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from corpus_support import CorpusCheckpoint
from headwater.checkpoint.checks import run_checks
from headwater.checkpoint.checks.scene import Scene
from headwater.checkpoint.files import LocalFiles
from headwater.checkpoint.history import History
from headwater.core.errors import ChangeRefused
from headwater.spark.repartition import check_repartition, repartition
from headwater.spark.state_stores import unload_state_stores
from headwater.statefiles.read import state_rows
from headwater.timemachine.undo import plan_undo
from timemachine.spark_runs import STORES, Stream
from timemachine.test_rewind_and_undo import bytes_of
from timemachine.twins import FEEDS, MORE, QUERIES

PARTITIONS = 3


def held(stream: Stream) -> Counter[str]:
    """The state after the last batch, whichever partition each row is in."""
    last = History(stream.files).last_committed
    assert last is not None
    rows = ({**row, "partition_id": None} for row in state_rows(stream.files, last))
    return Counter(json.dumps(row, default=str, sort_keys=True) for row in rows)


def repartition_and_go_on(twins) -> None:
    stream, calm = twins.disturbed, twins.calm
    for inboxes, one in ((twins.inboxes, stream), (twins.calm_inboxes, calm)):
        twins.feed(inboxes, FEEDS)
        one.run()
    before, state = bytes_of(stream.checkpoint), held(stream)

    repartition(stream.spark, stream.files, PARTITIONS)
    plan_undo(stream.files).apply()
    assert bytes_of(stream.checkpoint) == before
    repartition(stream.spark, stream.files, PARTITIONS)
    unload_state_stores(stream.spark)
    _check(stream.files)
    assert held(stream) == state
    twins.feed(twins.calm_inboxes, FEEDS + MORE)
    expected = list(calm.run().values())
    _go_on(twins, expected)
    assert held(stream) == held(calm)
    last = History(stream.files).last_committed
    partitions = {row["partition_id"] for row in state_rows(stream.files, last)}
    assert max(partitions) >= 2, "the state did not spread over more partitions than before"

    plan_undo(stream.files, drop_newer=True).apply()
    assert held(stream) == state
    _check(stream.files)
    _go_on(twins, expected)
    assert held(stream) == held(calm)


def _go_on(twins, expected: list[list[str]]) -> None:
    twins.feed(twins.inboxes, FEEDS + MORE)
    assert list(twins.disturbed.run().values()) == expected


def _check(files: LocalFiles) -> None:
    assert not [finding for finding in run_checks(Scene(files, 0)) if finding.severity == "error"]


@pytest.mark.parametrize(
    ("operator", "store"),
    [("aggregation", "changelog"), ("dedup", "rocksdb"), ("join", "changelog"), ("timers", "format2")],
)
def test_a_repartitioned_stream_goes_on(twins, operator: str, store: str) -> None:
    repartition_and_go_on(twins(operator, store))


@pytest.mark.slow
@pytest.mark.parametrize("store", [name for name in STORES if name != "hdfs"])
@pytest.mark.parametrize("operator", QUERIES)
def test_all_operators_on_all_stores_that_spark_repartitions(twins, operator: str, store: str) -> None:
    repartition_and_go_on(twins(operator, store))


@pytest.mark.parametrize(
    ("name", "partitions", "code"),
    [
        ("aggregation-hdfs", 3, "state-store"),
        ("kafka-stateless", 3, "no-state"),
        ("crashed-after-changelog", 3, "uncommitted-batch"),
        ("aggregation-changelog", 2, "nothing-to-do"),
    ],
)
def test_refusals(corpus: Callable[[str], CorpusCheckpoint], name: str, partitions: int, code: str) -> None:
    """What Spark's facility cannot do is said before it is started."""
    path: Path = corpus(name).path
    with pytest.raises(ChangeRefused) as refused:
        check_repartition(LocalFiles(path), partitions)
    assert refused.value.code == code
