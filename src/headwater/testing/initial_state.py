"""The state that a scenario starts with: an empty batch creates the stores, and an edit fills them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import SparkSession

from headwater.checkpoint.local_tree import LocalTree
from headwater.core.ids import StoreRef
from headwater.spark.internals.state_stores import unload_state_stores
from headwater.spark.session import temporary_settings
from headwater.statefiles.flat_rows import FlatRows
from headwater.statefiles.stores import StateTarget, only_one, select
from headwater.testing.driver import Driver
from headwater.timemachine.edit import StateEditor
from headwater.timemachine.row_edits import Wanted
from headwater.timemachine.transfer import plan_import
from headwater.views.given_tables import as_table, is_table
from headwater.views.state_files import read_tables
from headwater.views.state_rows import rows_as_table

GivenState: TypeAlias = Sequence[Mapping[str, Any]] | pa.Table | str | Path
"""Rows, a table or a DataFrame, or what ``headwater export`` wrote."""
# With it, a snapshot names the column families of custom state, which a changelog does not.
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


def start_with_state(spark: SparkSession, driver: Driver, state: GivenState) -> int:
    """Give a job that has not run yet a state. Return the number of its rows.

    ``state`` has the rows of one store or variable, or of several with ``store`` or ``var`` in each row; or it is a table,
    or what ``headwater export`` wrote.
    """
    driver.put({})
    with temporary_settings(spark, {_CHANGELOG: "false"}):
        driver.drain()
    driver.stop()
    unload_state_stores(spark)
    files = LocalTree(driver.checkpoint)
    if isinstance(state, str | Path):
        tables = read_tables(str(state))
        plan_import(files, tables).apply()
        return sum(table.num_rows for table in tables.values())
    editor = StateEditor(files)
    given = {target: rows for target, rows in _by_target(editor, state).items() if rows.num_rows}
    if given:
        editor.plan({one: Wanted(rows=rows, complete=True) for one, rows in given.items()}, verb="import").apply()
    return sum(rows.num_rows for rows in given.values())


def _by_target(editor: StateEditor, state: Sequence[Mapping[str, Any]] | pa.Table) -> dict[StateTarget, pa.Table]:
    if is_table(state):
        target = editor.target()
        return {target: FlatRows.of(target).conform(as_table(state), "the table")}
    groups: dict[StoreRef, list[Mapping[str, Any]]] = {}
    for row in state:
        groups.setdefault(StoreRef(row.get("operator_id"), row.get("store"), row.get("var")), []).append(row)
    return {
        target: rows_as_table(target, rows)
        for ref, rows in groups.items()
        for target in [only_one(select(editor.targets, ref))]
    }
