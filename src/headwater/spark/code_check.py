"""Whether a job's code can resume from a checkpoint, and whether the state keeps its meaning.

Spark judges the schemas: it plans the job's next batch on a copy of the metadata of the state. No batch runs, no source is
contacted, and the checkpoint is only read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.log_entries import OffsetEntry
from headwater.checkpoint.logs import CheckpointLogs, in_order
from headwater.checkpoint.plan_record import StatefulOperator, plan_before, read_plans
from headwater.checkpoint.record import JobRecord, read_job_record
from headwater.core.errors import ChangeRefused, JobRefused
from headwater.jobs.job import Job
from headwater.jobs.rules import check_job, check_restart
from headwater.migration.compare_endpoints import (
    SourceShape,
    compare_mode,
    compare_sink,
    source_shape,
)
from headwater.migration.compare_meaning import can_compare, compare_meaning
from headwater.migration.compare_sources import compare_named, compare_sources, unclear_sources
from headwater.migration.compare_state import (
    compare_delays,
    compare_operators,
    judged,
    unmatched_operators,
    with_remedies,
)
from headwater.migration.comparison import Commands, Comparison, Difference, compare_settings
from headwater.migration.migrate import NewState, migration_problem
from headwater.migration.operator_matching import OperatorMatch, match_operators
from headwater.migration.plan_text import source_names, stateful_operators
from headwater.migration.source_changes import SourceChanges, match_sources
from headwater.migration.state_shapes import read_shapes
from headwater.spark.failures import SPARK_ERRORS
from headwater.spark.internals import plan_trees, state_planning
from headwater.spark.job_session import log_file
from headwater.spark.ownership import Run, job_record
from headwater.spark.prepared import PreparedJob, prepared_offline
from headwater.spark.session import jars_for, own_or_active_session, temporary_settings
from headwater.spark.source_names import has_join, naming_settings
from headwater.spark.state_twin import plan_on_twin

LOGGER = logging.getLogger("headwater")
NO_BATCH = "this checkpoint has no batch, so any code can start on it"
NO_STATE = "this checkpoint has no committed batch, so it has no state to compare"
NO_RECORD = (
    "no run recorded what the state means (it is recorded from the next run on): a change of windows, keys or expressions "
    "that keeps all types cannot be seen"
)
NEVER_RECORDED = (
    "Headwater has not run this query, so nothing records what the state means, and a change of windows, keys or "
    "expressions that keeps all types cannot be seen; to record it, run the code that wrote the state until a batch is "
    "committed: {run}"
)
OTHER_SPARK = (
    "the state was last written with Spark {old}, so its expressions are not compared with those of Spark {new}"
)
UNKNOWN_PLAN = "the expressions of this plan cannot be described, so they are not compared"
NO_PLANNING = "this release of Spark does not support planning without a batch, so Spark has not checked the state"


@dataclass(frozen=True)
class CurrentCode:
    """What a job's plan asks for: its stateful operators, and its sources in the order of their offsets."""

    operators: tuple[StatefulOperator, ...] | None
    sources: tuple[str, ...]

    @classmethod
    def of(cls, prepared: PreparedJob) -> CurrentCode:
        """Read the plan of a prepared job. Operators are None if this Spark does not allow it."""
        job = prepared.job
        unknown = cls(None, tuple(job.sources))
        if not plan_trees.probe(prepared.spark):
            return unknown
        try:
            plan = plan_trees.plan_tree(prepared.spark, prepared.frame)
            operators = () if job.per_batch else stateful_operators(plan)
            found = source_names(plan)
        except (*SPARK_ERRORS, ValueError) as error:  # a plan of an unknown form must not stop a run
            LOGGER.debug("the plan of %s cannot be described: %s", job.name, error)
            return unknown
        return cls(operators, found if set(found) == set(job.sources) else tuple(job.sources))


