"""Checks whether the input that a rewind has to read again still exists, in each of its sources."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corpus_support import as_memory_files
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.source_offsets import kafka_partitions
from headwater.core.errors import ChangeRefused, UsageProblem
from headwater.timemachine.effects import Reread, find_rereads
from headwater.timemachine.rewind import plan_rewind, plan_with_retention
from headwater.views.plans import rewind_text
from two_sources import TwoSources


def one_batch(path: str) -> dict[str, bytes]:
    entry = json.dumps({"path": path, "timestamp": 1, "batchId": 0})
    plan = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}})
    return {
        "metadata": b'{"id":"one"}',
        "offsets/0": f'v1\n{plan}\n{{"logOffset":0}}'.encode(),
        "commits/0": b'v1\n{"nextBatchWatermarkMs":0}',
        "sources/0/0": f"v1\n{entry}".encode(),
    }


def reread_of(files: FileTree) -> Reread:
    (found,) = find_rereads(History(files), 0, lambda servers, topics: None)
    return found


@pytest.mark.parametrize(
    ("there", "elsewhere", "still_there", "why"),
    [
        (True, False, True, None),
        (False, False, False, "1 of 1 files are missing"),
        (True, True, True, None),
        (False, True, None, "another machine"),
    ],
)
def test_files_of_this_machine(
    tmp_path: Path, *, there: bool, elsewhere: bool, still_there: bool | None, why: str | None
) -> None:
    """A file that is found exists. If the checkpoint is in an object store, a missing file may be on another machine."""
    file = tmp_path / "in" / "1.json"
    if there:
        file.parent.mkdir()
        file.touch()
    contents = one_batch(file.as_uri())
    files: FileTree = MemoryTree(contents)
    if not elsewhere:
        files = LocalTree(tmp_path / "checkpoint")
        for path, data in contents.items():
            files.write(path, data)
    found = reread_of(files)
    assert (found.files, found.still_there) == (1, still_there)
    assert (why or "") in (found.why or "")


def test_files_on_an_object_store_are_not_checked() -> None:
    """Input files on an object store are not checked, because the credentials for it are unknown."""
    found = reread_of(MemoryTree(one_batch("s3a://bucket/in/1.json")))
    assert (found.files, found.still_there) == (1, None)
    assert "object store" in (found.why or "")


RETAINED = {"shown": {0: 0}, "clicked": {0: 9}}


def retained(source: str, topics: list[str]) -> dict[str, dict[int, int]]:
    """Return what a broker retains: the topics of the source's own cluster only."""
    return {topic: RETAINED[topic] for topic in topics if topic in source}


def joined(*, idle: bool = False) -> TwoSources:
    made = TwoSources().with_job(clicks="kafka://c:1/clicked", ads="kafka://a:1/shown")
    return made.batch(5, 5, watermark=None).batch(5, 0 if idle else 5, watermark=None)


def test_each_kafka_source_is_checked_at_its_own_broker() -> None:
    """Each source has its name, its rows and its own answer in the plan."""
    ads, clicks = find_rereads(History(joined().files), 1, retained)
    assert (ads.label, ads.rows, ads.still_there) == ("ads", 5, True)
    assert (clicks.label, clicks.rows, clicks.still_there) == ("clicks", 5, False)
    assert clicks.why == "clicked[0] now starts at offset 9, but offset 5 is needed"
    assert (clicks.as_dict()["source"], clicks.as_dict()["description"]) == ("1", "kafka clicked")


def test_a_partition_that_does_not_exist_any_more() -> None:
    """A topic that was created again can have fewer partitions."""
    _, clicks = find_rereads(History(joined().files), 1, lambda source, topics: {topic: {7: 0} for topic in topics})
    assert (clicks.still_there, clicks.why) == (False, "clicked[0] does not exist")


