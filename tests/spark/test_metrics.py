"""Metrics as Prometheus scrapes them."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import Files, Job, Memory
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import ProgressRecord, read_progress
from headwater.core.errors import SetupProblem, UsageProblem
from headwater.spark.metrics import CombinedMetrics, JobMetrics, MetricsServer, parse_address
from headwater.spark.progress import lag_rows


def scrape(server: MetricsServer) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the samples by name, then by the values of their labels."""
    with urllib.request.urlopen(server.url, timeout=60) as answer:
        text = answer.read().decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, f"{family.name} has no description"
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def record(number: int, **values: object) -> ProgressRecord:
    return ProgressRecord(batch_id=number, at_ms=1_700_000_000_000, **values)  # type: ignore[arg-type]


def test_counters_add_up_and_gauges_are_the_last() -> None:
    """Counters are sums over batches; rates, state and lag are those of the last batch."""
    metrics = JobMetrics("job-1")
    with MetricsServer(metrics, "0") as server:
        metrics.add(record(0, input_rows=10, dropped=2, malformed=1, state_rows=5, lag_rows=7, duration_ms=300))
        metrics.add(record(1, input_rows=4, dropped=1, state_rows=6, lag_rows=0, duration_ms=1500, input_rate=2.5))
        found = scrape(server)
    job = ("job-1",)
    assert found["headwater_batches_total"][job] == 2
    assert found["headwater_input_rows_total"][job] == 14
    assert found["headwater_dropped_rows_total"][job] == 3
    assert found["headwater_malformed_records_total"][job] == 1
    assert found["headwater_state_rows"][job] == 6
    assert found["headwater_kafka_lag_records"][job] == 0
    assert found["headwater_input_rows_per_second"][job] == 2.5
    assert found["headwater_last_batch_id"][job] == 1
    assert found["headwater_batch_duration_seconds_count"][job] == 2
    assert found["headwater_batch_duration_seconds_sum"][job] == pytest.approx(1.8)


def test_several_jobs_on_one_port() -> None:
    """Each metric is described once, and has a series for each job."""
    jobs = [JobMetrics("one"), JobMetrics("two")]
    with MetricsServer(CombinedMetrics(jobs), "0") as server:
        jobs[0].add(record(0, input_rows=10, state_rows=5))
        jobs[1].add(record(7, input_rows=4))
        found = scrape(server)
        with urllib.request.urlopen(server.url) as answer:
            text = answer.read().decode()
    assert found["headwater_input_rows_total"] == {("one",): 10, ("two",): 4}
    assert found["headwater_last_batch_id"] == {("one",): 0, ("two",): 7}
    assert found["headwater_state_rows"] == {("one",): 5}
    described = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(described) == len(set(described))


def test_unknown_values_are_omitted() -> None:
    """A job without state, watermark or Kafka has no such series: zero would be wrong."""
    metrics = JobMetrics("job-1")
    with MetricsServer(metrics, "0") as server:
        metrics.add(record(0))
        found = scrape(server)
    assert not {"headwater_state_rows", "headwater_watermark_lag_seconds", "headwater_kafka_lag_records"} & found.keys()


def test_watermark_lag_grows_with_the_clock() -> None:
    """The lag keeps growing between batches, so that an alert notices a stream that hangs."""
    metrics = JobMetrics("job-1")
    with MetricsServer(metrics, "0") as server:
        metrics.add(record(0, watermark_ms=int(time.time() * 1000) - 60_000))
        first, second = (scrape(server)["headwater_watermark_lag_seconds"][("job-1",)] for _ in range(2))
    assert 60 <= first <= second


def test_port_in_use() -> None:
    """A port in use is refused with a short message."""
    with MetricsServer(JobMetrics("a"), "0") as server:
        taken = server.url.rpartition(":")[2].partition("/")[0]
        with pytest.raises(SetupProblem, match="cannot serve metrics"):
            MetricsServer(JobMetrics("b"), taken)


@pytest.mark.parametrize(("text", "expected"), [("9400", ("127.0.0.1", 9400)), ("0.0.0.0:9400", ("0.0.0.0", 9400))])
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    """A port without a host is bound to loopback."""
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["", "x", "9400x", "99999", "-1", "host:"])
def test_bad_addresses(text: str) -> None:
    """An invalid port is refused with an example."""
    with pytest.raises(UsageProblem, match="is not a valid port"):
        parse_address(text)


def test_lag_of_kafka_sources() -> None:
    """Offsets may be text or objects; sources other than Kafka have no lag."""
    kafka = {"latestOffset": '{"visits":{"0":12,"1":5}}', "endOffset": {"visits": {"0": 10, "1": 5}}}
    assert lag_rows([kafka]) == 2
    assert lag_rows([kafka, {"latestOffset": "7", "endOffset": "5"}]) == 2
    assert lag_rows([{"latestOffset": None, "endOffset": {"logOffset": 3}}]) is None


def per_word(lines: DataFrame) -> DataFrame:
    """Count each word."""
    return lines.groupBy(F.col("word")).count()


def test_real_batches_are_recorded_and_counted(headwater_spark: SparkSession, tmp_path: Path, drain: object) -> None:
    """Spark's progress reports reach the metrics and the file in the checkpoint that the page reads."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"word":"a"}\n{"word":"b"}\n{"word":"a"}\nno json\n')
    source = Files(str(tmp_path / "in"), schema="word STRING")
    job = Job("words", per_word, reads=source, writes=Memory("words_counted"), mode="complete", trigger="available-now")
    batches = drain(job)  # type: ignore[operator]
    checkpoint = LocalTree(tmp_path / "checkpoint")
    metrics = JobMetrics("words", checkpoint)
    with MetricsServer(metrics, "0") as server:
        for batch in batches:
            metrics.add(batch)
        found = scrape(server)
    assert found["headwater_input_rows_total"][("words",)] == 4
    assert found["headwater_malformed_records_total"][("words",)] == 1
    assert found["headwater_state_rows"][("words",)] == 2
    assert found["headwater_rewindable_batches"][("words",)] == 0
    assert ("words", "addBatch") in found["headwater_batch_phase_seconds"]
    written = read_progress(checkpoint)
    assert [written[number] for number in sorted(written)] == batches


def test_dashboard_uses_existing_metrics() -> None:
    """Every metric in the example dashboard is one that a job serves."""
    dashboard = json.loads((Path(__file__).parents[2] / "docs/how-to/grafana-dashboard.json").read_text())
    metrics = JobMetrics("job-1", None)
    metrics.add(record(0, watermark_ms=1, state_rows=1, state_bytes=1, lag_rows=1, durations_ms={"addBatch": 1}))
    with MetricsServer(metrics, "0") as server:
        served = scrape(server).keys() | {"headwater_rewindable_batches"}
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    used = {name for expression in expressions for name in re.findall(r"headwater_\w+", expression)}
    assert len(used) >= 10
    assert used <= served
