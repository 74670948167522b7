"""Streams that feed each other: one writes what another one reads, according to their records and logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from headwater.checkpoint.locate import absolute_location
from headwater.fleet.endpoints import Endpoint
from headwater.fleet.summary import StreamSummary

EdgeKind = Literal["feeds", "fork"]


@dataclass(frozen=True)
class Edge:
    """``source`` writes ``label``, which ``target`` reads; or ``target`` is a fork of ``source``.

    ``is_certain`` is False if only the name of a topic matches, because the brokers of one of the two are unknown.
    """

    source: str
    target: str
    label: str
    kind: EdgeKind = "feeds"
    is_certain: bool = True


def edges_between(streams: Mapping[str, StreamSummary], locations: Mapping[str, str]) -> list[Edge]:
    """Return how the streams, given by name, feed each other, sorted. ``locations`` are those of their checkpoints."""
    found: dict[tuple[str, str, str], Edge] = {}
    writers: dict[tuple[str, str], list[tuple[str, Endpoint]]] = {}
    for name, summary in streams.items():
        for output in summary.writes:
            writers.setdefault((output.kind, output.place), []).append((name, output))
    for reader, summary in streams.items():
        for endpoint in summary.reads:
            for name, output in _candidates(endpoint, writers):
                if name != reader and output.feeds(endpoint):
                    certain = output.kind != "kafka" or bool(output.servers & endpoint.servers)
                    found[name, reader, output.label] = Edge(name, reader, output.label, is_certain=certain)
    names = {absolute_location(location): name for name, location in locations.items()}
    for name, summary in streams.items():
        origin = names.get(absolute_location(summary.forked_from)) if summary.forked_from else None
        if origin is not None and origin != name:
            found[origin, name, "fork"] = Edge(origin, name, "fork", "fork")
    return [found[place] for place in sorted(found)]


def _candidates(
    source: Endpoint, writers: Mapping[tuple[str, str], list[tuple[str, Endpoint]]]
) -> Iterator[tuple[str, Endpoint]]:
    """Yield the outputs that an input may read, without comparing every pair of streams."""
    if source.is_pattern:
        for (kind, _), outputs in writers.items():
            yield from outputs if kind == source.kind else ()
        return
    place = source.place
    while place:
        yield from writers.get((source.kind, place), ())
        place = place.rpartition("/")[0] if source.kind == "files" else ""


def levels(edges: list[Edge]) -> dict[str, int]:
    """Return the column of each stream in a drawing from left to right: one more than that of what feeds it.

    Streams in a cycle, such as two that read and write each other's topics, end up in some order.
    """
    names = sorted({name for edge in edges for name in (edge.source, edge.target)})
    found = dict.fromkeys(names, 0)
    for _ in names:
        moved = False
        for edge in edges:
            if found[edge.target] <= found[edge.source] < len(names):
                found[edge.target] = found[edge.source] + 1
                moved = True
        if not moved:
            break
    columns = {level: column for column, level in enumerate(sorted(set(found.values())))}
    return {name: columns[level] for name, level in found.items()}
