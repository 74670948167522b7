"""The runs of a query, recorded in ``_headwater/runs.jsonl``: one line for each start, with what was deployed.

What a run deploys is the job's version (``HEADWATER_JOB_VERSION``, or else the version of the package that defines the
job), a digest of its code, its settings, and the versions of Spark and Python. Any of these may be unknown.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import HEADWATER_FOLDER

RUNS_FILE = f"{HEADWATER_FOLDER}/runs.jsonl"
VERSION_VARIABLE = "HEADWATER_JOB_VERSION"
MOST_RUNS = 500


@dataclass(frozen=True)
class RunRecord:
    """A run that started. ``next_batch`` is the first batch that it ran, or would have run."""

    at_ms: int
    next_batch: int
    version: str | None = None
    code: str | None = None
    """A digest of the job's function, such as ``python3.11:1f0c…``, or of the program that starts the query."""
    settings: Mapping[str, str] = field(default_factory=dict)
    spark: str | None = None

    @property
    def shown_version(self) -> str:
        """The version, or else the beginning of the digest of the code; empty if both are unknown."""
        digest = (self.code or "").rpartition(":")[2][:8]
        return self.version or (f"code {digest}" if digest else "")


def given_version() -> str | None:
    """Return the version that the environment gives the job."""
    return os.environ.get(VERSION_VARIABLE) or None


def deployed_changes(before: RunRecord, after: RunRecord) -> list[str]:
    """Return how a run differs from the one before it; empty for a restart of the same version."""
    found = []
    if before.version != after.version and after.version:
        found.append(f"version {after.version}" + (f" instead of {before.version}" if before.version else ""))
    if before.code and after.code and before.code != after.code:
        (old, _, _), (new, _, _) = before.code.rpartition(":"), after.code.rpartition(":")
        found.append("changed code" if old == new else f"{new or 'a program'} instead of {old or 'a program'}")
    for name in dict.fromkeys([*before.settings, *after.settings]):
        earlier, later = before.settings.get(name), after.settings.get(name)
        if earlier != later:
            found.append(f"{name} {later or 'default'} instead of {earlier or 'default'}")
    if before.spark and after.spark and before.spark != after.spark:
        found.append(f"Spark {after.spark} instead of {before.spark}")
    return found


def read_runs(files: FileTree) -> tuple[RunRecord, ...]:
    """Return the recorded runs, oldest first. Lines that are not as this version writes them are ignored."""
    try:
        lines = files.read(RUNS_FILE).decode("utf-8", "replace").split("\n")
    except OSError:
        return ()
    return tuple(record for record in map(_parse, lines) if record)


def add_run(files: FileTree, run: RunRecord) -> None:
    """Record a run; the oldest ones are removed. One that cannot be written is discarded."""
    with suppress(OSError):
        files.write(RUNS_FILE, runs_file([*read_runs(files), run]))


def runs_file(runs: Sequence[RunRecord]) -> bytes:
    """Return the contents of ``runs.jsonl``."""
    lines = (json.dumps(asdict(run), ensure_ascii=False) for run in runs[-MOST_RUNS:])
    return "".join(f"{line}\n" for line in lines).encode()


def _parse(line: str) -> RunRecord | None:
    try:
        value = json.loads(line)
        at_ms, next_batch = value["at_ms"], value["next_batch"]
        settings = value.get("settings") or {}
        texts = {str(name): str(text) for name, text in settings.items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    if not (isinstance(at_ms, int) and isinstance(next_batch, int)):
        return None
    version, code, spark = (_text(value.get(name)) for name in ("version", "code", "spark"))
    return RunRecord(at_ms, next_batch, version, code, texts, spark)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
