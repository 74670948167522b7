"""Which source is which, in a query with several."""

from __future__ import annotations

import json

import pytest

from corpus_support import as_memory_files
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.source_names import SourceTraits, match_names, traits_from_description
from two_sources import TwoSources

INPUT = "/tmp/headwater-corpus/join-hdfs/input"


def labels(files: MemoryTree) -> dict[str, str]:
    return {source: one.label for source, one in History(files).logs.identities.items()}


def descriptions(files: MemoryTree) -> dict[str, str]:
    return {source: one.description for source, one in History(files).logs.identities.items()}


def with_job(name: str, job: str) -> MemoryTree:
    return MemoryTree({**as_memory_files(name).contents, JOB_FILE: job.encode()})


def test_names_of_spark() -> None:
    """Sources that the program has named in Spark have these names."""
    assert labels(as_memory_files("named")) == {"clicked": "clicked", "shown": "shown"}


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("kafka-join", ["kafka corpus-kafka-join-shown", "kafka corpus-kafka-join-clicked"]),
        ("join-hdfs", [f"files {INPUT}/shown", f"files {INPUT}/clicked"]),
        ("offsets2-join", [f"files {INPUT.replace('join-hdfs', 'offsets2-join')}/{side}" for side in ("shown", "clicked")]),
    ],
)  # fmt: skip
def test_sources_without_names(name: str, texts: list[str]) -> None:
    """Without names, sources have their numbers, in order, and are described by what they read."""
    files = as_memory_files(name)
    assert labels(files) == {"0": "source 0", "1": "source 1"}
    assert list(descriptions(files).values()) == texts
    assert [source.name for source in History(files).batches(last=1)[0].sources] == ["0", "1"]


def test_recorded_names_in_another_order() -> None:
    """The names of a job are matched by topic and by folder, whatever their order in the record is."""
    kafka = (
        '{"sources": {"clicks": "kafka://h:1/corpus-kafka-join-clicked", "ads": "kafka://h:1/corpus-kafka-join-shown"}}'
    )
    assert labels(with_job("kafka-join", kafka)) == {"0": "ads", "1": "clicks"}
    files = f'{{"sources": {{"clicks": "files:{INPUT}/clicked", "ads": "files:{INPUT}/sho*?format=json"}}}}'
    assert labels(with_job("join-hdfs", files)) == {"0": "ads", "1": "clicks"}


def test_self_join_keeps_its_numbers() -> None:
    """If both sides read one topic, it is unknown which is which; the broker is still known."""
    files = TwoSources("kafka ads", "kafka ads").batch(1, 1, watermark=None)
    files.with_job(left="kafka://h:1/ads", right="kafka://h:1/ads?startingOffsets=latest")
    assert labels(files.files) == {"0": "source 0", "1": "source 1"}
    assert [one.uri for one in History(files.files).logs.identities.values()] == ["kafka://h:1/ads"] * 2


def test_source_that_has_delivered_nothing() -> None:
    """A source without offsets is the one that remains after the others are matched."""
    files = TwoSources().batch(3, 0, watermark=None)
    files.with_job(clicks="kafka://h:1/clicked", ads="kafka://h:1/shown")
    del files.contents["sources/1/0"]
    assert labels(files.files) == {"0": "ads", "1": "clicks"}


def test_record_without_names(corpus) -> None:
    """A record that names one source says nothing about two, unless it can only be one of them."""
    files = with_job("kafka-join", '{"source": "kafka://h:1/corpus-kafka-join-clicked"}')
    uris = [one.uri for one in History(files).logs.identities.values()]
    assert uris == [None, "kafka://h:1/corpus-kafka-join-clicked"]


def test_numbers_are_not_names() -> None:
    """The record of an attached query numbers its sources: they have URIs, and no names."""
    uris = {"0": "kafka://h:1/corpus-kafka-join-clicked", "1": "kafka://h:1/corpus-kafka-join-shown"}
    files = with_job("kafka-join", json.dumps({"sources": uris}))
    found = list(History(files).logs.identities.values())
    assert [one.name for one in found] == [None, None]
    assert sorted(one.uri or "" for one in found) == sorted(uris.values())


def test_matching_by_elimination() -> None:
    """A folder inside another one is matched once the outer one is."""
    traits = {"0": SourceTraits("files", folder="/in/late"), "1": SourceTraits("files", folder="/in")}
    assert match_names(traits, {"outer": "files:/in", "inner": "files:/in/late"}) == {"0": "inner", "1": "outer"}
    assert match_names(traits, {"outer": "files:/in"}) == {}


@pytest.mark.parametrize(
    ("traits", "uri", "expected"),
    [
        (SourceTraits("kafka", frozenset({"a"})), "kafka://h:1/a,b", True),
        (SourceTraits("kafka", frozenset({"a"})), "kafka://h:1/?subscribePattern=a.*", True),
        (SourceTraits("kafka", frozenset({"b"})), "kafka://h:1/?subscribePattern=a.*", False),
        (SourceTraits("kafka", frozenset({"b"})), "kafka:broken", False),
        (SourceTraits("files", folder="/in"), "files:/in%2Fa", False),
        (SourceTraits("files", folder="/in/a b"), "files:/in/a%20b/", True),
        (SourceTraits("files", folder="/in"), "files:/x/../in?format=json&maxFileAge=3d&anything=1", True),
        (SourceTraits("files", folder="/in/50% off"), "files:/in/50%25 off?format=json", True),
        (SourceTraits("files", folder="s3a://bucket/in/x"), "files:s3a://bucket/in", True),
        (SourceTraits("files", folder="/warehouse/sales"), "table:db.sales", True),
        (SourceTraits("files", folder="/warehouse/sales"), "table:visits", False),
        (SourceTraits("rate-micro-batch"), "rate:?rowsPerSecond=5", True),
        (SourceTraits("socket"), "kafka://h:1/a", False),
    ],
)
def test_what_a_uri_names(traits: SourceTraits, uri: str, expected: bool) -> None:
    """Topics, patterns, folders and tables are compared with what a source reads."""
    assert traits.could_be(uri) is expected


def test_descriptions_of_spark() -> None:
    """Spark's own description names the folder of a file source, and the kind of others."""
    assert traits_from_description("FileStreamSource[file:/data/in]").text == "files /data/in"
    topic = traits_from_description("KafkaV2[Subscribe[ads]]", {"ads": {"0": 3}})
    assert topic.text == "kafka ads"
    assert traits_from_description("Nobody[knows]").kind == "unknown"
    assert traits_from_description(None).kind == "unknown"
