"""The rules as alerting rules of Prometheus, on the metrics that ``headwater run --metrics`` serves."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable

from headwater.alerts.rules import Rule

LONGEST_SILENCE = "1d"
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")


def prometheus_rules(rules: Iterable[Rule]) -> str:
    """Return a rule file in YAML. Each expression has a series for each job that the rule applies to and that fires."""
    lines = ["groups:", "  - name: headwater", "    rules:"]
    for rule in rules:
        lines += [
            f"      - alert: {_alert_name(rule.name)}",
            f"        expr: {_quoted(expression(rule))}",
            f"        for: {_duration(rule.for_ms)}",
            "        labels:",
            f"          severity: {rule.severity}",
            f"          rule: {_quoted(rule.name)}",
            "        annotations:",
            f"          summary: {_quoted(_SUMMARIES[rule.when])}",
        ]
    return "\n".join(lines) + "\n" if len(lines) > 3 else "groups: []\n"


def expression(rule: Rule) -> str:
    """Return the condition of a rule in PromQL."""
    return _EXPRESSIONS[rule.when](rule, _selector(rule.jobs))


def _selector(jobs: tuple[str, ...]) -> str:
    """Return the label matcher of a rule's jobs; names match entirely, as in Prometheus."""
    if "*" in jobs:
        return ""
    if len(jobs) == 1 and not set(jobs[0]) & set("*?["):
        return f"{{job={_quoted(jobs[0])}}}"
    return f"{{job=~{_quoted('|'.join(map(_regex, jobs)))}}}"


def _regex(pattern: str) -> str:
    """Return a pattern such as ``visits-*`` in the syntax of RE2."""

    def translated(part: str) -> str:
        if part.startswith("[") and part.endswith("]"):
            return part.replace("[!", "[^", 1)
        return {"*": ".*", "?": "."}.get(part) or _SPECIAL.sub(r"\\\g<0>", part)

    return "".join(map(translated, re.split(r"(\*|\?|\[[^]]+\])", pattern)))


def _growing(metric: str) -> Callable[[Rule, str], str]:
    def of(rule: Rule, selector: str) -> str:
        half = _duration(rule.within_ms // 2)
        later = f"quantile_over_time(0.5, {metric}{selector}[{half}])"
        earlier = f"quantile_over_time(0.5, {metric}{selector}[{half}] offset {half})"
        grown = f"{later} > {earlier} and {later} >= {_number(1 + rule.by)} * {earlier}"
        return f"{grown} and {metric}{selector} > {_number(rule.limit)}"

    return of


def _dropped_share(rule: Rule, selector: str) -> str:
    window = _duration(rule.within_ms)
    lost = " + ".join(
        f"increase({metric}{selector}[{window}])"
        for metric in ("headwater_dropped_rows_total", "headwater_malformed_records_total")
    )
    return f"({lost}) / (increase(headwater_input_rows_total{selector}[{window}]) > 0) > {_number(rule.limit)}"


def _nothing_committed(rule: Rule, selector: str) -> str:
    age = f"time() - last_over_time(headwater_last_batch_timestamp_seconds{selector}[{LONGEST_SILENCE}])"
    return f"{age} > {_number(rule.limit / 1000)} unless headwater_kafka_unread_records{selector} == 0"


_EXPRESSIONS: dict[str, Callable[[Rule, str], str]] = {
    "watermark-behind": lambda rule, of: f"headwater_watermark_lag_seconds{of} > {_number(rule.limit / 1000)}",
    "lag-growing": _growing("headwater_kafka_lag_records"),
    "batches-failing": lambda rule, of: (
        f"increase(headwater_failures_total{of}[{_duration(rule.within_ms)}]) >= {_number(rule.limit)}"
    ),
    "state-growing": _growing("headwater_state_rows"),
    "nothing-committed": _nothing_committed,
    "dropped-share": _dropped_share,
    "retention-close": lambda rule, of: (
        f"min by (job) (headwater_kafka_retention_remaining_seconds{of}) < {_number(rule.limit / 1000)}"
    ),
    "source-problem": lambda _, of: f"{_with(of, 'severity', 'error', 'headwater_source_findings')} > 0",
}
_SUMMARIES = {
    "watermark-behind": "the watermark of {{ $labels.job }} lags {{ $value | humanizeDuration }}",
    "lag-growing": "the lag of {{ $labels.job }} grows",
    "batches-failing": "{{ $labels.job }} failed",
    "state-growing": "the state of {{ $labels.job }} grows",
    "nothing-committed": "{{ $labels.job }} has committed nothing for {{ $value | humanizeDuration }}",
    "dropped-share": "{{ $labels.job }} dropped {{ $value | humanizePercentage }} of its rows as late or malformed",
    "retention-close": "retention overtakes {{ $labels.job }} in {{ $value | humanizeDuration }}",
    "source-problem": "the sources of {{ $labels.job }} have errors: headwater fsck --sources shows them",
}


def _with(selector: str, label: str, value: str, metric: str) -> str:
    others = f"{selector[1:-1]}," if selector else ""
    return f"{metric}{{{others}{label}={_quoted(value)}}}"


def _duration(milliseconds: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms" if milliseconds else "0s"


def _number(value: float) -> str:
    """Return a number with all of its digits, and without the noise of a sum such as 1 + 0.1."""
    return f"{value:.15g}"


def _alert_name(name: str) -> str:
    """Return ``WatermarkBehind`` for ``watermark-behind``, as alerts of Prometheus are usually named."""
    words = re.findall(r"[A-Za-z0-9]+", name)
    return "Headwater" + "".join(word[:1].upper() + word[1:] for word in words)


def _quoted(text: str) -> str:
    return json.dumps(text)
