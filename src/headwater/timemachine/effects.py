"""What the source is going to be asked for again, and whether it still has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from headwater.checkpoint.history import History
from headwater.checkpoint.source_offsets import log_offset
from headwater.core.errors import CheckpointUnreadable
from headwater.core.ids import BatchId

EarliestOffsets = Callable[[str, list[str]], dict[str, dict[int, int]] | None]


@dataclass(frozen=True)
class Reread:
    """One source's part. ``still_there`` is None where nobody could be asked."""

    source: str
    kind: str
    start: Any
    end: Any
    rows: int | None
    files: int | None
    still_there: bool | None
    why: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "kind": self.kind,
            "start": self.start,
            "end": self.end,
            "rows": self.rows,
            "files": self.files,
            "still_there": self.still_there,
            "why": self.why,
        }


def find_rereads(
    history: History, next_batch: int, ask_kafka: EarliestOffsets, source_uri: str | None = None
) -> tuple[Reread, ...]:
    """From where the last kept batch ended to where the newest planned one does."""
    numbers = [number for number in history.batch_ids if number >= next_batch]
    if not numbers:
        return ()
    batches = [history.batch(BatchId(number)) for number in numbers]
    found = []
    for first in batches[0].sources:
        parts = [part for batch in batches for part in batch.sources if part.name == first.name]
        counts = [part.rows for part in parts]
        rows = sum(count for count in counts if count is not None) if None not in counts else None
        reread = Reread(first.name, first.kind, first.start, parts[-1].end, rows, None, None)
        match first.kind:
            case "kafka":
                reread = _ask_kafka(source_uri or history.logs.job.source or "", reread, ask_kafka)
            case "files" | "table":
                reread = _look_for_files(history, reread)
            case "socket":
                reread = replace(reread, still_there=False, why="a socket cannot be read again")
            case "rate" | "rate-micro-batch":
                reread = replace(reread, still_there=True)
        found.append(reread)
    return tuple(found)


def _ask_kafka(source: str, reread: Reread, ask: EarliestOffsets) -> Reread:
    servers = urlsplit(source).netloc if source.startswith("kafka://") else ""
    if not servers or not isinstance(reread.start, dict):
        return replace(reread, why="no broker is known to ask; name it with --source kafka://HOST:PORT/TOPIC")
    earliest = ask(servers, list(reread.start))
    if earliest is None:
        return replace(reread, why=f"no broker answers at {servers}")
    gone = [
        f"{topic}[{partition}] starts at {earliest[topic][int(partition)]}, wanted from {offset}"
        for topic, partitions in reread.start.items()
        for partition, offset in partitions.items()
        if earliest.get(topic, {}).get(int(partition), 0) > offset
    ]
    gone += [f"there is no topic {topic}" for topic in reread.start if topic not in earliest]
    return replace(reread, still_there=not gone, why="; ".join(gone) or None)


def _look_for_files(history: History, reread: Reread) -> Reread:
    start = log_offset(reread.start) if reread.start is not None else -1
    end = log_offset(reread.end)
    try:
        entries = (
            None
            if end is None
            else history.source_log(reread.source).entries_between(-1 if start is None else start, end)
        )
    except CheckpointUnreadable:
        entries = None
    if entries is None:
        return replace(reread, why="the source's log no longer tells which files these were")
    if not all(urlsplit(entry.path).scheme in {"", "file"} for entry in entries):
        return replace(reread, files=len(entries), why="files on an object store are not looked for")
    missing = [entry.path for entry in entries if not Path(unquote(urlsplit(entry.path).path)).exists()]
    if missing and not history.files.is_local:
        return replace(reread, files=len(entries), why="they may be on the disk of another machine")
    why = f"{len(missing)} of {len(entries)} files are gone, the first is {missing[0]}" if missing else None
    return replace(reread, files=len(entries), still_there=not missing, why=why)


def sink_effects(sink: str | None, *, has_log: bool, undone: Sequence[int]) -> tuple[str, list[str]]:
    """One sentence on the sink, and warnings. ``has_log``: it is a file sink, and its log goes back with the rest."""
    span = f"batch {undone[0]}" if len(undone) == 1 else f"batches {undone[0]} to {undone[-1]}"
    if has_log:
        return f"its log and the files of {span} are set aside: every row is there once after the second run", []
    kind = (sink or "").partition(":")[0]
    match kind:
        case "kafka":
            again = f"the rows of {span} are sent a second time: consumers see duplicates"
            return again, [again]
        case "console":
            return f"{span} will be printed again", []
        case "memory":
            return "the table is filled anew: it lives in the process of the job", []
        case "postgresql":
            return f"the rows of {span} are upserted again, over those of the first run", []
        case "files" | "table":
            again = (
                f"{sink} has no log of Spark's file sink: the rows of {span} stay there and are written a second time"
            )
            return again, [again]
        case "delta" | "hudi":
            skipped = (
                f"the table has seen the numbers of {span} and skips them silently when they run again; restoring the "
                "table does not change that. Go on under a new query id instead: headwater fork"
            )
            return skipped, [skipped]
        case _:
            warning = (
                f"the sink is not known: a file sink (and Delta) skips {span} silently when they run again, because it "
                "has seen their numbers. If it is a file sink, name it: --sink files:DIR"
            )
            return "not known to Headwater", [warning]
