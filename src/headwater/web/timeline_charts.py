"""Charts of batches in the order of time: the timeline of a stream, and a fork beside its original."""

from __future__ import annotations

import html
from collections.abc import Collection, Mapping, Sequence

from headwater.views.fork_comparison import MEASURES, ForkComparison
from headwater.views.formatting import format_time
from headwater.views.page_events import Mark
from headwater.views.page_points import Kind, Point
from headwater.web.charts import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    RED,
    TEAL,
    TEXT,
    VIOLET,
    Options,
    batch_axis,
    category_axis,
    frame,
    line,
    tooltip,
    value_axis,
)

KIND_COLORS: dict[Kind, str] = {
    "kept": GREY,
    "reachable": GREEN,
    "again": TEAL,
    "planned": AMBER,
    "rewound": VIOLET,
}
KIND_LABELS: dict[Kind, str] = {
    "kept": "committed",
    "reachable": "committed, can be rewound to",
    "again": "run again after a rewind",
    "planned": "planned",
    "rewound": "rewound",
}
MARK_COLORS = {"failure": RED, "deploy": BLUE, "restart": "#64748b", "start": "#64748b", "code": BLUE}
MOST_MARKS = 6


def timeline(
    found: Sequence[Point], selected: int | None, marks: Mapping[int, Sequence[Mark]], kept: Collection[int] = ()
) -> Options:
    """Return a cell for each batch, with a pin where something happened and a dot on batches with a restore point."""
    cells = []
    for point in found:
        chosen = selected is not None and point.first <= selected <= point.last
        style = {
            "color": KIND_COLORS[point.kind],
            "opacity": 1 if chosen else (0.35 if point.kind == "rewound" else 0.62),
            "borderRadius": 2,
        }
        cells.append(
            {"value": 1.0 if chosen else 0.68, "tip": _timeline_tip(point, _marks_in(point, marks)), "itemStyle": style}
        )
    pins: list[Options] = [
        {
            "coord": [place, 0.68],
            "name": html.escape(str(here)),
            "value": here.label,
            "itemStyle": {"color": MARK_COLORS.get(here.label, VIOLET)},
        }
        for place, point in enumerate(found)
        if (here := foremost(_marks_in(point, marks)))
    ]
    pins += [
        {"coord": [place, 0.34], "value": "", "symbol": "circle", "symbolSize": 7, "itemStyle": {"color": VIOLET}}
        for place, point in enumerate(found)
        if point.kind != "rewound" and any(number in kept for number in range(point.first, point.last + 1))
    ]
    series = {
        "type": "bar",
        "data": cells,
        "barCategoryGap": "14%",
        "cursor": "pointer",
        "markPoint": {
            "data": pins,
            "symbol": "pin",
            "symbolSize": 34,
            "itemStyle": {"color": VIOLET},
            "label": {"fontSize": 9, "color": "#fff"},
            "silent": True,
        },
    }
    return {
        "animation": False,
        "grid": {"left": 4, "right": 4, "top": 14, "bottom": 20},
        "xAxis": batch_axis(found),
        "yAxis": {"type": "value", "show": False, "max": 1},
        "tooltip": tooltip(trigger="item", formatter="p => p.data.tip || p.name"),
        "series": [series],
    }


def _marks_in(point: Point, marks: Mapping[int, Sequence[Mark]]) -> list[Mark]:
    return [mark for number in range(point.first, point.last + 1) for mark in marks.get(number, ())]


def foremost(marks: Sequence[Mark]) -> Mark | None:
    """Return the mark that a pin names: the newest failure, or else change, deployment or other event."""
    order = {"failure": 0, "deploy": 2, "restart": 3, "code": 4, "start": 5}
    return min(reversed(marks), key=lambda mark: order.get(mark.label, 1), default=None)


