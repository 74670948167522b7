"""Spans of batches, as a collector on loopback receives them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from alerts.receiver import Receiver, receiving
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import ProgressRecord, SourceProgress
from headwater.core.errors import JobFailed, UsageProblem
from headwater.spark.tracing import traces_url, tracing

AT_MS = 1_700_000_000_000
BATCH = ProgressRecord(
    7,
    AT_MS,
    input_rows=120,
    duration_ms=100,
    watermark_ms=AT_MS - 60_000,
    state_rows=9,
    dropped=2,
    durations_ms={"addBatch": 60, "latestOffset": 10, "walCommit": 20, "triggerExecution": 100},
    sources=(SourceProgress("0", "visits", "KafkaV2[Subscribe[visits]]", 120, 0, 5),),
)


@pytest.fixture
def collector() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def spans(collector: Receiver) -> list[dict[str, object]]:
    """Return the received spans, with their attributes as plain values."""
    found = []
    for body in collector.bodies:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = {pair.key: pair.value.string_value for pair in resource.resource.attributes}["service.name"]
            for scope in resource.scope_spans:
                for span in scope.spans:
                    values = {pair.key: next(iter(MessageToDict(pair.value).values())) for pair in span.attributes}
                    found.append({"service": service, "span": span, "name": span.name, **values})
    return found


def follow(collector: Receiver, tmp_path: Path, *batches: ProgressRecord, failure: JobFailed | None = None) -> None:
    with tracing("visits", collector.url)(LocalTree(tmp_path), print) as on_batch:
        for batch in batches:
            on_batch(batch)
        if failure:
            raise failure


def test_a_batch_and_its_phases(collector: Receiver, tmp_path: Path) -> None:
    """A batch is a span with its rows and watermark, each source an event, and each phase a child, one after the other."""
    follow(collector, tmp_path, BATCH)
    assert {path for path, _, _ in collector.requests} == {"/v1/traces"}
    found = {str(one["name"]): one for one in spans(collector)}
    assert found.keys() == {"batch", "latestOffset", "walCommit", "addBatch"}
    batch = found["batch"]
    assert batch["service"] == "headwater/visits"
    assert (batch["headwater.batch_id"], batch["headwater.rows"], batch["headwater.dropped"]) == ("7", "120", "2")
    assert (batch["headwater.watermark"], batch["headwater.job"]) == ("2023-11-14T22:12:20.000Z", "visits")
    assert "headwater.lag" not in batch
    parent = batch["span"]
    (event,) = parent.events  # type: ignore[attr-defined]
    assert {pair.key: pair.value.int_value for pair in event.attributes}["headwater.source.lag"] == 5
    times = {name: (one["span"].start_time_unix_nano, one["span"].end_time_unix_nano) for name, one in found.items()}  # type: ignore[attr-defined]
    begin = AT_MS * 1_000_000
    in_ms = {name: ((start - begin) // 1_000_000, (end - begin) // 1_000_000) for name, (start, end) in times.items()}
    assert in_ms == {"batch": (0, 100), "latestOffset": (0, 10), "walCommit": (10, 30), "addBatch": (30, 90)}
    for name in ("latestOffset", "walCommit", "addBatch"):
        assert found[name]["span"].parent_span_id == parent.span_id  # type: ignore[attr-defined]


def test_batches_are_traces_of_their_own(collector: Receiver, tmp_path: Path) -> None:
    """Each batch is the root of a trace; the failure of the job is a span with an error."""
    with pytest.raises(JobFailed):
        follow(collector, tmp_path, BATCH, BATCH, failure=JobFailed("job-failed", "it broke"))
    found = [one for one in spans(collector) if one["name"] in ("batch", "failure")]
    assert len({one["span"].trace_id for one in found}) == 3  # type: ignore[attr-defined]
    (failure,) = [one for one in found if one["name"] == "failure"]
    assert (failure["error.type"], failure["span"].status.message) == ("job-failed", "it broke")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
        ("https://traces.example/api/otlp", "https://traces.example/api/otlp"),
    ],
)
def test_endpoint(given: str, expected: str) -> None:
    """An address without a path gets the path that OTLP defines."""
    assert traces_url(given) == expected


@pytest.mark.parametrize("given", ["", "127.0.0.1:4318", "grpc://127.0.0.1:4317", "http://"])
def test_wrong_endpoint(given: str) -> None:
    """Other addresses are refused before Spark starts."""
    with pytest.raises(UsageProblem, match="not the URL of an OpenTelemetry collector"):
        traces_url(given)
