"""Find the dropped records of a checkpoint's batches with Spark: for ``headwater late`` and ``Checkpoint.late``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History, clean_batches
from headwater.core.errors import ChangeRefused, CheckpointUnreadable
from headwater.jobs.job import Job
from headwater.spark.dropped.records import DroppedRecord, DroppedRecords
from headwater.spark.dropped.store import DeadLetterStore, query_id_of
from headwater.spark.failures import explained
from headwater.spark.preflight import check_dead_letters, check_topics
from headwater.spark.session import jars_for, own_or_active_session

# Codes of errors that concern a single batch: its input is gone, or the logs no longer list it.
UNREADABLE_BATCH = {"cannot-reread", "no-batch", "snapshot-expired", "source-log-gone"}


@dataclass(frozen=True)
class FoundRecords:
    """The dropped records of some batches.

    ``delays_ms`` has the watermark delay of each source by name, None for a source without one; a source is missing from
    it if none of its records can be late.
    """

    records: tuple[DroppedRecord, ...] = ()
    delays_ms: Mapping[str | None, int] = field(default_factory=dict)


def suspect_batches(history: History, *, as_recorded: bool) -> list[int]:
    """Return the committed batches whose start offsets are known.

    ``as_recorded`` means that the job ran as it is searched with: batches are then omitted whose progress record shows
    that they dropped nothing.
    """
    planned = history.logs.offsets.entries
    known = [number for number in history.logs.commits.ids if number == 0 or number - 1 in planned]
    clean = clean_batches(history, known) if as_recorded else set()
    return [number for number in known if number not in clean]


def find_dropped(
    files: FileTree,
    job: Job,
    batches: Sequence[int],
    *,
    conf: Mapping[str, str] | None = None,
    to: str | None = None,
    skip_unreadable: bool = False,
    report: Callable[[str], None] = lambda text: None,  # noqa: ARG005
    warn: Callable[[str], None] = lambda text: None,  # noqa: ARG005
) -> FoundRecords:
    """Read the input of batches again and return the records that were dropped.

    Uses the Spark session of this process, or starts one for the search. ``to`` is the URI of a sink in which the
    records are saved. With ``skip_unreadable``, batches whose input is gone are left out with a warning, unless that is
    true of all of them. ``report`` receives what is being done, ``warn`` warnings.
    """
    target = check_dead_letters(job, to, warn=warn) if to else None
    if not batches:
        return FoundRecords()
    report("starting Spark")
    with own_or_active_session(
        "headwater late",
        conf={**job.conf, **(conf or {})},
        jars=jars_for(job, files.location, dead_letters=to),
        log=Path(".headwater/logs/late.log"),
    ) as spark:
        finder = DroppedRecords(spark, job, History(files))
        found: list[DroppedRecord] = []
        skipped = 0
        for number in batches:
            report(f"reading the records of batch {number}")
            try:
                found += finder.in_batch(number)
            except (ChangeRefused, CheckpointUnreadable) as error:
                skipped += 1
                if not skip_unreadable or error.code not in UNREADABLE_BATCH or skipped == len(batches):
                    raise
                if skipped == 1:
                    check_topics(job, warn=warn)  # without a broker, every batch would fail in the same way
                reasons = "; ".join(error.evidence.values())
                warn(f"warning: batch {number} is skipped: {error.problem}" + (f" ({reasons})" if reasons else ""))
        if target is not None:
            with explained("cannot save the records"):
                store = DeadLetterStore(spark, target, job.name, query_id_of(files))
                store.save([record.as_dict() for record in found])
    return FoundRecords(tuple(found), {rule.source or None: rule.delay_ms for rule in finder.rules})
