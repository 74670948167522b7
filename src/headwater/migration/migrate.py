"""Plan a migration: bring the state of a checkpoint to what new code asks for, in a batch that reads no input.

Spark has planned the new state on an empty checkpoint. Its metadata and schema files are written as they are there, and
the rows of every store whose fields differ are rewritten. Nothing here uses Spark, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import JOB_FILE, PLANS_FILE
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.plan_record import RecordedPlan, StatefulOperator, plan_before, plans_with, read_plans
from headwater.checkpoint.record import JobRecord, sink_of
from headwater.checkpoint.signs_of_life import signs_of_life
from headwater.core.errors import ChangeRefused, UsageProblem
from headwater.core.ids import StoreKey
from headwater.migration.field_matching import keys_differ, plan_store, same_key, widened_keys
from headwater.migration.field_plan import RequestedFields, StorePlan, Unit
from headwater.migration.layout_plan import layout_effects, operator_names, operator_places, plan_layout
from headwater.migration.migration_plan import MigrationPlan, StoreMigration, effects
from headwater.migration.new_metadata import changed_metadata
from headwater.migration.operator_changes import PlacedStores
from headwater.migration.operator_matching import OperatorMatch, match_operators
from headwater.migration.plan_text import BUFFER_SIZES
from headwater.migration.rekeyed_rows import Merge
from headwater.migration.rewriting import Evaluate, RewrittenStores, StoreRewrite, rekeyed
from headwater.migration.source_changes import SourceChanges
from headwater.statefiles.reader import StateReader
from headwater.statefiles.stores import StateTarget, StoreSettings, find_targets
from headwater.timemachine.change import fingerprint
from headwater.timemachine.cuts import has_sink_log
from headwater.timemachine.edit import UNKNOWN_SINK
from headwater.timemachine.extra_batch import plan_extra_batch, refuse_unknown_encoding, writable_batch
from headwater.timemachine.journal import refuse_if_pending
from headwater.timemachine.store_files import StoreChange

_SESSION_START = "sessionStartTime"
_AGGREGATIONS = ("stateStoreSave", "sessionWindowStateStoreSaveExec")
_BY_NAME = (
    "no run recorded the aggregates of the old code, so fields were matched by name: compare the old code with the new, "
    "because a sum of another column has the same name"
)


@dataclass(frozen=True)
class NewState:
    """The state that new code asks for, as Spark has planned it on an empty checkpoint, which ``tree`` is.

    ``operators`` are what the state means, None if unknown. ``buffers`` are the initial values of the functions of each
    aggregation, by operator; a function without a known one has None.
    """

    tree: FileTree
    operators: tuple[StatefulOperator, ...] | None = None
    buffers: Mapping[int, Sequence[pa.StructArray | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Meanings:
    """What the operators of a checkpoint and of new code mean, without the sources that are added or dropped."""

    before: tuple[StatefulOperator, ...] | None
    after: tuple[StatefulOperator, ...] | None

    @classmethod
    def of(cls, logs: CheckpointLogs, last: int, new: NewState, sources: SourceChanges | None) -> Meanings:
        """Return what was recorded, and what the new code has."""
        recorded = plan_before(read_plans(logs.files), last + 1)
        before, after = recorded.operators if recorded else None, new.operators
        if sources is not None:
            before = None if before is None else tuple(map(sources.before, before))
            after = None if after is None else tuple(map(sources.after, after))
        return cls(before, after)


def match_of(logs: CheckpointLogs, last: int, new: NewState, meanings: Meanings) -> OperatorMatch:
    """Match the operators of new code with those of a checkpoint. Raise ``ChangeRefused`` if that is not certain."""
    names = operator_names(logs, last), operator_names(CheckpointLogs(new.tree), 0)
    return match_operators(*names, meanings.before, meanings.after)


def plan_stores(
    logs: CheckpointLogs, last: int, new: NewState, requested: RequestedFields, match: OperatorMatch, meanings: Meanings
) -> list[StorePlan]:
    """Plan what becomes of every store. Raise ``ChangeRefused`` for what cannot be migrated with certainty."""
    old_targets = [one for one in find_targets(logs, last) if one.kind != "side"]
    new_targets = [one for one in find_targets(CheckpointLogs(new.tree), 0) if one.kind != "side"]
    places = dict(match.pairs)
    found = {(one.operator_id, one.store, one.var): one for one in new_targets}
    pairs = [
        (old, found[places[old.operator_id], old.store, old.var])
        for old in old_targets
        if old.operator_id in places and (places[old.operator_id], old.store, old.var) in found
    ]
    keys = _new_keys(pairs, requested)
    plans = []
    for old, target in pairs:
        _refuse_unlike(old, target)
        is_aggregation = target.operator_name in _AGGREGATIONS
        current = _units(meanings.after or (), target) if is_aggregation else None
        if is_aggregation and current is None:
            raise ChangeRefused(
                "unknown-plan",
                "the aggregates of this plan cannot be described, so its state cannot be migrated",
                evidence={"state": old.label},
                remedy="use a new checkpoint: headwater run JOB --checkpoint NEW",
            )
        known = _units(meanings.before or (), old)
        plans.append(
            plan_store(
                old,
                target,
                requested,
                recorded=known,
                current=current,
                keys=keys.get(_name(old)),
                checkpoint=logs.files.location,
            )
        )
        _refuse_avro(logs, last, plans[-1])
    _refuse_unused(requested, plans)
    return plans


_Name = tuple[int, str, str | None]


def _name(target: StateTarget) -> _Name:
    return target.operator_id, target.store, target.var


def _new_keys(pairs: list[tuple[StateTarget, StateTarget]], requested: RequestedFields) -> dict[_Name, tuple[str, ...]]:
    """Return expressions for the keys of stores whose key changes. Raise ``ChangeRefused`` if they are not known."""
    differing = [(old, new) for old, new in pairs if not same_key(old, new)]
    chosen = differing or (pairs if requested.keys else [])
    found: dict[_Name, tuple[str, ...]] = {}
    for old, new in chosen:
        if old.family is not None or sum(one.operator_id == old.operator_id for one, _ in pairs) > 1:
            raise ChangeRefused(
                "keys-differ",
                f"the key of operator {old.operator_id} cannot be changed",
                evidence={"why": "it keeps what belongs to a key in several stores, which have to agree"},
                remedy="use a new checkpoint: headwater run JOB --checkpoint NEW",
            )
        keys = requested.keys if requested.keys else widened_keys(old, new)
        if keys is None:
            raise keys_differ(old, new)
        names = new.schema.key.names
        if names[-1:] == [_SESSION_START] and len(keys) == len(names) - 1:
            keys = (*keys, _SESSION_START)
        if len(keys) != len(names) or len(chosen) > 1:
            raise UsageProblem(
                "bad-keys",
                "--keys needs one expression for each field of the new key"
                if len(chosen) == 1
                else "--keys can change the key of one operator only",
                evidence={"fields": ", ".join(names), "given": ", ".join(keys)},
                remedy=f'--keys "{", ".join(names)}", with expressions over the old key and value',
            )
        found[_name(old)] = keys
    return found


def migration_problem(
    logs: CheckpointLogs, last: int, new: NewState, sources: SourceChanges | None = None
) -> ChangeRefused | None:
    """Return why a migration without further options is refused; None if it is not. No row is read."""
    try:
        refuse_unknown_encoding(logs, last)
        meanings = Meanings.of(logs, last, new, sources)
        plan_stores(logs, last, new, RequestedFields(), match_of(logs, last, new, meanings), meanings)
    except ChangeRefused as refused:
        return refused
    return None


def plan_migration(
    files: FileTree,
    new: NewState,
    requested: RequestedFields,
    evaluate: Evaluate,
    *,
    merge: Merge | None = None,
    job: str,
    spark_version: str,
    recorded_at: str,
    accepted: Sequence[str] = (),
    reason: str | None = None,
    sink: str | None = None,
    sources: SourceChanges | None = None,
    record: JobRecord | None = None,
    seen: str | None = None,
) -> MigrationPlan:
    """Plan a migration. ``accepted`` are the changes of meaning that the user accepts; they are recorded.

    ``evaluate`` and ``merge`` compute the SQL of the requested. ``sources`` are the places of the sources, if they change, and
    ``record`` is what the checkpoint then records of the job. ``seen`` is the fingerprint of the checkpoint from before the
    caller read it to learn all this.
    """
    seen = seen or fingerprint(files)
    refuse_if_pending(files)
    history = History(files)
    last = writable_batch(history, needs_state=sources is None)
    reader = StateReader(files)
    meanings = Meanings.of(reader.logs, last, new, sources)
    match = match_of(reader.logs, last, new, meanings)
    plans = plan_stores(reader.logs, last, new, requested, match, meanings)
    rewrites = [_rewrite(reader, last, plan, new, evaluate) for plan in plans if plan.is_rewritten]
    for rewrite in rekeyed(rewrites, requested):
        rewrite.rules, rewrite.merge = requested.merge, merge
    stay = [number for old, number in match.pairs if old == number]
    metadata = dict(changed_metadata(reader.logs, new.tree, plans, last + 1, stay))
    layout = plan_layout(reader.logs, last, new.tree, match, sources)
    if sources is not None and record is not None:
        metadata[JOB_FILE] = record.to_bytes()
    if not rewrites and not metadata and layout is None:
        raise ChangeRefused(
            "nothing-to-do",
            f"nothing to migrate: the state of this checkpoint is already what {job} asks for",
            evidence={"checkpoint": files.location},
            remedy=f"headwater run {job} --checkpoint {files.location}",
        )
    sink_files = sink_of(files, sink)
    sink_files = sink_files if sink_files is not None and has_sink_log(sink_files) else None
    records = {}
    if new.operators is not None:
        plan = RecordedPlan(last + 1, new.operators, spark_version, recorded_at, tuple(accepted))
        records[PLANS_FILE] = plans_with(files, plan)
    stores: Mapping[StoreKey, StoreChange] = RewrittenStores(reader, last, rewrites)
    if layout is not None and layout.stores is not None:
        stores = PlacedStores(reader, last, match, layout.stores, stores)
    labels = ", ".join(rewrite.plan.old.label for rewrite in rewrites) or (
        "the schema of the state" if layout is None else "the sources and operators"
    )
    batch = plan_extra_batch(
        history,
        stores,
        verb="migrate",
        about=f"migrate {labels} to {job}",
        sink=sink_files,
        reason=reason,
        details={"job": job},
        metadata=metadata,
        records=records,
        layout=layout,
        seen=seen,
    )
    migrated = tuple(
        replace(StoreMigration.of(one.plan, one.rows, one.sample), merge=dict(one.rules), merged=one.merged)
        for one in rewrites
    )
    known_sink = sink is not None or history.logs.job.sink is not None
    warnings = [*([] if known_sink else [UNKNOWN_SINK]), *(_BY_NAME for plan in plans[:1] if plan.by_name_only)]
    warnings += [text for one in migrated for text in _possible_renames(one)]
    return MigrationPlan(
        files,
        sink_files,
        job,
        migrated,
        batch,
        (*effects(migrated, batch.batch_id), *layout_effects(reader.logs, last, new.tree, match, sources)),
        reason,
        tuple(warnings),
        tuple(signs_of_life(history)),
        () if sources is None else tuple(sources.places()),
        tuple(operator_places(reader.logs, last, new.tree, match)) if match.is_changed else (),
    )


def _rewrite(reader: StateReader, last: int, plan: StorePlan, new: NewState, evaluate: Evaluate) -> StoreRewrite:
    buffers = new.buffers.get(plan.new.operator_id, ())
    for one in plan.fields:
        if one.buffer is not None and (one.buffer.unit >= len(buffers) or buffers[one.buffer.unit] is None):
            raise ChangeRefused(
                "needs-value",
                f"the initial value of {one.aggregate} is not known",
                evidence={"state": plan.old.label, "field": one.name},
                remedy=f"--set {one.name}=SQL   (an expression over the old key and value)",
            )
    known = [one if one is not None else pa.array([], pa.struct([])) for one in buffers]
    return StoreRewrite(reader, last, plan, known, evaluate)


def _refuse_unlike(old: StateTarget, new: StateTarget) -> None:
    if old.kind == "raw":
        raise ChangeRefused(
            "cannot-migrate",
            f"{old.label} cannot be migrated",
            evidence={"why": "it has no schema file, so that its rows are only known as bytes"},
        )
    if old.kind != new.kind:
        raise ChangeRefused(
            "kind-differs",
            f"the state variable {old.var} changes its kind",
            evidence={"checkpoint": old.kind, "code": new.kind},
            remedy="give the variable a new name",
        )


def _refuse_avro(logs: CheckpointLogs, last: int, plan: StorePlan) -> None:
    """Raise ``ChangeRefused`` for values in Avro: Spark numbers their schemas, and reads each row with its own."""
    if plan.is_rewritten and plan.old.family is not None and StoreSettings.of(logs.offsets.get(last)).avro:
        raise ChangeRefused(
            "cannot-migrate",
            f"{plan.old.label} cannot be migrated",
            evidence={"why": "it is encoded in Avro, whose schemas Spark evolves by itself as far as Avro allows it"},
            remedy="use a type to which Avro can promote the old one, or give the variable a new name",
        )


def _refuse_unused(requested: RequestedFields, plans: list[StorePlan]) -> None:
    """Raise ``UsageProblem`` for a request that names no field of the new values, or fields of several stores."""
    for request in requested.fields:
        users = [
            (plan, one)
            for plan in plans
            for one in plan.fields
            if one.origin == "given" and requested.named(plan.new, one.name) == request
        ]
        if len(users) == 1:
            continue
        if users:
            (plan, one), *_ = users
            raise UsageProblem(
                "which-field",
                f"several stores have a field {one.name}",
                evidence={"stores": "; ".join(user.new.label for user, _ in users)},
                remedy=f"--set {plan.new.operator_id}.{one.name}=SQL, or --set {plan.new.var or plan.new.store}."
                f"{one.name}=SQL",
            )
        found = [one for plan in plans if plan.new.kind not in ("hidden", "timers") for one in plan.fields]
        added = [one.name for one in found if one.origin in ("initial", "null")]
        raise UsageProblem(
            "no-such-field",
            f"no value of the new state has a field {request}",
            evidence={"fields": ", ".join(one.name for one in found)},
            remedy=f"--set {next(iter(added or [one.name for one in found]), 'FIELD')}=SQL",
        )


def _units(operators: Sequence[StatefulOperator], target: StateTarget) -> list[Unit] | None:
    """Return the functions of the aggregation that a store belongs to; None if they are not known."""
    if target.operator_id >= len(operators):
        return None
    operator = operators[target.operator_id]
    names, sizes = operator.facts.get("aggregates", ()), operator.facts.get(BUFFER_SIZES, ())
    fits = len(names) == len(sizes) and sum(map(int, sizes)) <= len(target.schema.value.fields)
    if operator.kind != "aggregation" or (operator.facts.get("aggregates") and not fits):
        return None
    return [Unit(name, int(size)) for name, size in zip(names, sizes, strict=True)]


def _possible_renames(store: StoreMigration) -> Iterator[str]:
    """Yield a warning for a field that may be a dropped one under another name."""
    for one in store.fields:
        if one.origin != "null":
            continue
        alike = [lost.name for lost in store.dropped if lost.type == one.new_type]
        if alike:
            yield (
                f"{one.name} begins as null, and {alike[0]} of the same type is dropped; if it is the same under another "
                f"name: --set {one.name}={alike[0]}"
            )
