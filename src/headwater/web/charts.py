"""The charts of the page as ECharts options, computed from points.

The colors are mid-tones, so that one palette works on a light and on a dark background.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headwater.views.batch_phases import OTHER, PhaseComparison
from headwater.views.page_points import Point
from headwater.views.page_state import KeyTimeline

BLUE, GREEN, AMBER, RED, VIOLET, GREY, TEAL = (
    "#4c8dff",
    "#22b07d",
    "#f0a020",
    "#ef5b5b",
    "#9b7bff",
    "#94a3b8",
    "#19b5c9",
)
TEXT, LINE = "#8592a6", "rgba(133,146,166,0.18)"
DAY_MS = 86_400_000
Options = dict[str, Any]


def input_rows(found: Sequence[Point]) -> Options:
    """Return the rows of each batch, its late and malformed records, and its duration."""
    return _chart(
        found,
        [
            _bars("rows", BLUE, [point.rows for point in found], stack=None),
            _bars("late", AMBER, [point.dropped for point in found], stack="faults"),
            _bars("malformed", RED, [point.malformed for point in found], stack="faults"),
            line("duration", GREY, [point.duration_ms for point in found], axis=1),
        ],
        axes=[value_axis(), value_axis(unit=" ms", right=True)],
    )


def event_time(found: Sequence[Point]) -> Options:
    """Return the newest event time of each batch, the watermark, and the system clock when the batch was planned.

    With several sources, the newest event time is that of each source since the query started, if it was recorded.
    """
    sources = _names(point.event_times_ms for point in found)
    newest = [
        line(name, color, [point.event_times_ms.get(name) for point in found])
        for name, color in zip(sources, _colors(len(sources)), strict=True)
    ]
    options = _chart(
        found,
        [
            line("clock", GREY, [_clock(point) for point in found], dashed=True),
            *(newest or [line("newest event", BLUE, [point.event_time_ms for point in found])]),
            line("watermark", AMBER, [point.watermark_ms for point in found], area=False, width=2.4),
        ],
        axes=[{**value_axis(), "type": "time", "min": "dataMin", "max": "dataMax", "splitNumber": 3}],
    )
    options["tooltip"][":valueFormatter"] = (
        "v => v == null ? '-' : new Date(v).toISOString().replace('T', ' ').slice(0, 19)"
    )
    known = [time for point in found for time in (point.event_time_ms, point.watermark_ms) if time is not None]
    piece = "slice(5, 16).replace('T', ' ')" if known and max(known) - min(known) > DAY_MS else "slice(11, 19)"
    options["yAxis"][0]["axisLabel"] |= {":formatter": f"v => new Date(v).toISOString().{piece}"}
    return options


def _clock(point: Point) -> int | None:
    """Return the time at which a batch was planned; None for old data, which would be a flat line next to it."""
    event = point.event_time_ms if point.event_time_ms is not None else point.watermark_ms
    near = event is not None and point.at_ms is not None and abs(point.at_ms - event) < DAY_MS
    return point.at_ms if near else None


def state_size(found: Sequence[Point]) -> Options:
    """Return the rows of the state and its size in memory."""
    options = _chart(
        found,
        [
            line("rows", VIOLET, [point.state_rows for point in found], area=True),
            line("bytes in memory", GREY, [point.state_bytes for point in found], axis=1),
        ],
        axes=[value_axis(), value_axis(right=True)],
    )
    options["yAxis"][1]["axisLabel"] |= {":formatter": _BYTES}
    return options


def kafka_lag(found: Sequence[Point]) -> Options:
    """Return the unread records when each batch was planned, of each source if there are several."""
    sources = _names(point.lags for point in found)
    lines = [
        line(name, color, [point.lags.get(name) for point in found])
        for name, color in zip(sources, _colors(len(sources)), strict=True)
    ]
    total = line("unread records", TEAL, [point.lag_rows for point in found], area=True)
    return _chart(found, lines or [total], axes=[value_axis()])


def _names(found: Iterable[Mapping[str, int]]) -> list[str]:
    return list(dict.fromkeys(name for names in found for name in names))


def _colors(number: int) -> list[str]:
    colors = (BLUE, GREEN, VIOLET, TEAL, RED)
    return [colors[place % len(colors)] for place in range(number)]


def key_history(timeline: KeyTimeline) -> Options:
    """Return the numeric fields of a key over the batches."""
    colors = [BLUE, AMBER, GREEN, VIOLET, TEAL]
    series = [
        {**line(name, colors[number % len(colors)], values), "step": "end", "connectNulls": False}
        for number, (name, values) in enumerate(timeline.numbers.items())
    ]
    return {
        **frame(),
        "xAxis": {**category_axis(), "data": [str(batch) for batch in timeline.batches]},
        "yAxis": [value_axis()],
        "series": series,
    }


def phases(found: PhaseComparison) -> Options:
    """Return a stacked bar for each batch, and one for the median."""
    colors = (TEAL, GREY, GREEN, VIOLET, BLUE, AMBER, RED)
    series = [
        {
            "name": name,
            "type": "bar",
            "stack": "phases",
            "data": [bar.phases.get(name, 0) for bar in found.bars],
            "itemStyle": {"color": GREY if name == OTHER else colors[place % len(colors)]},
            "barMaxWidth": 26,
        }
        for place, name in enumerate(found.names)
    ]
    axis = {**value_axis(unit=" ms"), "position": "bottom", "splitLine": {"show": True, "lineStyle": {"color": LINE}}}
    category = {**category_axis(), "data": [bar.label for bar in found.bars], "inverse": True}
    options = {**frame(), "xAxis": [axis], "yAxis": category, "series": series}
    options["grid"] = {**options["grid"], "right": 28}  # the last label is wider than its tick
    return options


def partition_rows(rows: Mapping[int, int]) -> Options:
    """Return the rows of the state in each partition."""
    bars = _bars("rows", VIOLET, list(rows.values()), stack=None)
    axis = {**category_axis(), "data": [str(partition) for partition in rows]}
    return {**frame(), "xAxis": axis, "yAxis": [value_axis()], "series": [bars]}


def replace(chart: Any, options: Options) -> None:
    """Give a chart of the page other options."""
    chart.options.clear()
    chart.options.update(options)
    chart.update()


_BYTES = "v => v >= 1e9 ? (v/1e9).toFixed(1)+' GB' : v >= 1e6 ? (v/1e6).toFixed(0)+' MB' : (v/1e3).toFixed(0)+' kB'"


def _chart(found: Sequence[Point], series: list[Options], *, axes: list[Options]) -> Options:
    return {**frame(), "xAxis": batch_axis(found), "yAxis": axes, "series": series}


def frame() -> Options:
    return {
        "animation": False,
        "grid": {"left": 8, "right": 8, "top": 34, "bottom": 4, "containLabel": True},
        "legend": {
            "top": 0,
            "left": 0,
            "itemWidth": 12,
            "itemHeight": 8,
            "itemGap": 14,
            "textStyle": {"color": TEXT, "fontSize": 11},
        },
        "tooltip": tooltip(trigger="axis"),
    }


def tooltip(*, trigger: str, formatter: str | None = None) -> Options:
    shown: Options = {
        "trigger": trigger,
        "confine": True,
        "backgroundColor": "rgba(17,24,39,0.94)",
        "borderWidth": 0,
        "textStyle": {"color": "#e5e9f0", "fontSize": 12},
        "axisPointer": {"lineStyle": {"color": TEXT}},
    }
    return shown | ({":formatter": formatter} if formatter else {})


def batch_axis(found: Sequence[Point]) -> Options:
    return {**category_axis(), "data": [point.label for point in found]}


def category_axis() -> Options:
    return {
        "type": "category",
        "axisLine": {"show": False},
        "axisTick": {"show": False},
        "axisLabel": {"color": TEXT, "fontSize": 11, "hideOverlap": True},
    }


def value_axis(*, unit: str = "", right: bool = False) -> Options:
    return {
        "type": "value",
        "position": "right" if right else "left",
        "splitNumber": 3,
        "minInterval": 1,
        "splitLine": {"show": not right, "lineStyle": {"color": LINE}},
        "axisLabel": {
            "color": TEXT,
            "fontSize": 11,
            ":formatter": f"v => Math.abs(v) >= 1e6 ? (v/1e6)+'M' : Math.abs(v) >= 1e4 ? (v/1e3)+'k' : v + '{unit}'",
        },
    }


def _bars(name: str, color: str, values: Sequence[float | None], *, stack: str | None) -> Options:
    shown: Options = {
        "name": name,
        "type": "bar",
        "data": list(values),
        "itemStyle": {"color": color, "borderRadius": [2, 2, 0, 0]},
        "barMaxWidth": 22,
        "barGap": "-100%",
    }
    return shown | ({"stack": stack} if stack else {})


def line(
    name: str,
    color: str,
    values: Sequence[float | None],
    *,
    axis: int = 0,
    area: bool = False,
    dashed: bool = False,
    width: float = 1.8,
) -> Options:
    shown: Options = {
        "name": name,
        "type": "line",
        "yAxisIndex": axis,
        "data": list(values),
        "showSymbol": sum(value is not None for value in values) < 3,
        "symbolSize": 5,
        "itemStyle": {"color": color},
        "lineStyle": {"color": color, "width": width, "type": "dashed" if dashed else "solid"},
    }
    return shown | ({"areaStyle": {"color": color, "opacity": 0.14}} if area else {})