def check_code(
    spark: SparkSession,
    job: Job,
    files: FileTree,
    *,
    reference: str | None = None,
    given: Mapping[str, str] | None = None,
) -> Comparison:
    """Compare a job with a checkpoint. ``given`` are the settings that the user asks for, besides those of the job."""
    naming = naming_settings(spark, job, files)
    with temporary_settings(spark, naming), prepared_offline(spark, job) as prepared:
        return compare_code(job, prepared, CurrentCode.of(prepared), files, reference=reference, given=given)


def check_in_program(
    job: Job, files: FileTree, *, reference: str | None = None, conf: Mapping[str, str] | None = None
) -> Comparison:
    """Compare a job with a checkpoint on the session of this process, or on one that is started for it."""
    from headwater.spark.programs import reference_of  # noqa: PLC0415  it starts jobs, which compares code too

    check_job(job)
    wanted = {**job.conf, **(conf or {})}
    with own_or_active_session(job.name, conf=wanted, jars=jars_for(job), log=log_file([job])) as spark:
        return check_code(spark, job, files, reference=reference or reference_of(job), given=conf)


def compare_code(
    job: Job,
    prepared: PreparedJob,
    current: CurrentCode,
    files: FileTree,
    *,
    reference: str | None = None,
    given: Mapping[str, str] | None = None,
    source_map: Mapping[str, str] | None = None,
) -> Comparison:
    """Compare a job with a checkpoint. It may have been prepared with empty folders in place of its sources.

    ``source_map`` has the old name or place of new sources that cannot be matched otherwise.
    """
    logs, recorded = CheckpointLogs(files), read_job_record(files)
    commands = Commands(reference or recorded.reference or job.name, files.location)
    if not logs.offsets.ids:
        return Comparison(job.name, files.location, notes=(NO_BATCH,))
    last, entry = logs.commits.latest, logs.offsets.read(logs.offsets.ids[-1])
    wanted = job_record(Run(job, reference, files.location))
    notes: list[str] = []
    state: list[Difference] = []
    has_state = False
    sources = SourcesOf.job(logs, entry, wanted, current)
    found, changes = _compare_sources(prepared, sources, commands, source_map)
    if last is None:
        notes.append(NO_STATE)
    else:
        state, has_state = _compare_state(prepared, logs, last, entry, current, commands, notes, changes)
    differences = [
        *_compare_name(recorded, job),
        *found,
        *state,
        *_compare_restart(job, files.location, commands),
        *compare_settings(entry.conf, {**job.conf, **(given or {})}, commands),
        *compare_mode(recorded.mode, job.mode, commands, has_state=has_state),
        *compare_sink(recorded.sink, wanted.sink or "", recorded.sink_folder, wanted.sink_folder, commands),
    ]
    return Comparison(job.name, files.location, tuple(differences), tuple(notes))


def _compare_restart(job: Job, location: str, commands: Commands) -> Iterator[Difference]:
    try:
        check_restart(job, checkpoint=location)
    except JobRefused as refused:
        yield Difference(
            "sink",
            None,
            job.writes.kind,
            "needs-new-checkpoint",
            refused.problem,
            refused.remedy or commands.new_checkpoint,
        )


def _compare_name(recorded: JobRecord, job: Job) -> Iterator[Difference]:
    if recorded.job is not None and not recorded.attached and recorded.job != job.name:
        yield Difference(
            "name of the job",
            recorded.job,
            job.name,
            "needs-new-checkpoint",
            "headwater run refuses a checkpoint that belongs to another job",
            f'Job("{recorded.job}", …)',
        )


@dataclass(frozen=True)
class SourcesOf:
    """The sources of a checkpoint and of a job, in the order of their offsets; ``by_name`` if the offsets have names."""

    old: tuple[SourceShape, ...]
    new: tuple[SourceShape, ...]
    by_name: bool

    @classmethod
    def job(cls, logs: CheckpointLogs, entry: OffsetEntry, wanted: JobRecord, current: CurrentCode) -> SourcesOf:
        """Return the sources of a checkpoint, and those of a job as it would be recorded."""
        old = tuple(_old_source(logs, source.name) for source in in_order(entry.sources))
        new = tuple(source_shape(name, wanted.sources.get(name) or wanted.source) for name in current.sources)
        return cls(old, new, entry.version > 1 and not all(source.name.isdecimal() for source in entry.sources))


