"""Plan migrations with Spark: it plans the new code's state, and knows with which values its aggregates begin."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.record import JobRecord, read_job_record
from headwater.core.errors import ChangeRefused, SetupProblem
from headwater.core.times import iso_from_ms
from headwater.jobs.job import Job
from headwater.jobs.rules import check_job
from headwater.migration.comparison import Commands, Comparison, Difference
from headwater.migration.field_plan import RequestedFields
from headwater.migration.migrate import NewState, plan_migration
from headwater.migration.migration_plan import MigrationPlan
from headwater.migration.source_changes import SourceChanges, match_sources, refuse_join_sides
from headwater.migration.wider_types import without_casts
from headwater.spark.code_check import NO_PLANNING, CurrentCode, SourcesOf, compare_code
from headwater.spark.dropped.lateness import source_order
from headwater.spark.internals import aggregate_buffers, state_planning
from headwater.spark.internals.aggregate_buffers import InitialBuffer
from headwater.spark.job_session import log_file
from headwater.spark.ownership import Run, job_record
from headwater.spark.prepared import PreparedJob, prepared_offline
from headwater.spark.session import jars_for, own_or_active_session, temporary_settings
from headwater.spark.source_names import has_join, naming_settings
from headwater.spark.state_twin import plan_on_twin
from headwater.statefiles.buffers import ByteSpace
from headwater.statefiles.rowcodec import UnsafeRows
from headwater.statefiles.sqltypes import parse_struct
from headwater.timemachine.change import fingerprint
from headwater.timemachine.extra_batch import writable_batch
from headwater.timemachine.journal import refuse_if_pending
from headwater.views.state_sql import aggregated, computed, split_expressions

# Changes of meaning that a migration takes care of: it plans each field of an aggregate or of a state, and new keys. A key
# that is only cast is the same key, if the types of the state show that it has become wider.
_MIGRATED = (": aggregates", ": order of aggregates", ": state")
_MIGRATED_KEYS = (": keys", ": order of keys")


@dataclass(frozen=True)
class MigrationRequest:
    """What a migration is asked for, beyond the code of the job.

    ``fields`` has SQL for fields of the new values, and ``keys`` a list of SQL expressions for those of a changed key;
    ``merge`` has an SQL aggregate for each field of rows that end up with the same key. ``source_map`` has the old name or
    place of new sources. With ``accept_change``, what the state means may change as well. ``reference`` names the job in
    commands.
    """

    fields: Mapping[str, str] = field(default_factory=dict)
    keys: str | None = None
    merge: Mapping[str, str] = field(default_factory=dict)
    source_map: Mapping[str, str] = field(default_factory=dict)
    accept_change: bool = False
    reason: str | None = None
    sink: str | None = None
    reference: str | None = None

    @property
    def requested_fields(self) -> RequestedFields:
        return RequestedFields(self.fields, split_expressions(self.keys) if self.keys else (), self.merge)


def migrate_in_program(
    job: Job, files: FileTree, request: MigrationRequest, *, conf: Mapping[str, str] | None = None
) -> MigrationPlan:
    """Plan a migration on the session of this process, or on one that is started for it."""
    from headwater.spark.programs import reference_of  # noqa: PLC0415  it starts jobs, which compares code too

    check_job(job)
    refuse_if_pending(files)
    writable_batch(History(files), needs_state=False)
    wanted = {**job.conf, **(conf or {})}
    with own_or_active_session(job.name, conf=wanted, jars=jars_for(job), log=log_file([job])) as spark:
        named = replace(request, reference=request.reference or reference_of(job))
        return plan_migration_of(spark, job, files, named)


def plan_migration_of(spark: SparkSession, job: Job, files: FileTree, request: MigrationRequest) -> MigrationPlan:
    """Plan to bring the state of a checkpoint to what a job asks for. Raise ``ChangeRefused`` if that is not certain."""
    with temporary_settings(spark, naming_settings(spark, job, files)), prepared_offline(spark, job) as prepared:
        return plan_prepared_migration(prepared, files, request)


def plan_prepared_migration(prepared: PreparedJob, files: FileTree, request: MigrationRequest) -> MigrationPlan:
    """Plan a migration to a prepared job."""
    seen = fingerprint(files)
    spark, job = prepared.spark, prepared.job
    if not state_planning.probe(spark):
        raise SetupProblem("pyspark-version", NO_PLANNING, remedy="use PySpark 4.2")
    current = CurrentCode.of(prepared)
    comparison = compare_code(job, prepared, current, files, reference=request.reference, source_map=request.source_map)
    name = request.reference or job.name
    accepted = _accepted(comparison, Commands(name, files.location), request)
    recorded, record = read_job_record(files), job_record(Run(job, request.reference, files.location))
    sources = _moved_sources(prepared, current, files, record, request.source_map)
    order = tuple(source_order(job, prepared.inputs)) if len(job.sources) > 1 else ()
    record = replace(
        record,
        table_folder=recorded.table_folder,
        reference=record.reference or recorded.reference,
        source_order=order,
    )
    return plan_migration(
        files,
        _new_state(prepared, current, files),
        request.requested_fields,
        computed,
        merge=aggregated,
        job=name,
        spark_version=spark.version,
        recorded_at=iso_from_ms(int(time.time() * 1000)),
        accepted=[f"{one.what}: {one.old or 'none'} → {one.new or 'none'}" for one in accepted],
        reason=request.reason,
        sink=request.sink or (record.sink if recorded.sink is None else None),
        sources=sources,
        record=record,
        seen=seen,
    )


def _moved_sources(
    prepared: PreparedJob,
    current: CurrentCode,
    files: FileTree,
    record: JobRecord,
    source_map: Mapping[str, str],
) -> SourceChanges | None:
    """Return the new places of sources; None if none changes, or if Spark itself finds them by their names."""
    logs = CheckpointLogs(files)
    sources = SourcesOf.job(logs, logs.offsets.read(logs.offsets.ids[-1]), record, current)
    if sources.by_name:
        return None
    changes = match_sources(sources.old, sources.new, source_map)
    refuse_join_sides(changes, has_join=has_join(prepared))
    return changes if changes.is_changed else None


def _accepted(comparison: Comparison, commands: Commands, request: MigrationRequest) -> list[Difference]:
    """Return the changes of meaning that the user accepts. Raise ``ChangeRefused`` for what no migration can help with."""
    for one in comparison.of("needs-new-checkpoint"):
        raise _refused(comparison, one, commands.new_checkpoint)
    new_keys = any(": key" in one.what for one in comparison.of("needs-migrate"))

    def is_migrated(one: Difference) -> bool:
        if one.what.endswith(_MIGRATED_KEYS):
            return request.keys is not None or (new_keys and without_casts(one.new or "") == one.old)
        return one.what.endswith(_MIGRATED)

    changed = [one for one in comparison.of("changes-meaning") if not is_migrated(one)]
    if changed and not request.accept_change:
        again = f"headwater migrate {commands.checkpoint} --job {commands.job} --accept-change"
        raise _refused(comparison, changed[0], f"{again}   (to continue the old state anyway)")
    return changed


def _refused(comparison: Comparison, one: Difference, remedy: str) -> ChangeRefused:
    return ChangeRefused(
        "cannot-migrate",
        f"no migration can prepare this checkpoint for {comparison.job}"
        if one.verdict != "changes-meaning"
        else f"{comparison.job} would also give the state another meaning",
        evidence={one.what: f"{one.old or 'none'}  →  {one.new or 'none'}", "why": one.why},
        remedy=remedy,
    )


def _new_state(prepared: PreparedJob, current: CurrentCode, files: FileTree) -> NewState:
    history = History(files)
    last = writable_batch(history, needs_state=False)
    entry = history.logs.offsets.read(last)
    planned = plan_on_twin(prepared, history.logs, last, entry)
    if planned.tree is None:
        raise ChangeRefused(
            "cannot-migrate",
            "Spark cannot plan the job with the settings that the checkpoint records",
            evidence={"Spark": planned.refusal or ""},
        )
    return NewState(planned.tree, current.operators, dict(_buffers(prepared, current)))


def _buffers(prepared: PreparedJob, current: CurrentCode) -> Iterator[tuple[int, list[pa.StructArray | None]]]:
    """Yield the initial values of each aggregation of a plan, by operator."""
    numbers = [number for number, one in enumerate(current.operators or ()) if one.kind == "aggregation"]
    if not numbers or not aggregate_buffers.probe(prepared.spark):
        return
    found = aggregate_buffers.initial_buffers(prepared.spark, prepared.frame)
    if len(found) == len(numbers):
        for number, buffers in zip(numbers, found, strict=True):
            yield number, [None if one is None else _decoded(one) for one in buffers]


def _decoded(buffer: InitialBuffer) -> pa.StructArray:
    space, size = ByteSpace(buffer.row), np.array([len(buffer.row)])
    return UnsafeRows(version_byte=False).rows(parse_struct(buffer.schema), space, np.array([0]), size)
