"""A seeded checkpoint: its state was built from history, and its sources continue at positions that were given.

Spark runs the query over the history on a checkpoint next to the new one. Its logs are then rewritten, so that they have
the positions of the query's own sources, and its files become the new checkpoint. Each step can be repeated after an
interruption; until the last one, the new checkpoint contains a notice that keeps Spark and other jobs from starting on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import (
    COMMITS,
    HEADWATER_FOLDER,
    METADATA,
    OFFSETS,
    SOURCES,
    covered_by_hadoop_crc,
    hadoop_crc_of,
)
from headwater.checkpoint.log_entries import NO_OFFSET
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.logtext import LogText, json_object
from headwater.core.errors import ChangeRefused, CheckpointUnreadable
from headwater.timemachine.fork import relocated_metadata, spark_paths

STAGE_FILE = f"{HEADWATER_FOLDER}/seeding.json"
SCRATCH_SUFFIX = ".seeding"
UNFINISHED = b"headwater: this seeded checkpoint is incomplete; run the same headwater seed again\n"
_DRAFT = f".{METADATA}.headwater.tmp"  # of a seed that was killed while it reserved its place

Output = Literal["write", "aside", "drop"]
OUTPUTS: tuple[Output, ...] = ("write", "aside", "drop")
Rule = Literal["offset", "event-time"]
Stage = Literal["history", "positions", "live", "complete"]


@dataclass(frozen=True)
class SeededSource:
    """A source of the new checkpoint: the history in its place, and where it continues.

    ``offset`` is the position as Spark's offset log has it, None for the start of the source. ``rule`` is how records that
    are in both are distinguished.
    """

    name: str
    uri: str
    history: str | None
    offset: str | None
    position: str
    rule: str
    files: int | None = None
    bytes: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name or None,
            "source": self.uri,
            "history": self.history,
            "files": self.files,
            "bytes": self.bytes,
            "position": json.loads(self.offset) if self.offset else None,
            "rule": self.rule,
        }


@dataclass(frozen=True)
class SeedPlan:
    """A seed that was planned. ``asked`` is what the user asked for, by which an interrupted seed is recognized."""

    job: str
    checkpoint: str
    sources: tuple[SeededSource, ...]
    by: Rule
    output: Output
    sink: str
    aside: str | None = None
    reason: str | None = None
    warnings: tuple[str, ...] = ()
    asked: str = ""

    def with_offsets(self, offsets: Mapping[str, str | None]) -> SeedPlan:
        """Return the plan with the positions that an interrupted seed has resolved."""
        return replace(self, sources=tuple(replace(one, offset=offsets[one.name]) for one in self.sources))

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "verb": "seed",
            "job": self.job,
            "checkpoint": self.checkpoint,
            "sources": [source.as_dict() for source in self.sources],
            "distinguished_by": self.by,
            "output": self.output,
            "aside": self.aside,
            "sink": self.sink,
            "reason": self.reason,
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class Progress:
    """How far an interrupted seed got, and the offsets that it had resolved."""

    stage: Stage
    asked: str
    offsets: Mapping[str, str | None]
    rows: int = 0
    state_rows: int = 0

    def to_bytes(self) -> bytes:
        """Return the contents of the file that records it."""
        return json.dumps(asdict(self)).encode()


def read_progress(scratch: FileTree) -> Progress | None:
    """Return how far an interrupted seed got; None if there is none."""
    try:
        value = json_object(scratch.read(STAGE_FILE).decode(), STAGE_FILE)
        return Progress(**value)
    except (FileNotFoundError, NotADirectoryError):
        return None


def refuse_other_seed(progress: Progress, plan: SeedPlan) -> None:
    """Raise ``ChangeRefused`` if the interrupted seed was another one."""
    if progress.asked == plan.asked:
        return
    raise ChangeRefused(
        "interrupted-seed",
        "a seed of this checkpoint was interrupted, and it had other options",
        evidence={"then": progress.asked, "now": plan.asked},
        remedy=f"run it again with the same options, or remove {plan.checkpoint}{SCRATCH_SUFFIX}",
    )


def refuse_existing(into: FileTree) -> None:
    """Raise ``ChangeRefused`` unless a seed can be written to this place: nothing is there, or a part of a seed."""
    names = [entry.name for entry in into.entries("") if entry.name != _DRAFT]
    if not names or is_unfinished(into):
        return
    raise ChangeRefused(
        "checkpoint-exists",
        "a seed creates a new checkpoint, and this one exists",
        evidence={"checkpoint": into.location, "contains": ", ".join(sorted(names)[:6])},
        remedy="choose another --checkpoint, or remove this one first",
    )


def is_unfinished(into: FileTree) -> bool:
    """Return whether a seed was interrupted while it wrote this checkpoint."""
    try:
        return into.read(METADATA) == UNFINISHED
    except (FileNotFoundError, NotADirectoryError):
        return False


def rewrite_positions(files: FileTree, offsets: Sequence[str | None]) -> None:
    """Give every batch of a checkpoint these offsets, in the order of its sources. Repeating it changes nothing."""
    logs = CheckpointLogs(files)
    for number in logs.offsets.ids:
        entry = logs.offsets.read(number)
        if len(entry.sources) != len(offsets):
            raise CheckpointUnreadable(
                "seed-sources",
                "the query read the history from a different number of sources than the job has",
                evidence={"offsets": len(entry.sources), "sources": len(offsets)},
                remedy="report it with the job's function",
            )
        version, metadata, *_ = entry.text.lines
        lines = [offset or NO_OFFSET for offset in offsets]
        if entry.version > 1:
            lines = [f"{source.name}:{line}" for source, line in zip(entry.sources, lines, strict=True)]
        path = f"{OFFSETS}/{number}"
        crc = hadoop_crc_of(path)
        if files.exists(crc):  # first: a checksum that does not match keeps Spark from reading the file
            files.remove(crc)
        files.write(path, replace(entry.text, lines=(version, metadata, *lines)).to_bytes())
    files.remove_folder(SOURCES)


def set_watermark(files: FileTree, watermark_ms: int) -> None:
    """Have a checkpoint continue with a watermark: the one of its last batch."""
    logs = CheckpointLogs(files)
    last = logs.commits.latest
    if last is None:
        return
    for log, name in ((OFFSETS, "batchWatermarkMs"), (COMMITS, "nextBatchWatermarkMs")):
        path = f"{log}/{last}"
        text = LogText.from_bytes(files.read(path), path)
        version, first, *rest = text.lines
        value = {**json_object(first, path), name: watermark_ms}
        if files.exists(crc := hadoop_crc_of(path)):
            files.remove(crc)
        lines = (version, json.dumps(value, separators=(",", ":")), *rest)
        files.write(path, replace(text, lines=lines).to_bytes())


def reserve(into: FileTree) -> None:
    """Keep a place for a seed: nothing starts on it before the seed is complete."""
    refuse_existing(into)
    if not is_unfinished(into):
        into.write(METADATA, UNFINISHED)


def adopt(scratch: FileTree, into: FileTree, written: Mapping[str, bytes]) -> None:
    """Make the files of a scratch checkpoint those of a new one, with its query id, and add files of Headwater."""
    reserve(into)
    for entry in into.entries(""):  # of an attempt that was interrupted
        if entry.is_folder:
            into.remove_folder(entry.name)
        elif entry.name != METADATA:
            into.remove(entry.name)
    moved: dict[str, bytes] = {}
    paths = list(spark_paths(scratch))
    for path in paths:
        data = relocated_metadata(scratch, path, into)
        if data is not None and data != scratch.read(path):
            moved[path] = data
    for path in paths:
        if path not in moved and covered_by_hadoop_crc(path) not in moved:
            scratch.share(path, into)
    for path, data in {**moved, **written}.items():
        into.write(path, data)
    into.write(METADATA, scratch.read(METADATA))


def seed_record(plan: SeedPlan, *, batches: Sequence[int], rows: int, by: str, at: str) -> bytes:
    """Return what the new checkpoint records about its origin."""
    value = {**plan.as_dict(), "batches": list(batches), "rows": rows, "by": by, "seeded_at": at}
    del value["verb"], value["warnings"]
    return json.dumps(value, indent=1).encode()
