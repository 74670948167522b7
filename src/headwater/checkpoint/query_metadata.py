"""``metadata``: the query's id, which a sink may use to know a batch that it has seen."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.checkpoint.logtext import LogText, json_object, string

PATH = "metadata"


@dataclass(frozen=True)
class QueryMetadata:
    text: LogText
    query_id: str

    def to_bytes(self) -> bytes:
        return self.text.to_bytes()


def parse_query_metadata(data: bytes, path: str = PATH) -> QueryMetadata:
    text = LogText.from_bytes(data, path)
    return QueryMetadata(text, string(json_object("\n".join(text.lines), path), "id", path))
