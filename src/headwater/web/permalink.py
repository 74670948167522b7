"""Where a reader is on the page of a checkpoint, as the query of its address."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from headwater.core.text import displayable


@dataclass(frozen=True)
class Place:
    """A batch, the batch that it is compared with, a store, and a key in it; None where the reader chose nothing.

    ``name`` is the checkpoint, if the page has several. Without a batch, the page follows the newest one.
    """

    name: str | None = None
    batch: int | None = None
    since: int | None = None
    state: str | None = None
    key: Mapping[str, str | None] | None = None

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> Place:
        """Return the place in an address; parts that are not valid are ignored."""
        return cls(
            query.get("name") or None,
            _number(query.get("batch")),
            _number(query.get("since")),
            query.get("state") or None,
            _key(query.get("key")),
        )

    def query(self) -> str:
        """Return the query, empty if there is nothing to remember."""
        key = None if self.key is None else json.dumps(dict(self.key), ensure_ascii=False, separators=(",", ":"))
        parts = {"name": self.name, "batch": self.batch, "since": self.since, "state": self.state, "key": key}
        found = urlencode({name: displayable(str(value)) for name, value in parts.items() if value is not None})
        return f"?{found}" if found else ""


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= 18 else None


def _key(text: str | None) -> dict[str, str | None] | None:
    try:
        found: Any = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    is_key = isinstance(found, dict) and all(isinstance(value, str | None) for value in found.values())
    return found if is_key and found else None