def _timeline_tip(point: Point, marks: Sequence[Mark]) -> str:
    lines = [f"<b>batch {point.label}</b>", KIND_LABELS[point.kind]]
    if point.at_ms is not None:
        lines.append(f"{format_time(point.at_ms)} UTC")
    if point.rows is not None:
        lines.append(f"{point.rows:,} rows")
    lines += [html.escape(str(mark)) for mark in marks[-MOST_MARKS:]]
    return "<br>".join(lines)


def fork_timeline(found: ForkComparison, measure: str) -> Options:
    """Return two charts on one time axis: a lane of batches for each stream, and a measure of both below."""
    streams = ((found.original, BLUE, found.original_points), (found.fork, AMBER, found.fork_points))
    lanes: list[Options] = []
    lines: list[Options] = []
    for name, color, shown in streams:
        dots = [{"value": [point.at_ms, name], "tip": _timeline_tip(point, ())} for point in shown]
        lanes.append({"name": name, "type": "scatter", "data": dots, "symbolSize": 8, "itemStyle": {"color": color}})
        values = [[point.at_ms, MEASURES[measure](point)] for point in shown]
        drawn = line(name, color, [value for _, value in values])
        lines.append({**drawn, "data": values, "xAxisIndex": 1, "yAxisIndex": 1, "showSymbol": len(values) < 60})
    lanes[0] |= _fork_marks(found)
    times = [point.at_ms for _, _, shown in streams for point in shown if point.at_ms is not None]
    bounds = {"min": min(times), "max": max(times)} if times else {}
    unit = {"duration": " ms"}.get(measure, "")
    measured: Options = {**value_axis(unit=unit), "gridIndex": 1}
    if measure == "watermark":
        measured |= {"type": "time", "min": "dataMin", "max": "dataMax"}
        measured["axisLabel"] = {"color": TEXT, "fontSize": 11, "hideOverlap": True}
    time_axis = {**category_axis(), "type": "time", **bounds}
    # Both charts need the same width for their times to be below each other, so the legend names the lanes.
    sides = {"left": 58, "right": 24}
    return {
        **frame(),
        "useUTC": True,
        "grid": [
            {**sides, "top": 58, "height": 44},
            {**sides, "top": 126, "bottom": 24},
        ],
        "tooltip": tooltip(trigger="item", formatter=_FORK_TIP),
        "xAxis": [{**time_axis, "axisLabel": {"show": False}}, {**time_axis, "gridIndex": 1}],
        "yAxis": [
            {**category_axis(), "data": [found.original, found.fork], "inverse": True, "axisLabel": {"show": False}},
            measured,
        ],
        "series": [*lanes, *lines],
    }


_FORK_TIP = (
    "p => p.data.tip || (p.seriesName.replace(/[&<>\"']/g, c => `&#${c.charCodeAt(0)};`) + '<br>'"
    " + new Date(p.value[0]).toISOString().replace('T', ' ').slice(0, 19)"
    " + ' UTC: ' + (p.value[1] == null ? '-' : p.value[1].toLocaleString('en-US')))"
)


def _fork_marks(found: ForkComparison) -> Options:
    """Return a pin on the last batch that both streams share, and a line at the time when the fork was made."""
    marks: Options = {}
    if found.fork_point_ms is not None:
        marks["markPoint"] = {
            "data": [{"coord": [found.fork_point_ms, found.original], "value": f"batch {found.at}"}],
            "symbol": "pin",
            "symbolSize": 44,
            "itemStyle": {"color": VIOLET},
            "label": {"show": True, "formatter": "{c}", "fontSize": 9, "color": "#fff"},
            "silent": True,
        }
    if found.forked_at_ms is not None:
        marks["markLine"] = {
            "data": [{"xAxis": found.forked_at_ms}],
            "symbol": "none",
            "lineStyle": {"color": VIOLET, "type": "dashed"},
            "label": {"formatter": "forked", "color": TEXT, "fontSize": 11, "position": "end"},
            "silent": True,
        }
    return marks
