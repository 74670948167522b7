"""Rewind the flows of a declarative pipeline and their tables to a time, as one change with one undo.

Each flow keeps the batches that were committed by that time. A flow that reads the table of another one returns further if
a batch that it would keep has undone rows in it, so that no table has rows that its input no longer has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.flow_record import known_tables
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import CASCADE_FILE, METADATA, PENDING_FILE
from headwater.checkpoint.pipelines import Pipeline
from headwater.checkpoint.revisions import time_ms
from headwater.core.errors import ChangeRefused
from headwater.core.times import iso_from_ms
from headwater.timemachine.cascade import CascadePlan, is_before, joined_plans, last_kept, refuse_unmoved
from headwater.timemachine.downstream import Affected, Link, Stream, first_affected, open_stream, readers_of
from headwater.timemachine.effects import EarliestOffsets
from headwater.timemachine.executor import Progress, no_progress
from headwater.timemachine.journal import last_to_undo
from headwater.timemachine.move import absolute
from headwater.timemachine.moved_sources import OpenLog, log_after
from headwater.timemachine.rewind import RewindPlan, WithEngine, plan_query_rewind

AfterPlanning = Callable[[RewindPlan], RewindPlan]


@dataclass(frozen=True)
class PipelinePlan:
    """A rewind of a pipeline that was planned. ``together`` has a plan for each flow that changes, readers last."""

    pipeline: Pipeline
    moment_ms: int
    together: CascadePlan

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "pipeline": self.pipeline.location,
            "to_time": iso_from_ms(self.moment_ms),
            "flows": [
                {
                    "flow": name,
                    "table": self.pipeline.flows[name].table,
                    "checkpoint": plan.location,
                    "plan": plan.as_dict(),
                }
                for name, plan in zip(self.together.names, self.together.plans, strict=True)
            ],
            "unaffected": list(self.together.unaffected),
        }

    def apply(self, progress: Progress = no_progress, *, allow_missing_input: bool = False) -> None:
        """Rewind the flows and their tables. The pipeline must not be running."""
        self.together.apply(progress, allow_missing_input=allow_missing_input)


def plan_pipeline_rewind(
    pipeline: Pipeline,
    to_time: str,
    *,
    tables: Sequence[str] = (),
    cascade: bool = False,
    keep_foreign: bool = False,
    ask_kafka: EarliestOffsets | None = None,
    with_engine: WithEngine = lambda table: table,
    after_planning: AfterPlanning = lambda plan: plan,
) -> PipelinePlan:
    """Plan the return of flows to the last batches that were committed by a time; by default, of all flows.

    ``tables`` are the names of tables or flows to which the rewind is limited. If other flows have read undone rows, it is
    refused, unless ``cascade`` extends it to them. Raise ``ChangeRefused`` if a table is not found or cannot be rewound.
    """
    planning = _Planning(pipeline, {pipeline.named(name) for name in tables} or set(pipeline.flows), cascade=cascade)
    moment_ms = time_ms(to_time.removeprefix("@"), not_after_ms=planning.newest_commit_ms)

    def plan_flow(stream: Stream, to: int | None, open_log: OpenLog, *, replan: bool) -> RewindPlan:
        planned = plan_query_rewind(
            stream.files,
            to=to,
            replan=replan,
            ask_kafka=ask_kafka,
            keep_foreign=keep_foreign,
            with_engine=with_engine,
            open_log=open_log,
        )
        return after_planning(planned)

    for name in planning.order():
        planning.add(name, moment_ms, plan_flow)
    if not planning.plans:
        raise ChangeRefused(
            "nothing-to-undo",
            f"nothing to rewind: no batch was committed after {iso_from_ms(moment_ms)}",
            evidence={"pipeline": pipeline.location, "flows": ", ".join(sorted(planning.named))},
        )
    together = CascadePlan(
        tuple(joined_plans(list(planning.plans.values()))),
        tuple(planning.plans),
        tuple(planning.affected),
        tuple(name for name in pipeline.flows if name not in planning.plans),
    )
    return PipelinePlan(pipeline, moment_ms, together)


class _PlanFlow(Protocol):
    def __call__(self, stream: Stream, to: int | None, open_log: OpenLog, *, replan: bool) -> RewindPlan: ...


class _Planning:
    """The plans so far. Flows are added in an order in which every reader follows what it reads."""

    def __init__(self, pipeline: Pipeline, named: set[str], *, cascade: bool) -> None:
        self.pipeline, self.named, self.cascade = pipeline, named, cascade
        trees = {name: absolute(pipeline.files_of(name)) for name in pipeline.flows}
        # A flow has an empty folder between a full refresh and its first batch.
        self.streams = {name: open_stream(files) for name, files in trees.items() if files.exists(METADATA)}
        self.names = {stream.location: name for name, stream in self.streams.items()}
        everyone = list(self.streams.values())
        self.links = [
            link for one in everyone for link in readers_of(one, [other for other in everyone if other != one])
        ]
        self.plans: dict[str, RewindPlan] = {}
        self.affected: list[Affected] = []
        self._refuse_unknown_inputs()

    @property
    def newest_commit_ms(self) -> int:
        return max(
            (stamp for one in self.streams.values() for stamp in _committed(History(one.files)).values()), default=0
        )

    def order(self) -> list[str]:
        """Return the flows so that every reader follows what it reads. Spark refuses pipelines with cycles."""
        inputs: dict[str, set[str]] = {name: set() for name in self.streams}
        for link in self.links:
            inputs[self.names[link.reader.location]].add(self.names[link.upstream.location])
        found: list[str] = []
        while len(found) < len(inputs):
            left = [name for name in inputs if name not in found]
            found += [name for name in left if inputs[name] <= set(found)] or left
        return found

    def add(self, name: str, moment_ms: int, plan_flow: _PlanFlow) -> None:
        """Add the plan of a flow, unless nothing of it is undone."""
        stream = self.streams[name]
        history = History(stream.files)
        if not history.batch_ids:
            return
        newest = max(history.batch_ids)
        target = _kept_at(history, moment_ms) if name in self.named else newest
        links = [link for link in self.links if link.reader.location == stream.location]
        hits = [found for link in links if (found := self._hit(link)) is not None]
        for found in hits:
            if name not in self.named and not self.cascade:
                raise _not_named(found)
            kept = last_kept(stream, found)
            target = target if is_before(target, kept) else kept
        if not hits and target is not None and target >= newest:
            return
        self._refuse_table(name, stream)
        try:
            # What a flow has read of another flow's table may be undone: its batch is planned again.
            plan = plan_flow(stream, target, log_after(one.table for one in self.plans.values()), replan=bool(links))
        except ChangeRefused as error:
            if error.code == "nothing-to-undo":
                return
            raise
        for found in hits:
            refuse_unmoved(found, plan, is_table=found.link.kind == "delta")
        inside = {link.source for link in links}
        self.plans[name] = replace(plan, rereads=tuple(one for one in plan.rereads if one.source not in inside))
        self.affected += hits

    def _hit(self, link: Link) -> Affected | None:
        """Return what the plan of a flow's input does to the flow; None if nothing."""
        upstream = self.plans.get(self.names[link.upstream.location])
        if upstream is None:
            return None
        found = first_affected(link, upstream, None)
        # No reader can pass the commit that takes rows out of a Delta table, even if it has not read them.
        is_table = link.kind == "delta" and upstream.table is not None and upstream.table.action is not None
        return found if found.batch is not None or is_table else None

    def _refuse_table(self, name: str, stream: Stream) -> None:
        """Raise ``ChangeRefused`` if the rows of a flow cannot be taken out of its table: they would be written twice."""
        flow = self.pipeline.flows[name]
        writers = [other for other, one in self.pipeline.flows.items() if one.target == flow.target]
        if len(writers) > 1:
            raise ChangeRefused(
                "shared-table",
                f"cannot rewind {flow.table}: several flows write to it",
                evidence={"flows": ", ".join(writers)},
                remedy=f"spark-pipelines run --full-refresh {flow.target[-1]}",
            )
        if stream.record.sink is None and len(flow.target) > 1:
            table = flow.target[-1]
            raise ChangeRefused(
                "table-not-found",
                f"cannot find the table {flow.table}, which the flow {name} writes to",
                evidence={"searched": f"a folder {table} with _spark_metadata or _delta_log"},
                remedy="name the folder that Spark has as spark.sql.warehouse.dir: --warehouse DIR",
            )

    def _refuse_unknown_inputs(self) -> None:
        """Raise ``ChangeRefused`` if a flow may read a table of the pipeline without that being known."""
        places = known_tables(self.pipeline.location, is_local=self.pipeline.storage.is_local)
        unknown = [place.folder for place in places.values() if place.is_delta and place.delta_id is None]
        for name, stream in self.streams.items() if unknown else ():
            identities = History(stream.files).logs.identities.values()
            if any(identity.traits.kind == "delta" and identity.uri is None for identity in identities):
                raise ChangeRefused(
                    "cannot-cascade",
                    f"cannot determine which table the flow {name} reads",
                    evidence={"tables without an id in their log": ", ".join(unknown)},
                    remedy="rewind the flows one by one: headwater rewind PIPELINE:FLOW --to B",
                )


