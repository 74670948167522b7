"""What a source's offsets mean: which kind of source wrote them, and how many rows lie between two of them. Pure.

A source that is not known here is shown as it stands and never fails. Numbers alone do not tell a rate source from a
socket or an old file source: the source's own log does (``SourceHint``).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from headwater.checkpoint.logtext import json_value
from headwater.core.errors import CheckpointUnreadable

_NUMBER = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True)
class SourceHint:
    """What is known about a source from elsewhere: its own log, and the job that Headwater ran."""

    kind: str | None = None
    initial: Any = None
    rows_per_second: int | None = None


NO_HINT = SourceHint()


@dataclass(frozen=True)
class SourceRange:
    """What one batch reads of one source: from ``start`` (exclusive of what was read before) to ``end``.

    ``rows`` is None where the offsets do not tell; ``files`` counts input files of a file source.
    """

    name: str
    kind: str
    start: Any
    end: Any
    rows: int | None
    files: int | None = None
    moved: bool = True


Step = Literal["same", "forward", "backward", "unknown"]


def offset_value(text: str | None) -> Any:
    """An offset's text as a JSON value, or the bare text when it is no JSON."""
    if text is None:
        return None
    try:
        return json_value(text, "offset")
    except CheckpointUnreadable:
        return text.encode("utf-8", "replace").decode("utf-8")


def kind_of(value: Any, hint: SourceHint = NO_HINT, provider: str | None = None) -> str:
    """The source's kind, by its offset's shape, then by what is known from elsewhere."""
    by_shape = kind_by_shape(value)
    if by_shape == "files" and hint.kind == "table":
        return "table"
    if by_shape:
        return by_shape
    if hint.kind:
        return hint.kind
    if _is_number(value):
        return "socket"
    return provider or "unknown"


def kind_by_shape(value: Any) -> str | None:
    if not isinstance(value, dict) or not value:
        return None
    if _is_number(value.get("logOffset")):
        return "files"
    if set(value) == {"offset", "timestamp"}:
        return "rate-micro-batch"
    if "reservoirVersion" in value:
        return "delta"
    if "activeSourceName" in value:
        return "sequential-union"
    if kafka_partitions(value) is not None:
        return "kafka"
    if all(isinstance(part, dict) and set(part) == {"value", "runTimeMs"} for part in value.values()):
        return "rate"
    return None


def hint_from_source_log(data: bytes) -> SourceHint:
    """What the first file of ``sources/N`` says: Kafka's first offsets, a rate source's start, a file source's files."""
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
            return SourceHint("files")
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
    """One source's part in a batch. ``start_known`` is False where the batch before was purged from the log."""
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
    # A partition that was not there before is read from its beginning.
    steps = [offset - before.get(partition, 0) for partition, offset in after.items()]
    return None if any(step < 0 for step in steps) else sum(steps)


def log_offset(value: Any) -> int | None:
    """A file source's position in its log; Spark 2.0 wrote it as a bare number."""
    number = value if _is_number(value) else _field(value, "logOffset")
    return number if _is_number(number) else None


def step_between(kind: str, before: Any, after: Any) -> tuple[Step, str]:
    """Whether a source went forward between two batches, and what moved back if it did not."""
    if before == after:
        return "same", ""
    if kind == "kafka":
        return _kafka_step(before, after)
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
    """Kafka's offset of each topic and partition; None for a value of any other shape."""
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
    """An offset in one short piece, for a table."""
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= most else f"{text[: most - 1]}…"
