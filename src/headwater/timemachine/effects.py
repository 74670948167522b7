"""The effects of a rewind outside the checkpoint: the input that has to be read again, and what the sink receives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from headwater.checkpoint.history import Batch, History
from headwater.checkpoint.locate import absolute_path
from headwater.checkpoint.record import FILES, folder_of, uri_kind
from headwater.checkpoint.source_offsets import SourceRange, kafka_partitions
from headwater.core.errors import CheckpointUnreadable, HeadwaterError, UsageProblem, redact
from headwater.core.ids import BatchId
from headwater.core.text import batch_span
from headwater.core.times import iso_from_ms
from headwater.lakehouse.tables import TABLE_URIS, TablePlan, TableUri, parse_table_uri
from headwater.timemachine.relocate import Place
from headwater.timemachine.table_rereads import check_delta, check_iceberg

EarliestOffsets = Callable[[str, list[str]], dict[str, dict[int, int]]]
"""Returns the first offset that Kafka retains, by topic and partition, given the URI of a source and its topics."""


class RetentionLimits(Protocol):
    """How long Kafka retains records, as ``kafka.retention.Retention``."""

    @property
    def until_ms(self) -> int | None: ...

    @property
    def limit_bytes(self) -> int | None: ...


AskRetention = Callable[[str, Mapping[tuple[str, int], int]], RetentionLimits]
"""Returns how long Kafka retains the records from offsets on, given the URI of a source."""


@dataclass(frozen=True)
class Reread:
    """What one source has to provide again. ``still_there`` is None if it could not be checked.

    ``source`` is its name in the offset log, ``label`` the one that the job gives it, or else ``source 0``.
    """

    source: str
    kind: str
    start: Any
    end: Any
    rows: int | None
    files: int | None
    still_there: bool | None
    why: str | None = None
    given_name: str | None = None
    description: str | None = None
    uri: str | None = None
    retained_until_ms: int | None = None
    """Until when at least the broker retains all of it by time; None if there is no such limit or if it is unknown."""
    retention_bytes: int | None = None
    """The size of a partition at which the broker removes its oldest records."""

    @property
    def label(self) -> str:
        return self.given_name or f"source {self.source}"

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "source": self.source,
            "kind": self.kind,
            "start": self.start,
            "end": self.end,
            "rows": self.rows,
            "files": self.files,
            "still_there": self.still_there,
            "why": self.why,
            "label": self.label,
            "description": self.description,
            "retained_until": None if self.retained_until_ms is None else iso_from_ms(self.retained_until_ms),
            "retention_bytes": self.retention_bytes,
        }


def find_rereads(
    history: History,
    next_batch: int,
    ask_kafka: EarliestOffsets | None,
    given: Sequence[str] = (),
    *,
    replan: bool = False,
    moved: Sequence[str] = (),
) -> tuple[Reread, ...]:
    """Return what each source has to provide again: from the end of the last kept batch to that of the newest one.

    ``given`` are URIs of Kafka sources or tables, each of them optionally with a name:
    ``clicks=kafka://HOST:PORT/TOPIC``. With ``replan``, the first batch does not run with its recorded offsets. Sources
    in ``moved`` continue elsewhere and read nothing again.
    """
    uris = _given_uris(history, given)
    numbers = [number for number in history.batch_ids if number >= next_batch]
    batches = [history.batch(BatchId(number)) for number in numbers]
    parts: dict[str, list[SourceRange]] = {}
    for batch in batches:
        for part in batch.sources:
            if part.name not in moved:
                parts.setdefault(part.name, []).append(part)
    from_scratch = replan and next_batch == 0
    return tuple(
        _reread(history, found, uris, ask_kafka, from_scratch=from_scratch, replan=replan) for found in parts.values()
    )


def find_rereads_since(
    kept: Batch,
    history: History,
    ask_kafka: EarliestOffsets | None,
    given: Sequence[str] = (),
    *,
    moved: Sequence[str] = (),
) -> tuple[Reread, ...]:
    """Return what each source has to provide again after a batch that need not be in the logs any more.

    For the rest see ``find_rereads``.
    """
    if not history.batch_ids:
        return ()
    uris, newest = _given_uris(history, given), history.batch(history.batch_ids[-1])
    starts = {source.name: source.end for source in kept.sources}
    ranges = [_range_since(starts.get(source.name), source) for source in newest.sources if source.name not in moved]
    return tuple(_reread(history, [one], uris, ask_kafka, from_scratch=False, replan=True) for one in ranges)


def _range_since(start: Any, newest: SourceRange) -> SourceRange:
    """Return what a source read after an offset, up to the end of its newest batch; rows are counted for Kafka only."""
    before, after = kafka_partitions(start), kafka_partitions(newest.end)
    rows = None
    if newest.kind == "kafka" and before is not None and after is not None and before.keys() >= after.keys():
        rows = max(0, sum(end - before[place] for place, end in after.items()))
    return replace(newest, start=start, rows=rows, files=None, moved=start != newest.end)


def _reread(
    history: History,
    parts: list[SourceRange],
    uris: Mapping[str, str],
    ask_kafka: EarliestOffsets | None,
    *,
    from_scratch: bool,
    replan: bool,
) -> Reread:
    counts = [part.rows for part in parts]
    rows = sum(count for count in counts if count is not None) if None not in counts else None
    # A source that has delivered nothing yet has no offset, and its kind is unknown until it has one.
    first = next((part for part in parts if part.end is not None), parts[0])
    reread = Reread(
        first.name,
        first.kind,
        first.start,
        parts[-1].end,
        rows,
        None,
        None,
        given_name=first.given_name,
        description=first.description,
    )
    match first.kind:
        case "kafka":
            uri = uris.get(first.name) or uris.get("") or first.uri or ""
            return _check_kafka(uri, replace(reread, uri=uri or None), ask_kafka)
        case "files" | "table":
            return _check_files(history, reread)
        case "delta":
            table = _table(uris, first.name, first.uri, first.description)
            return check_delta(table, reread, from_scratch=from_scratch)
        case "iceberg":
            table = _table(uris, first.name, first.uri, first.description)
            return check_iceberg(history, table, reread, replan=replan)
        case "socket":
            return replace(reread, still_there=False, why="a socket cannot be read again")
        case "rate" | "rate-micro-batch":
            return replace(reread, still_there=True)
        case _:
            return reread


def _given_uris(history: History, given: Sequence[str]) -> dict[str, str]:
    """Return the given URIs by source; the one without a name, which applies to all other sources, as that of ``""``."""
    known = {name: source for source, one in history.logs.identities.items() for name in (source, one.label)}
    found = {}
    for text in given:
        name, equals, uri = text.partition("=")
        if not equals or ":" in name:
            found[""] = text
        elif name in known:
            found[known[name]] = uri
        else:
            raise UsageProblem(
                "bad-option",
                f"the query has no source named {name}",
                evidence={"sources": ", ".join(one.label for one in history.logs.identities.values())},
                remedy=f"--source {next(iter(known), '0')}={uri}",
            )
    return found


def _check_kafka(source: str, reread: Reread, ask: EarliestOffsets | None) -> Reread:
    if not isinstance(reread.start, dict):
        return replace(reread, why="the checkpoint does not record where the batch started")
    needed = _partitions_read(reread)
    if not needed:
        return replace(reread, still_there=True)
    if ask is None or not source.startswith("kafka://"):
        return replace(reread, why="the broker is unknown; name it with --source kafka://HOST:PORT/TOPIC")
    topics = list(dict.fromkeys(topic for topic, _ in needed))
    try:
        earliest = ask(source, topics)
    except HeadwaterError as error:
        return replace(reread, why=_why_not(error))
    gone = [
        f"{topic}[{partition}] now starts at offset {earliest[topic][partition]}, but offset {offset} is needed"
        for (topic, partition), offset in needed.items()
        if earliest.get(topic, {}).get(partition, 0) > offset
    ]
    gone += [
        f"{topic}[{partition}] does not exist"
        for topic, partition in needed
        if topic in earliest and partition not in earliest[topic]
    ]
    gone += [f"the topic {topic} does not exist" for topic in topics if topic not in earliest]
    return replace(reread, still_there=not gone, why="; ".join(gone) or None)


def with_retention(rereads: Iterable[Reread], ask: AskRetention) -> tuple[Reread, ...]:
    """Return what has to be read again, with the time until which Kafka retains it."""
    return tuple(_with_retention(reread, ask) for reread in rereads)


def _with_retention(reread: Reread, ask: AskRetention) -> Reread:
    starts = kafka_partitions(reread.start) if reread.kind == "kafka" and reread.still_there else None
    if not starts or not reread.uri:
        return reread
    try:
        limits = ask(reread.uri, starts)
    except HeadwaterError:  # it was reachable a moment ago; the plan does not depend on this
        return reread
    return replace(reread, retained_until_ms=limits.until_ms, retention_bytes=limits.limit_bytes)


def _partitions_read(reread: Reread) -> dict[tuple[str, int], int]:
    """Return where reading starts again, without the partitions from which the undone batches read nothing."""
    starts, ends = kafka_partitions(reread.start) or {}, kafka_partitions(reread.end) or {}
    return {place: offset for place, offset in starts.items() if ends.get(place, offset + 1) > offset}


def _why_not(error: HeadwaterError) -> str:
    """Return why the broker could not be queried and, for a wrong or missing option, what to do about it."""
    reason = f" ({error.evidence['reason']})" if "reason" in error.evidence else ""
    return f"{error.problem}{reason}" + (f"; {error.remedy}" if isinstance(error, UsageProblem) else "")


def _check_files(history: History, reread: Reread) -> Reread:
    try:
        entries = history.input_files(reread.source, reread.start, reread.end)
    except CheckpointUnreadable:
        entries = None
    if entries is None:
        return replace(reread, why="the source's log no longer lists these files")
    if not all(urlsplit(entry.path).scheme in {"", "file"} for entry in entries):
        return replace(reread, files=len(entries), why="files on an object store are not checked")
    missing = [entry.path for entry in entries if not Path(unquote(urlsplit(entry.path).path)).exists()]
    if missing and not history.files.is_local:
        return replace(reread, files=len(entries), why="they may be on another machine")
    why = f"{len(missing)} of {len(entries)} files are missing; the first is {missing[0]}" if missing else None
    return replace(reread, files=len(entries), still_there=not missing, why=why)


def source_table(history: History, source: str, given: Sequence[str] = ()) -> TableUri | None:
    """Return the Delta table that a source reads: as given, as recorded, or as Spark describes it; None if unknown."""
    identity = history.logs.identities.get(source)
    uri, description = (identity.uri, identity.description) if identity else (None, None)
    return _table(_given_uris(history, given), source, uri, description)


def _table(uris: Mapping[str, str], source: str, recorded: str | None, description: str | None) -> TableUri | None:
    kind, _, folder = (description or "").partition(" ")
    described = f"delta:{folder}" if kind == "delta" and folder else None
    return parse_table_uri(uris.get(source) or uris.get("") or recorded or described)


def sink_effects(sink: str | None, *, has_log: bool, undone: Sequence[int]) -> tuple[str, list[str]]:
    """Return a sentence on the sink, and warnings. With ``has_log`` it is a file sink whose log is rewound too."""
    span = batch_span(undone[0], undone[-1])
    if has_log:
        return f"the log entries and files of {span} are set aside, so the re-run writes every row exactly once", []
    kind = (sink or "").partition(":")[0]
    match kind:
        case "console":
            return f"{span} will be printed again", []
        case "memory":
            return "the table is filled again: it exists only while the job runs", []
        case "postgresql":
            return f"the rows of {span} are upserted again, over those of the first run", []
        case "kafka":
            return _warning(f"the rows of {span} are sent a second time: consumers see duplicates")
        case "files" | "table":
            return _warning(
                f"{sink} has no file sink log (_spark_metadata): the rows of {span} stay there and are written a second time"
            )
        case "delta":
            return _warning(
                f"{sink} was not found; a Delta table that has recorded {span} of this query silently skips them when "
                "they run again, even if it is restored. Name the folder: --sink delta:PATH"
            )
        case "iceberg":
            return _warning(
                f"{sink} was not found; an Iceberg table that has recorded {span} of this query silently skips them when "
                "they run again. Name it with its catalog: --sink "
                "'iceberg:CATALOG.DATABASE.TABLE?catalog.type=hadoop&catalog.warehouse=PATH'"
            )
        case "foreach-batch" | "foreach":
            function = "foreachBatch" if kind == "foreach-batch" else "foreach"
            return _warning(
                f"the function that was given to {function} receives {span} again: what it writes is written a second "
                "time, unless it recognizes batches by their ids. A table that skips known batches has to be rewound too: "
                f"--sink {TABLE_URIS}"
            )
        case "noop":
            return "the noop sink discards all rows", []
        case "hudi":
            return _warning(
                f"the table has recorded {span} and silently skips them when they run again, in a fork too. To avoid "
                "that, set another hoodie.datasource.write.streaming.checkpoint.identifier"
            )
        case _:
            warning = (
                f"the sink is unknown: a file sink or a table that has recorded {span} silently skips them when they run "
                f"again. Name it: --sink files:DIR, {TABLE_URIS}"
            )
            return "unknown", [warning]


def other_sink_warnings(recorded: str | None, given: str | None) -> list[str]:
    """Return a warning if the user has named another sink than the recorded one."""
    if not recorded or not given or _place_of(recorded) == _place_of(given):
        return []
    return [
        f"the recorded sink is {redact(recorded)}, and --sink names another one: what the undone batches wrote to the "
        "recorded one stays there"
    ]


def _place_of(sink: str) -> object:
    """Return what a sink is, however it is spelled: without options, and without the user of a database."""
    kind = uri_kind(sink) if ":" in sink else "files"
    if kind in ("files", "delta", "file"):
        folder = folder_of(f"{FILES}{sink.removeprefix(f'{kind}:')}")
        return Place.of(folder if ":" in folder else absolute_path(folder))
    place, _, options = sink.partition("?")
    scheme, slashes, rest = place.partition("//")
    return scheme, slashes, rest.rpartition("@")[2], dict(parse_qsl(options)).get("table")


def table_effects(plan: TablePlan, to: int | None) -> str:
    """Return a sentence on a table that returns to a batch."""
    if plan.action is None:
        return f"{plan.uri} has no batch after {to}, and stays as it is"
    if plan.others:
        return f"only the rows of this query are removed from {plan.uri}: the re-run writes each of them exactly once"
    target = "before the first batch" if to is None else f"batch {to}"
    return f"{plan.uri} returns to {target}, so the re-run writes every row exactly once"


def table_warnings(tables: Iterable[str], undone: Sequence[int]) -> list[str]:
    """Return warnings about the static tables of a job, of which no history is kept."""
    first_run = "the batch ran" if len(undone) == 1 else "the batches ran"
    return [f"the static table {name} is joined as it is now, not as it was when {first_run}" for name in tables]


def _warning(text: str) -> tuple[str, list[str]]:
    return text, [text]
