"""The graph of streams that feed each other, as options of ECharts."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from headwater.core.text import displayable
from headwater.fleet.graph import Edge, levels
from headwater.web.charts import AMBER, GREEN, GREY, RED, TEXT, Options, tooltip

_NODE_COLORS = {"error": RED, "warning": AMBER, "running": GREEN, "idle": GREY}


def _edge_tip(edge: Edge) -> str:
    if edge.kind == "fork":
        return "fork"
    return html.escape(displayable(edge.label)) + ("" if edge.is_certain else ", by the name of the topic only")


def stream_graph(edges: Sequence[Edge], severities: Mapping[str, str]) -> Options:
    """Return streams from left to right, each right of what feeds it; dashed where a link is not certain."""
    columns = levels(list(edges))
    filled: dict[int, int] = {}
    nodes: list[Options] = []
    for name in sorted(columns, key=lambda one: (columns[one], one)):
        row = filled.get(columns[name], 0)
        filled[columns[name]] = row + 1
        color = _NODE_COLORS[severities.get(name, "idle")]
        nodes.append(
            {
                "name": name,
                "about": html.escape(name),
                "value": [columns[name], row],
                "row": row,
                "itemStyle": {"color": color},
            }
        )
    links = [
        {
            "source": edge.source,
            "target": edge.target,
            "about": _edge_tip(edge),
            "label": {"show": True, "formatter": displayable(edge.label).replace("{", "(").replace("}", ")")},
            "lineStyle": {"type": "solid" if edge.is_certain and edge.kind == "feeds" else "dashed"},
        }
        for edge in edges
    ]
    series = {
        "type": "graph",
        "coordinateSystem": "cartesian2d",
        "data": nodes,
        "links": links,
        "symbolSize": 18,
        "cursor": "pointer",
        "edgeSymbol": ["none", "arrow"],
        "edgeSymbolSize": 8,
        "label": {"show": True, "position": "bottom", "color": TEXT, "fontSize": 12},
        "edgeLabel": {"color": TEXT, "fontSize": 10},
        "lineStyle": {"color": TEXT, "width": 1.4},
    }
    return {
        "animation": False,
        "grid": {"left": 110, "right": 110, "top": 24, "bottom": 44},
        "xAxis": {"type": "value", "show": False, "min": 0, "max": max(columns.values(), default=0)},
        "yAxis": {"type": "value", "show": False, "min": 0, "max": max([1, *filled.values()]) - 0.5, "inverse": True},
        "tooltip": tooltip(trigger="item", formatter="p => p.data.about"),
        "series": [series],
    }
