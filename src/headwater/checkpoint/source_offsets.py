"""The meaning of source offsets: the kind of source, and the number of rows between two offsets.

Offsets of an unknown source are shown as they are and never fail. A plain number can belong to a rate source, a socket
or an old file source; the source's own log identifies it (``SourceHint``).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from headwater.checkpoint.logtext import json_value
from headwater.checkpoint.table_offsets import Step, table_position, table_step
from headwater.core.errors import CheckpointUnreadable

_NUMBER = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True)
class SourceHint:
    """What is known about a source from its own log and from the recorded job."""

    kind: str | None = None
    initial: Any = None
    rows_per_second: int | None = None
    path: str | None = None
    """One of the input files of a file source."""


NO_HINT = SourceHint()


@dataclass(frozen=True)
class SourceRange:
    """What a batch reads from a source: everything after ``start``, up to ``end``.

    ``rows`` is None if neither the offsets nor a progress record show it. ``files`` is the number of input files of a
    file source. ``lag`` is how many records were in Kafka and not read when the batch was planned, if that was recorded.
    ``name`` is the source's name in the offset log, ``label`` the one that the job gives it, or else ``source 0``.
    """

    name: str
    kind: str
    start: Any
    end: Any
    rows: int | None
    files: int | None = None
    moved: bool = True
    lag: int | None = None
    given_name: str | None = None
    description: str | None = None
    uri: str | None = None
    """Where the job reads it, if ``headwater run`` has recorded it."""

    @property
    def label(self) -> str:
        return self.given_name or f"source {self.name}"


@lru_cache(maxsize=16)
def offset_value(text: str | None) -> Any:
    """Return an offset as a JSON value, or as text if it is not JSON. The value is shared: it must not be modified."""
    if text is None:
        return None
    try:
        return json_value(text, "offset")
    except CheckpointUnreadable:
        return text.encode("utf-8", "replace").decode("utf-8")


def kind_of(value: Any, hint: SourceHint = NO_HINT, provider: str | None = None) -> str:
    """Return the kind of a source, from the form of its offset or else from the hint."""
    by_form = kind_by_form(value)
    if by_form == "files" and hint.kind == "table":
        return "table"
    if by_form:
        return by_form
    if hint.kind:
        return hint.kind
    if _is_number(value):
        return "socket"
    return provider or "unknown"


def kind_by_form(value: Any) -> str | None:
    """Return the kind of a source if the form of its offset identifies it."""
    if not isinstance(value, dict) or not value:
        return None
    if _is_number(value.get("logOffset")):
        return "files"
    if set(value) == {"offset", "timestamp"}:
        return "rate-micro-batch"
    if (position := table_position(value)) is not None:
        return position.kind
    if "activeSourceName" in value:
        return "sequential-union"
    if kafka_partitions(value) is not None:
        return "kafka"
    if all(isinstance(part, dict) and set(part) == {"value", "runTimeMs"} for part in value.values()):
        return "rate"
    return None


def hint_from_source_log(data: bytes) -> SourceHint:
    """Return a hint from the first file of ``sources/N``: Kafka's first offsets, or the kind of a rate or file source."""
    text = data.lstrip(b"\0").decode("utf-8", "replace")
    first, _, rest = text.partition("\n")
    body = rest if first.startswith("v") else text
    line = body.partition("\n")[0].strip()
    value = offset_value(line)
    if _is_number(value):
        return SourceHint("rate", initial=0)
    if isinstance(value, dict):
        if kafka_partitions(value) is not None:
            return SourceHint("kafka", initial=value)
        if "path" in value:
            return SourceHint("files", path=value["path"] if isinstance(value["path"], str) else None)
    return NO_HINT


def source_range(
    name: str,
    start_text: str | None,
    end_text: str | None,
    *,
    start_known: bool,
    hint: SourceHint = NO_HINT,
    provider: str | None = None,
) -> SourceRange:
    """Return what a batch reads from a source. ``start_known`` is False if the log lacks the previous batch."""
    end = offset_value(end_text)
    kind = kind_of(end, hint, provider)
    if end is None:
        return SourceRange(name, kind, None, None, 0, moved=False)
    start = offset_value(start_text)
    if start is None and start_known:
        start = _first_start(kind, hint)
    moved = not (start_known and start == end)
    rows = _rows(kind, start, end, hint) if start_known and moved else (None if moved else 0)
    return SourceRange(name, kind, start, end, rows, moved=moved)


def _first_start(kind: str, hint: SourceHint) -> Any:
    if kind == "kafka":
        return hint.initial
    return {"socket": -1, "rate": 0, "rate-micro-batch": {"offset": 0, "timestamp": 0}}.get(kind)


def _rows(kind: str, start: Any, end: Any, hint: SourceHint) -> int | None:
    if kind == "kafka":
        return _kafka_rows(start, end)
    if kind == "rate-micro-batch":
        start, end = _field(start, "offset"), _field(end, "offset")
    elif kind == "rate":
        if hint.rows_per_second is None:
            return None
        return _difference(start, end, hint.rows_per_second)
    elif kind != "socket":
        return None
    return _difference(start, end)


def _difference(start: Any, end: Any, factor: int = 1) -> int | None:
    if not _is_number(start) or not _is_number(end) or end < start:
        return None
    return int(end - start) * factor


def _kafka_rows(start: Any, end: Any) -> int | None:
    before, after = kafka_partitions(start), kafka_partitions(end)
    if before is None or after is None:
        return None
    # A new partition is read from its beginning.
    steps = [offset - before.get(partition, 0) for partition, offset in after.items()]
    return None if any(step < 0 for step in steps) else sum(steps)


def log_offset(value: Any) -> int | None:
    """Return a file source's position in its log; Spark 2.0 wrote it as a plain number."""
    number = value if _is_number(value) else _field(value, "logOffset")
    return number if _is_number(number) else None


def step_between(kind: str, before: Any, after: Any) -> tuple[Step, str]:
    """Return how a source moved between two batches and, if backward, a clause with the details."""
    if before == after:
        return "same", ""
    if kind == "kafka":
        return _kafka_step(before, after)
    if kind in ("delta", "iceberg"):
        return table_step(before, after)
    first, second = _position(kind, before), _position(kind, after)
    if not _is_number(first) or not _is_number(second):
        return "unknown", ""
    return ("backward", f"from {first} to {second}") if second < first else ("forward", "")


def _position(kind: str, value: Any) -> Any:
    if kind in ("files", "table"):
        return log_offset(value)
    return _field(value, "offset") if kind == "rate-micro-batch" else value


def _kafka_step(before: Any, after: Any) -> tuple[Step, str]:
    first, second = kafka_partitions(before), kafka_partitions(after)
    if first is None or second is None:
        return "unknown", ""
    for (topic, partition), offset in sorted(second.items()):
        earlier = first.get((topic, partition))
        if earlier is not None and offset < earlier:
            return "backward", f"{topic} partition {partition} from {earlier} to {offset}"
    return "forward", ""


def kafka_partitions(value: Any) -> dict[tuple[str, int], int] | None:
    """Return Kafka's offset for each topic and partition; None for a value of any other form."""
    if not isinstance(value, dict):
        return None
    found = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            return None
        for partition, offset in partitions.items():
            if not (_NUMBER.fullmatch(partition) and _is_number(offset)):
                return None
            found[(topic, int(partition))] = offset
    return found


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def short_text(value: Any, most: int = 60) -> str:
    """Return an offset as one short line, for a table."""
    if value is None:
        return "-"
    if (position := table_position(value)) is not None:
        return str(position)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= most else f"{text[: most - 1]}…"
