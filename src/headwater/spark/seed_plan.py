"""Plan a seed: which history takes the place of which source, and where each source continues. Spark is not started."""

from __future__ import annotations

import json
import re
from pathlib import Path

from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.locate import open_files
from headwater.core.errors import ChangeRefused, JobRefused, ServiceUnreachable, UsageProblem
from headwater.core.times import iso_from_ms
from headwater.jobs.endpoints import Delta, Files, Kafka, Source
from headwater.jobs.job import Job
from headwater.jobs.rules import check_job, check_restart
from headwater.jobs.uris import uri_of
from headwater.kafka.options import Connection
from headwater.kafka.positions import Offsets, resolve_position
from headwater.kafka.topics import list_topics
from headwater.lakehouse.delta_log import DeltaLog
from headwater.lakehouse.delta_source import offset_text, resolve_version
from headwater.spark.delta import location as table_location
from headwater.spark.ownership import job_record
from headwater.spark.seed_request import SeedRequest, history_source
from headwater.timemachine.cuts import has_sink_log
from headwater.timemachine.seed import (
    SCRATCH_SUFFIX,
    SeededSource,
    SeedPlan,
    read_progress,
    refuse_existing,
)

_HIDDEN = ("_", ".")
_UPDATES_UNSEEN = (
    "rows of keys that do not change again never reach the sink, because update mode emits a row when its key changes"
)


def plan_seed(request: SeedRequest) -> SeedPlan:
    """Plan a seed. Raise if the checkpoint exists, or if a source cannot continue at its position."""
    job = request.job
    check_job(job)
    check_restart(job, checkpoint=request.checkpoint)
    _refuse_job(job)
    _refuse_options(request)
    if "://" not in request.checkpoint:
        refuse_existing(LocalTree(Path(request.checkpoint)))
    _refuse_used_sink(request)
    sources = tuple(_seeded(request, name) for name in job.sources)
    aside = request.aside_folder if request.output == "aside" else None
    warnings = [_UPDATES_UNSEEN] if job.mode == "update" and request.output != "write" else []
    if request.by == "offset" and request.offset_columns is None and any(one.history for one in sources):
        warnings.append(
            "the history is taken as it is: it has to contain every record before the position and none after it"
        )
    return SeedPlan(
        job.name,
        request.checkpoint,
        sources,
        request.by,
        request.output,
        uri_of(job.writes),
        aside,
        request.reason,
        tuple(warnings),
        request.asked,
    )


def _refuse_job(job: Job) -> None:
    if job.per_batch:
        raise JobRefused(
            "no-state",
            f"{job.name} keeps no state between batches, so there is nothing to seed",
            remedy="start it at a position: --source 'kafka://…?startingOffsets=…'",
        )
    for source in job.sources.values():
        if not isinstance(source, Kafka | Delta):
            raise JobRefused(
                "seed-source",
                f"{job.name} reads from {source.kind}, which has no positions to continue at",
                evidence={"supported": "kafka, delta"},
                remedy="give the job the source that it is to continue with: --source kafka://HOST:PORT/TOPIC",
            )


def _refuse_options(request: SeedRequest) -> None:
    job = request.job
    for option, given in (("--from", request.history), ("--at", request.at)):
        missing = [name for name in job.sources if name not in given]
        unknown = [name for name in given if name not in job.sources]
        if not missing and not unknown:
            continue
        names = ", ".join(name for name in job.sources if name)
        example = "files:DIR" if option == "--from" else "POSITION"
        raise UsageProblem(
            "unknown-source" if unknown else "seed-incomplete",
            f"{job.name} has no source named {unknown[0]!r}"
            if unknown
            else f"{option} is missing for {missing[0] or 'the source'}",
            evidence={"sources": names} if names else None,
            remedy=" ".join(f"{option} {f'{name}=' if name else ''}{example}" for name in missing or job.sources)
            + ("   (none for a source without history)" if option == "--from" and names else ""),
        )
    if request.by == "event-time":
        _refuse_event_time(request)
    elif request.event_time is not None:
        raise UsageProblem("bad-option", "--event-time needs --by event-time", remedy="--by event-time")


def _refuse_event_time(request: SeedRequest) -> None:
    problem = None
    if request.event_time is None:
        problem = "--by event-time needs the column with the event time"
    elif request.offset_columns is not None:
        problem = "--offset-columns distinguishes records by offset"
    elif len(set(request.at.values())) > 1:
        problem = "all sources take over from the history at the same event time"
    if problem is None:
        try:
            _ = request.time_ms
        except ValueError:
            problem = "--by event-time needs a time in --at"
    if problem:
        raise UsageProblem(
            "bad-option", problem, remedy="--by event-time --event-time COLUMN --at 2026-07-01T00:00:00Z"
        )


