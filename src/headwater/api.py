"""The Python interface to a checkpoint, with the plans that change it. ``api_reading`` has what only reads.

Modules that take long to import are imported when they are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.api_reading import ReadableCheckpoint, named_uris, sink_uri
from headwater.checkpoint.record import sink_of
from headwater.checkpoint.restore_points import RestorePoint
from headwater.core.extras import naming_extras
from headwater.core.ids import StoreRef
from headwater.results import (
    ShownEditPlan,
    ShownForkPlan,
    ShownMigrationPlan,
    ShownRepartitionPlan,
    ShownRewindPlan,
    ShownSeedPlan,
    ShownStoreMigrationPlan,
    ShownUndoPlan,
    shown_as,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.jobs.job import Job


class Checkpoint(ReadableCheckpoint):
    """A streaming query's checkpoint, given by path, URL or job name.

    Every property and method reads the checkpoint as it is at that moment, so a running query's new batches are seen.
    In a notebook, a checkpoint and everything that it returns is shown as HTML.
    """

    def migrate(
        self,
        job: Job | str,
        *,
        set: Mapping[str, str] | None = None,
        keys: str | None = None,
        merge: Mapping[str, str] | None = None,
        accept_change: bool = False,
        reason: str | None = None,
        source: str | Mapping[str, str] | None = None,
        source_map: Mapping[str, str] | None = None,
        settings: Mapping[str, object] | None = None,
        sink: str | Path | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> ShownMigrationPlan:
        """Plan to convert the state to what a job's changed code expects. ``plan.apply()`` adds a batch that does it.

        ``set`` has SQL over the old key and value for fields of the new values, and ``keys`` a list of SQL expressions for
        the fields of a changed key. ``merge`` has an SQL aggregate for each field of rows that end up with the same key, and
        ``source_map`` the old name or place of sources that are not found by their names or by what they read. With
        ``accept_change``, the job may also give the state another meaning. ``source`` and ``settings`` are those of the
        job. Uses the Spark session of this process, or starts one with the settings in ``conf`` and stops it;
        ``plan.apply()`` needs none.
        """
        from headwater.jobs.loading import select_job  # noqa: PLC0415

        with naming_extras():
            from headwater.spark.migrate import MigrationRequest, migrate_in_program  # noqa: PLC0415

        plan = migrate_in_program(
            select_job(job, sources=named_uris(source), settings=settings),
            self.files,
            MigrationRequest(
                set or {},
                keys,
                merge or {},
                source_map or {},
                accept_change,
                reason,
                sink=sink_uri(sink),
                reference=job if isinstance(job, str) else None,
            ),
            conf=conf,
        )
        return shown_as(ShownMigrationPlan, plan)

    def migrate_store(
        self,
        store: str | None = None,
        *,
        checkpoint_format: int | None = None,
        reason: str | None = None,
        sink: str | Path | None = None,
    ) -> ShownStoreMigrationPlan:
        """Plan to keep the state in another store. ``plan.apply()`` adds a batch that does it. Neither needs Spark.

        ``store`` is ``"hdfs"``, ``"rocksdb"`` or ``"rocksdb-changelog"``; by default it stays as it is.
        ``checkpoint_format`` can become 2. ``plan.after.conf`` are the settings with which the query continues.
        """
        from headwater.migration.store_migration import plan_store_migration  # noqa: PLC0415

        plan = plan_store_migration(
            self.files, store=store, checkpoint_format=checkpoint_format, reason=reason, sink=sink_uri(sink)
        )
        return shown_as(ShownStoreMigrationPlan, plan)

    def plan_rewind(
        self,
        *,
        to: int | str | None,
        replan: bool = False,
        sink: str | Path | None = None,
        source: str | Mapping[str, str] | None = None,
        keep_foreign: bool = False,
    ) -> ShownRewindPlan:
        """Plan a rewind after which batch ``to`` is the last one; None undoes all batches. ``plan.apply()`` does it.

        ``to`` may name a restore point, whose batch Spark may have removed long ago.

        ``sink`` is the folder of the query's file sink, or ``delta:PATH`` or ``iceberg:TABLE``, which is rewound too; with
        ``keep_foreign``, without undoing what other programs did to it. ``source`` is the URI of the Kafka source in which
        to look for the records, or several by name. Both are needed only if ``headwater run`` has not recorded them.
        """
        from headwater.timemachine.rewind_target import plan_rewind_to, rewind_target  # noqa: PLC0415

        plan = plan_rewind_to(
            self.files,
            rewind_target(self.files, to),
            replan=replan,
            sink=sink_uri(sink),
            sources=named_uris(source),
            keep_foreign=keep_foreign,
        )
        return shown_as(ShownRewindPlan, plan)

    def edit(
        self,
        key: Mapping[str, object] | None = None,
        *,
        where: str | None = None,
        set: Mapping[str, object] | None = None,
        delete: bool = False,
        insert: bool = False,
        sql: str | None = None,
        rows: pa.Table | Any = None,
        operator: int | None = None,
        store: str | None = None,
        var: str | None = None,
        reason: str | None = None,
        sink: str | Path | None = None,
        erase: bool = False,
    ) -> ShownEditPlan:
        """Plan to change the state. ``plan.apply()`` adds a batch that does it and reads no input.

        Choose rows with ``key`` and ``where``, and ``set`` fields of their values or ``delete`` them; or give an
        ``update``, ``delete`` or ``insert`` in ``sql``; or ``rows`` to put, in the columns of ``state()``, as an Arrow
        table or a DataFrame of pandas or Spark. ``insert`` adds the row if the key does not exist. ``reason`` is recorded
        in the journal. With ``erase``, deleted rows are also removed from retained batches, restore points and files that
        were set aside, which cannot be undone.
        """
        from headwater.statefiles.key_lookup import key_texts  # noqa: PLC0415
        from headwater.views.given_tables import as_table  # noqa: PLC0415
        from headwater.views.state_edits import plan_edit  # noqa: PLC0415

        plan = plan_edit(
            self.files,
            StoreRef(operator, store, var),
            key=key_texts(key) if key else None,
            where=where,
            fields=set,
            remove=delete,
            insert=insert,
            sql=sql,
            rows=None if rows is None else as_table(rows),
            reason=reason,
            sink=sink_uri(sink),
            erase=erase,
        )
        return shown_as(ShownEditPlan, plan)

    def import_(
        self,
        source: str | Path,
        *,
        operator: int | None = None,
        store: str | None = None,
        var: str | None = None,
        reason: str | None = None,
        sink: str | Path | None = None,
    ) -> ShownEditPlan:
        """Plan to replace state by what ``export`` wrote. ``plan.apply()`` adds a batch that does it."""
        from headwater.timemachine.transfer import plan_import  # noqa: PLC0415
        from headwater.views.state_files import read_tables  # noqa: PLC0415

        ref = StoreRef(operator, store, var)
        plan = plan_import(self.files, read_tables(str(source)), ref, reason=reason, sink=sink_uri(sink))
        return shown_as(ShownEditPlan, plan)

    def undo(self, *, drop_newer: bool = False, keep_foreign: bool = False) -> ShownUndoPlan:
        """Plan to undo the last change to the checkpoint. ``plan.apply()`` does it.

        Raise ``ChangeRefused`` if batches were committed since, unless ``drop_newer``, which discards them, or if other
        programs have changed the table since, unless ``keep_foreign``.
        """
        from headwater.timemachine.undo import plan_query_undo  # noqa: PLC0415

        plan = plan_query_undo(self.files, drop_newer=drop_newer, keep_foreign=keep_foreign)
        return shown_as(ShownUndoPlan, plan)

    def fork(
        self, into: str | Path, *, at: int | str = "HEAD", sink: str | Path | None = None, copy_of: str | None = None
    ) -> ShownForkPlan:
        """Plan a second checkpoint that continues from batch ``at``. ``plan.apply()`` writes it.

        ``into`` is a new folder or URL, ``sink`` a new folder for the fork's file sink, or the URI of a new table for a copy
        of the query's table, which is ``copy_of`` if ``headwater run`` has not recorded it. This checkpoint is not modified.
        """
        from headwater.timemachine.fork import plan_query_fork  # noqa: PLC0415

        plan = plan_query_fork(self.files, str(into), at=str(at), sink=sink_uri(sink), copy_of=copy_of)
        return shown_as(ShownForkPlan, plan)

    def keep(self, name: str | None = None, *, at: int | str = "HEAD", sink: str | Path | None = None) -> RestorePoint:
        """Keep a committed batch as a restore point, whatever Spark removes later. The stream may be running.

        ``name`` is ``batch-41`` by default. ``sink`` is the folder of the query's file sink, if ``headwater run`` has not
        recorded it.
        """
        from headwater.timemachine.keep import make_point  # noqa: PLC0415

        folder = sink_of(self.files, sink_uri(sink)) if sink is not None else None
        return make_point(self.files, name, at=str(at), sink=folder)

    def drop_kept(self, name: str) -> None:
        """Remove a restore point."""
        from headwater.timemachine.keep import drop_point  # noqa: PLC0415

        drop_point(self.files, name)

    def stop(self, *, wait: float | None = None, now: bool = False) -> bool:
        """Ask the process that runs on this checkpoint, on any machine, to stop; return whether it has.

        It finishes its current batch, or with ``now`` interrupts it. ``wait`` limits the seconds to wait. Raise
        ``CheckpointBusy`` if the process does not answer.
        """
        from headwater.checkpoint.stop_request import request_stop, wait_until_stopped  # noqa: PLC0415

        made = request_stop(self.files, now=now)
        return made is None or wait_until_stopped(self.files, *made, timeout=wait)

    def repartition(self, partitions: int) -> ShownRepartitionPlan:
        """Plan to change the number of state partitions. ``plan.apply()`` does it with Spark."""
        from headwater.timemachine.repartition import plan_repartition  # noqa: PLC0415

        return shown_as(ShownRepartitionPlan, plan_repartition(self.files, partitions))


def seed(
    job: Job | str,
    history: str | pa.Table | Mapping[str, Any] | Any,
    *,
    at: str | Mapping[str, object],
    checkpoint: str | Path | None = None,
    by: str = "offset",
    event_time: str | None = None,
    offset_columns: str | None = None,
    output: str = "aside",
    aside: str | Path | None = None,
    source: str | Mapping[str, str] | None = None,
    sink: str | None = None,
    settings: Mapping[str, object] | None = None,
    reason: str | None = None,
) -> ShownSeedPlan:
    """Plan a new checkpoint whose state comes from history. ``plan.apply()`` creates it with Spark.

    ``history`` is a URI, ``files:DIR`` or ``delta:PATH``, or a table or DataFrame, which is kept as Parquet in the
    temporary folder of the machine; or several by the names of the job's sources. ``at`` is where the source continues:
    offsets such as ``{"visits": {0: 1000}}``, the version of a Delta table, a time, ``"earliest"`` or ``"latest"``; for
    several sources by name. ``by`` is how records that are in both are distinguished, by ``"offset"``, or by
    ``"event-time"`` with the SQL expression ``event_time``. ``output`` is what happens to the rows that the history emits:
    ``"write"`` to the sink, keep ``"aside"`` in a folder, or ``"drop"``.
    """
    from headwater.jobs.loading import select_job  # noqa: PLC0415
    from headwater.views.given_tables import as_history, is_table  # noqa: PLC0415

    with naming_extras():
        from headwater.spark.ownership import checkpoint_location  # noqa: PLC0415
        from headwater.spark.programs import reference_of  # noqa: PLC0415
        from headwater.spark.seed_plan import plan_seed  # noqa: PLC0415
        from headwater.spark.seed_request import named_texts, position_texts, request_of  # noqa: PLC0415

    chosen = select_job(job, sources=named_uris(source), sink=sink, settings=settings)
    if is_table(history):
        uris: str | dict[str, str] = as_history(history)
    elif isinstance(history, Mapping):
        uris = {name: as_history(one) if is_table(one) else one for name, one in history.items()}
    else:
        uris = history
    request = request_of(
        chosen,
        job if isinstance(job, str) else reference_of(chosen),
        checkpoint_location(None if checkpoint is None else str(checkpoint), chosen),
        named_texts(named_uris(uris), chosen),
        position_texts(at, chosen),
        by=by,
        event_time=event_time,
        offset_columns=offset_columns,
        output=output,
        aside=None if aside is None else str(aside),
        reason=reason,
    )
    plan = plan_seed(request)
    return ShownSeedPlan(**{one.name: getattr(plan, one.name) for one in fields(plan)}, request=request)
