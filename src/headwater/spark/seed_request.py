"""What a user asks of a seed: a job, the history of each source, and where each source continues."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from headwater.core.errors import UsageProblem
from headwater.core.times import ms_from_iso
from headwater.jobs.endpoints import Delta, Files
from headwater.jobs.job import UNNAMED, Job
from headwater.jobs.uris import source_from_uri, uri_of
from headwater.spark.ownership import Run
from headwater.timemachine.seed import OUTPUTS, Output, Rule

NO_HISTORY = "none"
_COLUMNAR = ("parquet", "orc")


@dataclass(frozen=True)
class SeedRequest:
    """What the user asks for. ``history`` and ``at`` are texts by the names of the job's sources.

    By ``offset``, the history has the records before the position; if it has columns with the partition and the offset
    of each record (``offset_columns``), later ones are left out. By ``event-time``, the history has the records before the
    time ``at`` and the source those from it on, by the SQL expression ``event_time``.
    """

    job: Job
    reference: str | None
    checkpoint: str
    history: Mapping[str, str]
    at: Mapping[str, str]
    by: Rule = "offset"
    event_time: str | None = None
    offset_columns: tuple[str, str] | None = None
    output: Output = "aside"
    aside: str | None = None
    reason: str | None = None

    @property
    def run(self) -> Run:
        return Run(self.job, self.reference, self.checkpoint)

    @property
    def aside_folder(self) -> str:
        """The folder for output that is not written to the sink."""
        return self.aside or f"{self.checkpoint}.output"

    @property
    def asked(self) -> str:
        """The request as text, by which an interrupted seed is recognized."""
        settings = {name: str(value) for name, value in self.job.settings.items()}
        return json.dumps(
            {
                "job": self.job.name,
                "settings": settings,
                "mode": self.job.mode,
                "sink": uri_of(self.job.writes),
                "from": dict(self.history),
                "at": dict(self.at),
                "by": [self.by, self.event_time, self.offset_columns],
                "output": [self.output, self.aside_folder],
            }
        )

    @property
    def time_ms(self) -> int:
        """The event time at which the sources take over from the history."""
        (text,) = set(self.at.values())
        return ms_from_iso(text)


def request_of(
    job: Job,
    reference: str | None,
    checkpoint: str,
    history: Mapping[str, str],
    at: Mapping[str, str],
    *,
    by: str = "offset",
    event_time: str | None = None,
    offset_columns: str | None = None,
    output: str = "aside",
    aside: str | None = None,
    reason: str | None = None,
) -> SeedRequest:
    """Return a request from texts. Raise ``UsageProblem`` for a rule, an output or columns that do not exist."""
    if by not in ("offset", "event-time"):
        raise UsageProblem("bad-option", f"{by!r} is not a rule", remedy="--by offset, or --by event-time")
    if output not in OUTPUTS:
        raise UsageProblem("bad-option", f"{output!r} is not an output", remedy="--output write, aside or drop")
    columns = None if offset_columns is None else [name.strip() for name in offset_columns.split(",")]
    if columns is not None and len(columns) != 2:
        raise UsageProblem(
            "bad-option",
            f"{offset_columns!r} does not name two columns",
            remedy="--offset-columns PARTITION,OFFSET",
        )
    return SeedRequest(
        job,
        reference,
        checkpoint,
        history,
        at,
        "offset" if by == "offset" else "event-time",
        event_time,
        None if columns is None else (columns[0], columns[1]),
        next(one for one in OUTPUTS if one == output),
        None if aside is None else aside if "://" in aside else str(Path(aside).absolute()),
        reason,
    )


def history_source(request: SeedRequest, name: str) -> Files | Delta | None:
    """Return the history that takes the place of a source; None if it has none."""
    text, live = request.history[name], request.job.sources[name]
    if text == NO_HISTORY:
        return None
    source = source_from_uri(text, live)
    if isinstance(source, Delta):
        return replace(source, options={"maxFilesPerTrigger": str(2**31 - 1), **source.options})
    if not isinstance(source, Files):
        raise UsageProblem(
            "bad-option",
            f"history cannot be read from {source.kind}",
            remedy="--from files:DIR?format=parquet, or --from delta:PATH",
        )
    # One batch: files of one history can be in any order, and none of its records is late.
    options = {key: value for key, value in source.options.items() if key.lower() != "maxfilespertrigger"}
    # Columns of Parquet and ORC files have types of their own, which need not be exactly those of the job.
    schema = None if source.format in _COLUMNAR else source.schema
    return replace(source, options=options, schema=schema)


def named_texts(texts: list[str], job: Job) -> dict[str, str]:
    """Return the values of a repeatable option by the names of the sources that they belong to, ``clicks=…``."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        named = bool(equals) and re.fullmatch(r"\w+", name) is not None and UNNAMED not in job.sources
        found[name if named else UNNAMED] = value if named else text
    if len(job.sources) == 1 and UNNAMED in found:  # a single source needs no name
        return {next(iter(job.sources)): found[UNNAMED]}
    return found


def position_texts(at: str | Mapping[str, object], job: Job) -> dict[str, str]:
    """Return positions that a program gives, as texts by the names of the job's sources."""
    if isinstance(at, str):
        return named_texts([at], job)
    if at.keys() <= job.sources.keys():
        return {name: _position_text(value) for name, value in at.items()}
    return named_texts([_position_text(at)], job)


def _position_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
