"""Which streams feed each other."""

from __future__ import annotations

from headwater.checkpoint.record import JobRecord
from headwater.fleet.endpoints import Endpoint, endpoints_of_uri, written_by
from headwater.fleet.graph import Edge, edges_between, levels
from headwater.fleet.summary import StreamSummary


def stream(reads: str | Endpoint, writes: str = "console:", **facts: str) -> StreamSummary:
    source = (reads,) if isinstance(reads, Endpoint) else endpoints_of_uri(reads)
    return StreamSummary(reads=source, writes=written_by(JobRecord(sink=writes)), forked_from=facts.get("forked_from"))


def edges(**streams: StreamSummary) -> list[Edge]:
    return edges_between(streams, {name: f"/c/{name}" for name in streams})


def test_topic_between_two_streams() -> None:
    """A topic that one stream writes and another reads links them, if a broker is the same."""
    found = edges(
        clean=stream("kafka://b:9092/raw", "kafka://a:9092,b:9092/clean"),
        totals=stream("kafka://b:9092/other,clean"),
        elsewhere=stream("kafka://z:9092/clean"),
    )
    assert found == [Edge("clean", "totals", "kafka clean")]


def test_topic_of_another_program() -> None:
    """A reader whose brokers are unknown is linked by the name of the topic, which is not certain."""
    found = edges(clean=stream("rate:", "kafka://b:9092/clean"), reader=stream(Endpoint("kafka", "clean")))
    assert found == [Edge("clean", "reader", "kafka clean", is_certain=False)]


def test_folders_and_tables() -> None:
    """A folder links a file sink to sources that read it, a part of it, or a pattern that it matches."""
    found = edges(
        bronze=stream("rate:", "files:/lake/bronze?format=json"),
        same=stream("files:/lake/bronze/?format=json"),
        part=stream("files:/lake/bronze/day?format=json"),
        pattern=stream("files:/lake/*/*.json?format=json"),
        other=stream("files:/lake/bronze2?format=json"),
        gold=stream("delta:/lake/silver", "delta:/lake/gold"),
        report=stream("delta:/lake/gold"),
    )
    assert [(edge.source, edge.target) for edge in found] == [
        ("bronze", "part"),
        ("bronze", "pattern"),
        ("bronze", "same"),
        ("gold", "report"),
    ]


def test_forks() -> None:
    """A fork is linked to its original."""
    found = edges(a=stream("rate:"), b=stream("rate:", forked_from="/c/a/"), c=stream("rate:", forked_from="/c/none"))
    assert found == [Edge("a", "b", "fork", "fork")]


def test_stream_that_reads_its_own_output() -> None:
    """A stream is not linked to itself."""
    assert edges(loop=stream("kafka://b:9092/x", "kafka://b:9092/x")) == []


def test_columns_of_the_drawing() -> None:
    """A stream is right of everything that feeds it; a cycle ends."""
    chain = [Edge("a", "b", ""), Edge("b", "c", ""), Edge("a", "c", "")]
    assert levels(chain) == {"a": 0, "b": 1, "c": 2}
    assert set(levels([Edge("a", "b", ""), Edge("b", "a", "")])) == {"a", "b"}