def test_rewind_names_the_source_that_has_lost_records() -> None:
    """A rewind is refused if one of two sources has lost records; the message names it, the plan lists both."""
    plan = plan_rewind(joined().files, to=0, ask_kafka=retained)
    with pytest.raises(ChangeRefused) as refused:
        plan.apply()
    assert refused.value.problem == "clicks no longer has all the input that batch 1 and later batches read"
    assert list(refused.value.evidence) == ["clicks"]
    read = [line for line in rewind_text(plan).lines() if "read again" in line]
    assert [line.split()[2:5] for line in read] == [["ads", "(kafka", "shown),"], ["clicks", "(kafka", "clicked),"]]


def test_idle_source_needs_no_records() -> None:
    """A source from which the undone batches read nothing may have lost anything."""
    ads, clicks = find_rereads(History(joined(idle=True).files), 1, retained)
    assert (ads.still_there, clicks.still_there) == (True, True)


def test_named_broker() -> None:
    """--source NAME=URI is for one source, --source URI for all others; an unknown name is refused."""
    asked = []

    def ask(source: str, topics: list[str]) -> dict[str, dict[int, int]]:
        asked.append(source)
        return {topic: {0: 0} for topic in topics}

    history = History(joined().files)
    find_rereads(history, 1, ask, ["clicks=kafka://new:1/clicked"])
    find_rereads(history, 1, ask, ["kafka://all:1/x?a=b", "0=kafka://first:1/shown"])
    assert asked == ["kafka://a:1/shown", "kafka://new:1/clicked", "kafka://first:1/shown", "kafka://all:1/x?a=b"]
    with pytest.raises(UsageProblem, match="no source named nobody"):
        find_rereads(history, 1, ask, ["nobody=kafka://h:1/x"])


def test_source_that_starts_later() -> None:
    """A source without an offset in the first undone batch is checked from its first offset on."""
    made = TwoSources().batch(5, 0, watermark=None).batch(5, 0, watermark=None).batch(5, 4, watermark=None)
    _, clicks = find_rereads(History(made.files), 1, lambda source, topics: {"clicked": {0: 2}}, ["kafka://h:1/x"])
    assert (clicks.kind, clicks.rows, clicks.still_there) == ("kafka", 4, False)
    assert clicks.why == "clicked[0] now starts at offset 2, but offset 0 is needed"


@pytest.mark.parametrize("name", ["join-hdfs", "named", "offsets2-join"])
def test_logs_of_both_file_sources_are_cut(name: str) -> None:
    """The log of each file source ends at the offset that it had in the last kept batch."""
    files = as_memory_files(name)
    plan = plan_rewind(files, to=4)
    plan.apply(allow_missing_input=True)
    history = History(files)
    newest = history.batch(history.batch_ids[-1])
    assert [source.end for source in newest.sources] == [{"logOffset": 2}] * 2
    assert [history.source_log(source).names.latest for source in history.logs.identities] == [2, 2]
    assert len(plan.rereads) == 2


def test_the_plan_shows_how_long_kafka_retains_the_input() -> None:
    """The text and the JSON form of a plan name the limits by time and by size; a broker that fails is left out."""

    class Limits:
        until_ms, limit_bytes = 1_800_000_000_000, 5_000_000

    asked = []

    def ask(uri: str, starts: object) -> Limits:
        asked.append((uri, starts))
        return Limits()

    def fail(uri: str, starts: object) -> Limits:
        raise UsageProblem("x", f"no answer from {uri} about {starts}")

    files = as_memory_files("kafka-changelog")
    plan = plan_rewind(
        files,
        to=3,
        source_uris=["kafka://127.0.0.1:9092/events"],
        ask_kafka=lambda uri, topics: {topic: {0: 0, 1: 0} for topic in topics},
    )
    timed = plan_with_retention(plan, ask)
    ((uri, starts),) = asked
    assert uri == "kafka://127.0.0.1:9092/events"
    assert starts == kafka_partitions(plan.rereads[0].start)
    text = "\n".join(rewind_text(timed).lines())
    assert (
        ": available, at least until 2027-01-15 08:00:00 UTC by retention.ms and while a partition has less than"
        in text
    )
    assert timed.as_dict()["rereads"][0]["retained_until"] == "2027-01-15T08:00:00.000Z"
    assert plan_with_retention(plan, fail) == plan
