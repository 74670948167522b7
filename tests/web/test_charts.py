"""The charts of the page, as the options that the browser draws."""

from __future__ import annotations

from headwater.web.stream_graph import stream_graph


def test_graph_without_streams() -> None:
    """The graph of a fleet that is still being read is empty."""
    graph = stream_graph([], {})
    assert graph["yAxis"]["max"] == 0.5
    assert [one["data"] for one in graph["series"]] == [[]]