def _committed(history: History) -> dict[int, int]:
    return {number: stamp for number, stamp in history.committed_at_ms.items() if stamp is not None}


def _kept_at(history: History, moment_ms: int) -> int | None:
    """Return the last batch that was committed by a time; None if all were committed later."""
    stamps = _committed(history)
    kept = [number for number, stamp in stamps.items() if stamp <= moment_ms]
    if kept:
        return max(kept)
    first = min(history.batch_ids, default=0)
    if first > 0:
        raise ChangeRefused(
            "no-batch",
            f"cannot rewind to {iso_from_ms(moment_ms)}: batches before {first} are no longer in the log",
            evidence={
                "checkpoint": history.files.location,
                "oldest commit": iso_from_ms(min(stamps.values(), default=0)),
            },
            remedy="choose a later time",
        )
    return None


def _not_named(found: Affected) -> ChangeRefused:
    reader, upstream = found.link.reader.name, found.link.upstream.name
    problem = (
        f"{reader} reads the Delta table of {upstream}, which would return to an earlier version"
        if found.batch is None
        else f"{reader} has read rows of {upstream} that would be undone, since its batch {found.batch}"
    )
    return ChangeRefused(
        "downstream-rows",
        problem,
        evidence={"checkpoint": found.link.reader.location},
        remedy="add --cascade to rewind it as well, or add it to --tables",
    )


def changed_flow(pipeline: Pipeline) -> FileTree | None:
    """Return the flow whose journal has the last change of the pipeline, to undo it; None if there is no change."""
    found: list[tuple[int, FileTree]] = []
    for name in pipeline.flows:
        files = absolute(pipeline.files_of(name))
        entry = last_to_undo(files)
        if entry is not None and "cascade_of" not in entry.change.details:
            found.append((entry.done_at_ms, files))
    return max(found, key=lambda one: one[0])[1] if found else None


def interrupted_flow(pipeline: Pipeline) -> FileTree | None:
    """Return the flow in which an interrupted change of the pipeline is recorded; None if there is none."""
    trees = [absolute(pipeline.files_of(name)) for name in pipeline.flows]
    for file in (CASCADE_FILE, PENDING_FILE):
        for files in trees:
            if files.exists(file):
                return files
    return None