def _compare_sources(
    prepared: PreparedJob, sources: SourcesOf, commands: Commands, source_map: Mapping[str, str] | None
) -> tuple[list[Difference], SourceChanges | None]:
    """Return the differences between sources, and the changes of their places; None if Spark or nobody knows them."""
    if sources.by_name:
        return list(compare_named(sources.old, sources.new, commands)), None
    try:
        changes = match_sources(sources.old, sources.new, source_map)
    except ChangeRefused as refused:
        return [unclear_sources(sources.old, sources.new, refused, commands)], None
    return list(compare_sources(changes, commands, has_join=has_join(prepared))), changes


def _old_source(logs: CheckpointLogs, source: str) -> SourceShape:
    identity = logs.identities[source]
    topics = ",".join(sorted(identity.traits.topics))
    if identity.uri is not None:
        return source_shape(identity.name or "", identity.uri)
    return SourceShape(identity.name or "", identity.traits.kind, topics)


def _compare_state(
    prepared: PreparedJob,
    logs: CheckpointLogs,
    last: int,
    entry: OffsetEntry,
    current: CurrentCode,
    commands: Commands,
    notes: list[str],
    changes: SourceChanges | None,
) -> tuple[list[Difference], bool]:
    """Return the differences in the state and in its meaning, and whether there is state; add what is unknown to ``notes``."""
    old = read_shapes(logs, last)
    spark = prepared.spark
    recorded = plan_before(read_plans(logs.files), last + 1)
    if not old and not current.operators:
        return [], False
    is_comparable = False
    if current.operators is None:
        notes.append(UNKNOWN_PLAN)
    elif recorded is None:
        is_foreign = logs.job.attached or logs.job.job is None
        notes.append(NEVER_RECORDED.format(run=commands.run) if is_foreign else NO_RECORD)
    elif not can_compare(recorded, spark.version):
        notes.append(OTHER_SPARK.format(old=recorded.spark_version, new=spark.version))
    else:
        is_comparable = True

    def meaning(match: OperatorMatch | None = None) -> list[Difference]:
        if recorded is None or current.operators is None or not is_comparable:
            return []
        before, after = recorded.operators, current.operators
        if changes is not None:
            before, after = tuple(map(changes.before, before)), tuple(map(changes.after, after))
        return list(compare_meaning(before, after, commands, match.pairs if match else None))

    if not state_planning.probe(spark):
        notes.append(NO_PLANNING)
        return meaning(), bool(old)
    planned = plan_on_twin(prepared, logs, last, entry)
    if planned.shapes is None:
        why = "Spark cannot plan the job with the settings that the checkpoint records"
        refused = Difference("state", None, planned.refusal, "needs-new-checkpoint", why, commands.new_checkpoint)
        return [refused], bool(old)
    if planned.refusal is not None:
        notes.append(f"Spark: {planned.refusal}")
    try:
        match = match_operators(
            [one.name for one in old],
            [one.name for one in planned.shapes],
            recorded.operators if recorded and is_comparable else None,
            current.operators,
        )
    except ChangeRefused as refused:
        return [unmatched_operators(old, planned.shapes, refused, commands)], bool(old)
    differences = judged(list(compare_operators(old, planned.shapes, match, commands)), planned.refusal, commands)
    if planned.tree is not None and any(one.verdict == "needs-migrate" for one in differences):
        problem = migration_problem(logs, last, NewState(planned.tree, current.operators), changes)
        differences = with_remedies(differences, problem, commands)
    delays = compare_delays(old, planned.shapes, match, commands) if recorded is None else ()
    return [*differences, *meaning(match), *delays], bool(old)
