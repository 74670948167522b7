"""The rules as a rule file of Prometheus."""

from __future__ import annotations

import re

import pytest
import yaml

from headwater.alerts.prometheus import expression, prometheus_rules
from headwater.alerts.rules import KINDS, Rule, parse_config
from headwater.spark.metrics import JobMetrics


def rules_of_every_kind() -> tuple[Rule, ...]:
    return parse_config({"alerts": {"rule": [{"when": kind} for kind in KINDS]}}).rules


def test_rule_file() -> None:
    """The file is YAML in the form that Prometheus reads, with one alert for each rule."""
    rule = Rule(
        "too late", "watermark-behind", 900_000, for_ms=120_000, jobs=("visits-*", "v1.orders"), severity="critical"
    )
    (group,) = yaml.safe_load(prometheus_rules([rule]))["groups"]
    assert group["name"] == "headwater"
    assert group["rules"] == [
        {
            "alert": "HeadwaterTooLate",
            "expr": 'headwater_watermark_lag_seconds{job=~"visits-.*|v1\\\\.orders"} > 900',
            "for": "2m",
            "labels": {"severity": "critical", "rule": "too late"},
            "annotations": {"summary": "the watermark of {{ $labels.job }} lags {{ $value | humanizeDuration }}"},
        }
    ]
    assert yaml.safe_load(prometheus_rules([])) == {"groups": []}


def test_numbers_keep_their_digits() -> None:
    """A limit is the one of the rule to the last digit, also if it is large."""
    grown = expression(Rule("lag", "lag-growing", 1_234_567, within_ms=600_000, by=0.1))
    assert grown.endswith(
        ">= 1.1 * quantile_over_time(0.5, headwater_kafka_lag_records[5m] offset 5m) and "
        "headwater_kafka_lag_records > 1234567"
    )


def test_every_kind_uses_metrics_that_exist() -> None:
    """Every metric in an expression is one that a job serves, and parentheses match."""
    served = {family.name for family in JobMetrics("visits").registry.collect()}
    served |= {f"{name}_total" for name in served}
    for rule in rules_of_every_kind():
        text = expression(rule)
        assert set(re.findall(r"headwater_\w+", text)) <= served, text
        assert text.count("(") == text.count(")")


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("nothing-committed", "time() - last_over_time(headwater_last_batch_timestamp_seconds[1d]) > 900"),
        ("batches-failing", "increase(headwater_failures_total[1h]) >= 1"),
        ("retention-close", "min by (job) (headwater_kafka_retention_remaining_seconds) < 86400"),
        ("source-problem", 'headwater_source_findings{severity="error"} > 0'),
    ],
)
def test_expressions(when: str, expected: str) -> None:
    """Limits are in seconds, windows in the durations of PromQL."""
    (rule,) = parse_config({"alerts": {"rule": [{"when": when}]}}).rules
    assert expression(rule).startswith(expected)
