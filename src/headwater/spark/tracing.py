"""OpenTelemetry spans: one for each batch, with a child for each phase, sent to a collector with OTLP over HTTP.

Spark reports how long each phase took, not when it began. The phases are laid out one after the other, in the order in
which Spark runs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.record import ProgressRecord
from headwater.core.errors import HeadwaterError, UsageProblem
from headwater.core.extras import naming_extras
from headwater.core.times import iso_from_ms
from headwater.spark.followers import Follower, OnBatch, Warn

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

TRACES = "/v1/traces"
TOTAL = "triggerExecution"
# In the order in which a batch runs them; others follow.
PHASES = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets", "commitBatch")
NANOSECONDS = 1_000_000


def traces_url(endpoint: str) -> str:
    """Return where to send spans: the given URL or, if it has no path, the one that OTLP defines."""
    scheme, separator, rest = endpoint.strip().partition("://")
    host, _, path = rest.partition("/")
    if scheme not in ("http", "https") or not separator or not host:
        raise UsageProblem(
            "bad-option",
            f"{endpoint!r} is not the URL of an OpenTelemetry collector",
            remedy="--otel http://127.0.0.1:4318",
        )
    return endpoint if path else f"{scheme}://{host}{TRACES}"


def require_otel(endpoint: str) -> None:
    """Raise before Spark starts if spans cannot be sent: the packages are missing, or the URL is wrong."""
    traces_url(endpoint)
    with naming_extras():
        import opentelemetry.exporter.otlp.proto.http  # noqa: PLC0415
        import opentelemetry.sdk.trace  # noqa: F401, PLC0415


def tracing(job: str, endpoint: str) -> Follower:
    """Return a follower that sends a span for each batch of a job. What a collector does not accept is dropped."""

    @contextmanager
    def follow(files: FileTree, warn: Warn) -> Iterator[OnBatch]:  # noqa: ARG001  every follower takes both
        provider = _provider(job, endpoint)
        spans = BatchSpans(provider, job, files.location)
        try:
            yield spans.add
        except HeadwaterError as error:
            spans.add_failure(error)
            raise
        finally:
            provider.shutdown()

    return follow


def _provider(job: str, endpoint: str) -> TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    # The environment of OpenTelemetry (OTEL_RESOURCE_ATTRIBUTES, OTEL_EXPORTER_OTLP_HEADERS) adds to these.
    provider = TracerProvider(resource=Resource.create({"service.name": f"headwater/{job}"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=traces_url(endpoint))))
    return provider


class BatchSpans:
    """Converts batches to spans of a tracer provider."""

    def __init__(self, provider: TracerProvider, job: str, checkpoint: str) -> None:
        self._tracer = provider.get_tracer("headwater")
        self._common = {"headwater.job": job, "headwater.checkpoint": checkpoint}

    def add(self, batch: ProgressRecord) -> None:
        """Add the spans of a finished batch."""
        from opentelemetry import context  # noqa: PLC0415
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415

        start = batch.at_ms * NANOSECONDS
        # An empty context: a span of the program that started the job is not the parent of its batches.
        span = self._tracer.start_span(
            "batch", context.Context(), start_time=start, attributes={**self._common, **_attributes(batch)}
        )
        for source in batch.sources:
            about = {
                "headwater.source.name": source.name or source.id,
                "headwater.source.description": source.description,
                "headwater.source.rows": source.records,
                "headwater.source.malformed": source.malformed,
                "headwater.source.lag": source.lag_rows,
            }
            span.add_event("source", _known(about), timestamp=start)
        inside, at = set_span_in_context(span, context.Context()), start
        for phase in sorted(batch.durations_ms.keys() - {TOTAL}, key=_order):
            end = at + batch.durations_ms[phase] * NANOSECONDS
            child = self._tracer.start_span(phase, inside, start_time=at, attributes={"headwater.phase": phase})
            child.end(end)
            at = end
        span.end(start + batch.duration_ms * NANOSECONDS)

    def add_failure(self, error: HeadwaterError) -> None:
        """Add a span with the failure that ended the job."""
        from opentelemetry import context  # noqa: PLC0415
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415

        span = self._tracer.start_span(
            "failure", context.Context(), attributes={**self._common, "error.type": error.code}
        )
        span.set_status(Status(StatusCode.ERROR, error.problem))
        span.end()


def _attributes(batch: ProgressRecord) -> dict[str, Any]:
    return _known(
        {
            "headwater.batch_id": batch.batch_id,
            "headwater.rows": batch.input_rows,
            "headwater.input_rows_per_second": batch.input_rate,
            "headwater.processed_rows_per_second": batch.processed_rate,
            "headwater.watermark": None if batch.watermark_ms is None else iso_from_ms(batch.watermark_ms),
            "headwater.state_rows": batch.state_rows,
            "headwater.state_bytes": batch.state_bytes,
            "headwater.dropped": batch.dropped,
            "headwater.malformed": batch.malformed,
            "headwater.lag": batch.lag_rows,
        }
    )


def _known(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


def _order(phase: str) -> tuple[int, str]:
    return (PHASES.index(phase) if phase in PHASES else len(PHASES), phase)