def _refuse_used_sink(request: SeedRequest) -> None:
    """Raise ``ChangeRefused`` if a file sink has batches of another query: Spark would skip those with the same ids."""
    folder = job_record(request.run).sink_folder
    if folder is None or "://" in folder or not has_sink_log(LocalTree(Path(folder))):
        return
    interrupted = "://" not in request.checkpoint and read_progress(
        LocalTree(Path(f"{request.checkpoint}{SCRATCH_SUFFIX}"))
    )
    if interrupted and interrupted.asked == request.asked:
        return  # the entries are its own
    raise ChangeRefused(
        "sink-in-use",
        "the file sink has batches of another query, and Spark would skip those with the same ids",
        evidence={"sink": folder},
        remedy="--sink files:DIR, with a new folder",
    )


def _seeded(request: SeedRequest, name: str) -> SeededSource:
    live, history = request.job.sources[name], history_source(request, name)
    files, size = _measured(history)
    offset, position = _position(request, name, live)
    text = None if history is None else uri_of(history)
    return SeededSource(name, uri_of(live), text, offset, position, _rule(request, history, live), files, size)


def _rule(request: SeedRequest, history: Source | None, live: Source) -> str:
    place = "topic" if isinstance(live, Kafka) else "table"
    if history is None:
        return f"there is no history; the {place} is read from the position on"
    if request.by == "event-time":
        moment = iso_from_ms(request.time_ms)
        return (
            f"by event time: history before {moment}, and of the records that the {place} has now those from it on; "
            "later arrivals are all read"
        )
    if request.offset_columns:
        columns = " and ".join(request.offset_columns)
        return f"by offset: records of the history at or after the position, by its columns {columns}, are left out"
    return f"by offset: the history is everything before the position, and the {place} is read from there on"


def _position(request: SeedRequest, name: str, live: Source) -> tuple[str | None, str]:
    """Return where a source continues, as an offset of Spark and for people."""
    text = request.at[name]
    if isinstance(live, Kafka):
        found = _topic_position(live, "earliest" if request.by == "event-time" else text)
        offset = json.dumps(
            {topic: {str(number): offset for number, offset in numbers.items()} for topic, numbers in found.items()},
            separators=(",", ":"),
        )
        return offset, _offsets_text(found)
    assert isinstance(live, Delta)
    if request.by == "event-time":
        return None, "the entire table"
    log = DeltaLog(open_files(table_location(live)))
    if not log.exists:
        raise ServiceUnreachable("no-table", f"there is no Delta table at {live.path}")
    position = resolve_version(log, text)
    return offset_text(position), position.sentence


def _topic_position(source: Kafka, text: str) -> Offsets:
    connection = Connection(source.servers, source.options)
    if "assign" in source.options:
        raise JobRefused(
            "seed-source",
            "a source with assign cannot be seeded",
            remedy="name the topic: kafka://HOST:PORT/TOPIC",
        )
    pattern = source.options.get("subscribePattern")
    topics = (
        [topic.name for topic in list_topics(connection) if re.fullmatch(pattern, topic.name)]
        if pattern
        else source.options.get("subscribe", source.topic).split(",")
    )
    return resolve_position(connection, topics, text)


def _offsets_text(offsets: Offsets) -> str:
    parts = [f"{topic} {number}:{offset:,}" for topic, numbers in offsets.items() for number, offset in numbers.items()]
    shown = ", ".join(parts[:8])
    return shown if len(parts) <= 8 else f"{shown} and {len(parts) - 8} more"


def _measured(history: Source | None) -> tuple[int | None, int | None]:
    """Return the number and the size of the files of a history on this machine. Raise if there are none."""
    if not isinstance(history, Files) or "://" in history.path.removeprefix("file://"):
        return None, None
    path = Path(history.path.removeprefix("file://"))
    if re.search(r"[*?\[{]", str(path)):
        return None, None
    found = [one for one in path.rglob("*") if one.is_file() and not _is_hidden(one.relative_to(path))]
    if not found:
        raise ChangeRefused(
            "no-history",
            f"there are no files in {history.path}",
            remedy="name the folder with the history: --from files:DIR?format=json",
        )
    return len(found), sum(one.stat().st_size for one in found)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(_HIDDEN) for part in path.parts)
