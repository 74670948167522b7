"""Read a checkpoint from Python: the part of ``headwater.Checkpoint`` that changes nothing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from headwater.checkpoint import revisions
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.locate import open_checkpoint
from headwater.checkpoint.record import FILES
from headwater.checkpoint.restore_points import RestorePoint, locate_batch, restore_points
from headwater.core.errors import UsageProblem
from headwater.core.extras import naming_extras
from headwater.core.ids import BatchId, StoreRef
from headwater.results import (
    BatchList,
    DroppedRecordList,
    FindingList,
    ShownBatch,
    ShownComparison,
    shown_as,
)
from headwater.views.html import checkpoint_html, show_tables_in_ipython

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.checkpoint.watermark_hold import WatermarkHold
    from headwater.jobs.job import Job
    from headwater.spark.state_source import StateSource
    from headwater.timemachine.bisect import Bisected


class ReadableCheckpoint:
    """Everything that can be asked of a checkpoint."""

    def __init__(self, path: str | Path) -> None:
        self.files: FileTree = open_checkpoint(str(path))
        show_tables_in_ipython()

    def __repr__(self) -> str:
        return f"Checkpoint({self.location!r})"

    def _repr_html_(self) -> str:
        return checkpoint_html(self.history)

    @property
    def location(self) -> str:
        """The path or URL of the checkpoint."""
        return self.files.location

    @property
    def history(self) -> History:
        """The logs as batches. It reads only what is used."""
        return History(self.files)

    @property
    def batches(self) -> BatchList:
        """Every batch in the logs, oldest first: a list."""
        return BatchList(shown_as(ShownBatch, batch) for batch in self.history.batches())

    def batch(self, revision: int | str) -> ShownBatch:
        """Return a batch by number, by revision as on the command line (``41``, ``"HEAD~3"``, ``"@10:30"``), or by the name
        of a restore point.
        """
        located = locate_batch(self.files, str(revision))
        return shown_as(ShownBatch, History(located.files).batch(located.batch_id))

    def resolve(self, revision: int | str, *, history: History | None = None) -> BatchId:
        """Return the id of the batch that a revision names."""
        history = history or self.history
        return revisions.resolve(str(revision), history.batch_ids, history.committed_at_ms)

    def watermark_hold(self, at: int | str = "HEAD") -> WatermarkHold | None:
        """Return which source holds the watermark back as of a batch, and since when.

        Return None if the watermark moves, if the query has a single source, or if no source can be named. ``str()``
        of the result is a sentence.
        """
        from headwater.checkpoint.watermark_hold import watermark_hold  # noqa: PLC0415

        history = self.history
        return watermark_hold(history.logs, self.resolve(at, history=history))

    def state(
        self,
        at: int | str = "HEAD",
        *,
        operator: int | None = None,
        store: str | None = None,
        var: str | None = None,
        key: Mapping[str, object] | None = None,
        where: str | None = None,
        schema: str | None = None,
        view: bool = False,
        job: Job | str | None = None,
    ) -> pa.Table:
        """Return the state as of a batch, in the columns of Spark's ``statestore`` source.

        These are ``key``, ``value`` and ``partition_id`` for most operators. If the query has several stores or state
        variables, choose one with ``operator``, ``store`` or ``var``. A store without a schema file has bytes for keys
        and values, unless ``schema`` describes it: ``"key: user STRING; value: count BIGINT"``.

        ``key`` selects keys by some or all of their fields, ``{"browser": "Firefox"}``. ``where`` is a SQL condition on the
        fields of key and value; one that compares fields of the key with literals looks these keys up.

        With ``view``, return the rows of the job's ``state_view``. The job is the recorded one, or ``job``.
        """
        source, batch = self._state(operator, store, var, schema).at(str(at))
        if view:
            if store is not None or var is not None or key is not None:
                raise UsageProblem(
                    "bad-option", "a view needs every row of the state", remedy="omit store, var and key"
                )
            return self._state_view(source, batch, where, job)
        if job is not None:
            raise UsageProblem("bad-option", "job has no effect without view", remedy="add view=True")
        from headwater.statefiles.key_lookup import key_texts  # noqa: PLC0415
        from headwater.views.table_label import state_table  # noqa: PLC0415

        (answer,) = source.answers(batch, one=True, key=key_texts(key) if key else None, where=where)
        return state_table(answer, batch)

    def _state(self, operator: int | None, store: str | None, var: str | None, schema: str | None) -> StateSource:
        from headwater.spark.state_source import StateSource  # noqa: PLC0415

        return StateSource(self.files, StoreRef(operator, store, var), schema=schema)

    def _state_view(self, source: StateSource, batch: int, where: str | None, job: Job | str | None) -> pa.Table:
        from headwater.spark.recorded_job import job_with_state_view  # noqa: PLC0415
        from headwater.views import job_view, state_sql, table_label  # noqa: PLC0415

        found, state_view = job_with_state_view(self.files, job)
        rows = job_view.view_table(source.answers(batch), state_view, found.name)
        rows = rows if where is None else state_sql.where_in_table(rows, where)
        return table_label.view_table(rows, batch, found.name)

    def diff(
        self,
        a: int | str,
        b: int | str = "HEAD",
        *,
        operator: int | None = None,
        store: str | None = None,
        var: str | None = None,
        schema: str | None = None,
    ) -> pa.Table:
        """Return the keys that differ between two batches: ``change``, ``key``, ``before``, ``after``, ``partition_id``."""
        from headwater.views.table_label import diff_table  # noqa: PLC0415

        source = self._state(operator, store, var, schema)
        first, second, (found,) = source.diffs_between(str(a), str(b), one=True)
        return diff_table(found, first, second)

    def key_history(
        self,
        key: Mapping[str, object],
        *,
        operator: int | None = None,
        store: str | None = None,
        var: str | None = None,
        schema: str | None = None,
        changes: bool = False,
    ) -> pa.Table:
        """Return the value of keys after each batch: ``batch_id``, ``key``, ``value``, ``changed``, ``partition_id``.

        ``key`` has some or all fields of the key, ``{"browser": "Firefox"}``. ``value`` is null after batches without the
        key. With ``changes``, batches that did not change the key are omitted.
        """
        from headwater.statefiles.key_lookup import key_texts  # noqa: PLC0415
        from headwater.views.table_label import history_table  # noqa: PLC0415

        if not key:
            raise UsageProblem(
                "bad-key", "a key needs at least one field", remedy='key_history({"browser": "Firefox"})'
            )
        source = self._state(operator, store, var, schema)
        (found,) = source.key_histories(key_texts(key), one=True, changes_only=changes)
        return history_table(found)

    def bisect(
        self,
        where: str,
        *,
        operator: int | None = None,
        store: str | None = None,
        var: str | None = None,
        schema: str | None = None,
    ) -> Bisected:
        """Find the first batch after which a row of the state meets a SQL condition: ``first_batch``, None if none does.

        ``tested`` are the batches that were tested. A condition on the entire state, one that contains a select, is found
        by binary search, which assumes that the condition stays true once it is.
        """
        return self._state(operator, store, var, schema).bisect(where)

    def fsck(self, *, sink: str | Path | None = None, sources: bool | str = False) -> FindingList:
        """Check the consistency of the checkpoint and its sink. Return the findings: an empty list if there are none.

        ``sink`` is the folder of the query's file sink, or ``delta:PATH`` or ``iceberg:TABLE``, if ``headwater run`` has not
        recorded it. ``sources=True`` queries Kafka's brokers and lists the folders of file sources as well; the URI of a
        broker, ``kafka://HOST:PORT/TOPIC``, can be given instead.
        """
        from headwater.timemachine.tables import fsck  # noqa: PLC0415

        found = fsck(self.files, sink_uri(sink))
        if sources:
            from headwater.guards.check import check_sources  # noqa: PLC0415

            found += check_sources(self.files, given=[sources] if isinstance(sources, str) else ()).findings
        return FindingList(found)

    def check(
        self,
        job: Job | str,
        *,
        source: str | Mapping[str, str] | None = None,
        settings: Mapping[str, object] | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> ShownComparison:
        """Compare a job's code with this checkpoint: can it resume, and does the state keep its meaning?

        ``verdict`` of the result is ``same``, ``compatible``, ``changes-meaning``, ``needs-migrate`` or
        ``needs-new-checkpoint``, and ``differences`` has each difference with its remedy. No batch runs and no source is
        contacted. Uses the Spark session of this process, or starts one with the settings in ``conf`` and stops it.
        """
        from headwater.jobs.loading import select_job  # noqa: PLC0415

        with naming_extras():
            from headwater.spark.code_check import check_in_program  # noqa: PLC0415

        chosen = select_job(job, sources=named_uris(source), settings=settings)
        reference = job if isinstance(job, str) else None
        return shown_as(ShownComparison, check_in_program(chosen, self.files, reference=reference, conf=conf))

    def late(
        self,
        batch: int | str | None = None,
        *,
        job: Job | str | None = None,
        source: str | Mapping[str, str] | None = None,
        settings: Mapping[str, object] | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> DroppedRecordList:
        """Return the records that a batch, by default all batches in the logs, dropped as late or could not decode.

        Reads the input again with the Spark session of this process, or with one that is started for it. The job is the
        recorded one, or ``job``; ``source``, a URI or several by name, and ``settings`` replace the recorded ones. Without
        ``batch``, batches whose input no longer exists are skipped with a warning.
        """
        from headwater.spark.recorded_job import recorded_job  # noqa: PLC0415

        with naming_extras():
            from headwater.spark.dropped.search import find_dropped, suspect_batches  # noqa: PLC0415

        chosen = recorded_job(self.files, job, sources=named_uris(source), settings=settings)
        as_recorded = not (job or source or settings or conf)
        batches = suspect_batches(self.history, as_recorded=as_recorded) if batch is None else [self.resolve(batch)]
        found = find_dropped(
            self.files,
            chosen,
            batches,
            conf=conf,
            skip_unreadable=batch is None,
            warn=lambda text: warnings.warn(text.removeprefix("warning: "), RuntimeWarning, stacklevel=4),
        )
        return DroppedRecordList(found.records)

    def export(
        self,
        out: str | Path,
        *,
        at: int | str = "HEAD",
        operator: int | None = None,
        store: str | None = None,
        var: str | None = None,
    ) -> list[Path]:
        """Write the state as of a batch to a Parquet or Arrow file, or several stores to a folder. Return the files."""
        from headwater.statefiles.reader import StateReader  # noqa: PLC0415
        from headwater.timemachine.transfer import export_streams  # noqa: PLC0415
        from headwater.views.state_files import write_tables  # noqa: PLC0415

        located = locate_batch(self.files, str(at))
        streams = export_streams(StateReader(located.files), located.batch_id, StoreRef(operator, store, var))
        return list(write_tables(streams, str(out)))

    def kept(self) -> list[RestorePoint]:
        """Return the restore points, oldest batch first."""
        return restore_points(self.files)


def sink_uri(folder: str | Path | None) -> str | None:
    """Return the URI of a sink that is given as a folder, as ``files:DIR``, ``delta:PATH`` or ``iceberg:TABLE``."""
    if folder is None or str(folder).startswith((FILES, "delta:", "iceberg:")):
        return None if folder is None else str(folder)
    return f"{FILES}{quote(str(folder))}"


def named_uris(source: str | Mapping[str, str] | None) -> list[str]:
    """Return one URI, or several by name, in the form of ``--source``."""
    named = {"": source} if isinstance(source, str) else source or {}
    return [f"{name}={uri}" if name else uri for name, uri in named.items()]
