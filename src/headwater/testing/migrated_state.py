"""A scenario that starts from the checkpoint of an older version of its job: a copy, migrated to the new code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headwater.checkpoint.filetree import walk
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import OFFSETS, PLANS_FILE, SOURCES, hadoop_crc_of
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.locate import open_checkpoint
from headwater.core.errors import ChangeRefused, UsageProblem
from headwater.spark.migrate import MigrationRequest, plan_prepared_migration
from headwater.testing.driver import Driver
from headwater.timemachine.fork import plan_fork


def start_from_older_code(
    driver: Driver,
    origin: str | Path,
    *,
    fields: Mapping[str, str] | None = None,
    keys: str | None = None,
    merge: Mapping[str, str] | None = None,
    accept_change: bool = False,
) -> int:
    """Give a job that has not run yet the state of a checkpoint, migrated to its code. Return the number of its rows.

    The checkpoint is only read. The sources of the copy begin with what the scenario feeds; its watermark is kept.
    """
    old, files = open_checkpoint(str(origin)), LocalTree(driver.checkpoint)
    last = History(old).last_committed
    if last is None:
        raise UsageProblem(
            "no-batch", "no batch is committed yet, so there is no state", evidence={"checkpoint": origin}
        )
    plan_fork(old, files, at=last).apply()
    if old.exists(PLANS_FILE):
        files.write(PLANS_FILE, old.read(PLANS_FILE))
    _forget_sources(files, len(driver.inboxes))
    try:
        request = MigrationRequest(fields or {}, keys, merge or {}, accept_change=accept_change)
        plan = plan_prepared_migration(driver.prepared, files, request)
    except ChangeRefused as refused:
        if refused.code != "nothing-to-do":
            raise
        return 0
    plan.apply()
    return plan.rows


def _forget_sources(files: LocalTree, sources: int) -> None:
    """Remove what a checkpoint records about its sources: a scenario has its own, which no batch has read yet."""
    for number, entry in History(files).logs.offsets.entries.items():
        read = History(files).logs.offsets.read(number)
        if read.version != 1:
            raise UsageProblem("bad-option", "migrated_from takes a checkpoint whose sources have no names in Spark")
        path = f"{OFFSETS}/{entry.name}"
        if files.exists(hadoop_crc_of(path)):
            files.remove(hadoop_crc_of(path))
        files.write(path, "\n".join([*read.text.lines[:2], *["-"] * sources]).encode())
    for path, _ in list(walk(files, SOURCES)):
        files.remove(path)
