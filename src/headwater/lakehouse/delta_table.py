"""A Delta table as one that rewinds with its stream: its plans, and the only code that writes to its log."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.locate import open_files
from headwater.core.errors import ChangeRefused, HeadwaterError
from headwater.core.finding import Finding
from headwater.core.text import count
from headwater.lakehouse.delta_actions import commit_path
from headwater.lakehouse.delta_commit import Restoration, line_of
from headwater.lakehouse.delta_compare import compare_batches
from headwater.lakehouse.delta_copy import plan_delta_copy
from headwater.lakehouse.delta_features import refuse_features
from headwater.lakehouse.delta_files import missing_files
from headwater.lakehouse.delta_log import DeltaLog
from headwater.lakehouse.delta_restore import (
    OthersSince,
    described,
    moved,
    plan_pinned,
    plan_restoration,
    plan_return,
    refuse_missing_files,
    version_of_batch,
)
from headwater.lakehouse.tables import Checkpointed, FilesMoved, RewindableTable, TableCopy, TablePlan, TableUri

FILE_RETENTION = "delta.deletedFileRetentionDuration"
DAY_MS = 86_400_000
_UNITS = {"second": 1000, "minute": 60_000, "hour": 3_600_000, "day": DAY_MS, "week": 7 * DAY_MS}
DOWNSTREAM = (
    "streams that read this Delta table fail when rows are removed (DELTA_SOURCE_IGNORE_DELETE): rewind them too. With "
    "skipChangeCommits they read the rows of the re-run a second time"
)
DOWNSTREAM_OF_UNDO = (
    "streams that have read this Delta table before fail at the commit that removed the rows (DELTA_SOURCE_IGNORE_DELETE): "
    "rewind them to their last batch. With skipChangeCommits they read the rows that return a second time"
)


class DeltaTable(RewindableTable):
    """The table in a folder. ``app_id`` is the id of its transactions if that is not the id of the query."""

    def __init__(self, files: FileTree, uri: str, app_id: str | None = None) -> None:
        self.files = files
        self._uri = uri
        self.own_app_id = app_id

    @classmethod
    def at(cls, uri: TableUri) -> DeltaTable:
        path = uri.path if "://" in uri.path else str(Path(uri.path).absolute())
        return cls(open_files(path), f"delta:{path}", uri.options.get("txnAppId"))

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def reference(self) -> str:
        return quote(self._uri, safe=":/")

    @property
    def exists(self) -> bool:
        return self.log.exists

    @cached_property
    def log(self) -> DeltaLog:
        """The log as it was when it was first needed."""
        return DeltaLog(self.files)

    @property
    def table_id(self) -> str | None:
        return self.log.table_id if self.exists else None

    def app_id(self, query: Checkpointed) -> str:
        """Return the id of the query's transactions."""
        return self.own_app_id or query.query_id

    def fingerprint(self) -> str:
        log = DeltaLog(self.files)
        return str(log.head) if log.exists else "none"

    def plan_rewind(
        self, query: Checkpointed, to: int, *, change_id: str, keep_foreign: bool = False, pinned: int | None = None
    ) -> TablePlan:
        self._refuse_missing()
        app_id = self.app_id(query)
        if pinned is None:
            others: OthersSince = "keep" if keep_foreign else "refuse"
            found = plan_restoration(self.log, query, to, uri=self.uri, app_id=app_id, others_since=others)
        else:
            found = plan_pinned(self.log, query, pinned, to, uri=self.uri, keep_foreign=keep_foreign, app_id=app_id)
        if found is None:
            return TablePlan(self.uri, None, self.log.head, self.log.head, ())
        other = "rewind to a later batch, whose files are still there"
        return self._plan(found, change_id, "rewind", other)

    def version_of(self, query: Checkpointed, batch: int) -> int | None:
        return version_of_batch(self.log, self.app_id(query), batch)

    def check_pinned(self, version: int, kept_at_ms: int, now_ms: int) -> str | None:
        if not self.log.can_rebuild(version):
            return f"the log of the table no longer has version {version}"
        kept, head = self.log.snapshot(version), self.log.snapshot(self.log.head)
        left = [action for key, action in kept.files.items() if key not in head.files]
        if missing_files(self.files, left):
            return f"files of version {version} were deleted, by VACUUM or by hand"
        retention = retention_ms(head.configuration.get(FILE_RETENTION))
        if left and now_ms - kept_at_ms > retention:
            return (
                f"{count(len(left), 'file')} of version {version} left the table, and VACUUM may delete them: "
                f"{FILE_RETENTION} is {count(retention // DAY_MS, 'day')}"
            )
        return None

    def plan_undo(
        self, query: Checkpointed, done: Mapping[str, Any], *, change_id: str, keep_foreign: bool = False
    ) -> TablePlan:
        self._refuse_missing()
        self.refuse_other_table(done)
        app_id = str(done["app_id"])
        found = plan_return(
            self.log, query, self.applied_at(done), uri=self.uri, keep_foreign=keep_foreign, app_id=app_id
        )
        return self._plan(found, change_id, "undo", None)

    def _plan(self, found: Restoration, change_id: str, verb: str, remedy: str | None) -> TablePlan:
        action = self.action_for(found, change_id, verb)
        refuse_missing_files(self.log, found, self.uri, remedy)
        leaving, returning = moved(found.leaving), moved(found.returning)
        return TablePlan(
            self.uri,
            action,
            found.head.version,
            None if found.kept else found.base,
            found.gone,
            leaving,
            returning,
            tuple(described([commit]) for commit in found.others),
            _about_readers(leaving, returning, verb),
            note=f"as version {found.head.version + 1}",
        )

    def action_for(self, found: Restoration, change_id: str, verb: str) -> dict[str, Any]:
        """Return what ``apply`` takes to give the table other contents. Raise ``ChangeRefused`` if it cannot be written."""
        self.refuse_features(found)
        commit, inverse = found.commits(change_id, verb, self._after_head_ms())
        return {
            "table_id": found.head.table_id,
            "app_id": found.app_id,
            "version": found.head.version + 1,
            "commit": commit,
            "inverse": inverse,
        }

    def refuse_features(self, found: Restoration) -> None:
        """Raise ``ChangeRefused`` if this class cannot write to the table."""
        refuse_features(found.head, self.uri)
        if not self.files.can_create:
            raise ChangeRefused(
                "no-exclusive-create",
                "this store cannot create a file only if it does not exist, which a commit to a Delta table needs",
                evidence={"table": self.uri},
                remedy="add --engine spark, with Delta's log store for it",
            )

    def _after_head_ms(self) -> int:
        """Return the time that the next commit has to be later than; it matters with in-commit timestamps."""
        newest = self.log.versions[-1:]
        return (self.log.commit(newest[0]).timestamp_ms or 0) if newest else 0

    def apply(self, action: Mapping[str, Any]) -> None:
        self.refuse_other_table(action)
        done = self._commits_made(action)
        if done % 2 == 0:
            self._commit(action, done)

    def take_back(self, action: Mapping[str, Any]) -> None:
        self.refuse_other_table(action)
        done = self._commits_made(action)
        if done % 2 == 1:
            self._commit(action, done)

    def _commits_made(self, action: Mapping[str, Any]) -> int:
        """Return how many commits of an action follow each other: applied, taken back, applied again and so on."""
        first, done = int(action["version"]), 0
        while self.is_made(first + done, _text_of(action, done)):
            done += 1
        return done

    def _commit(self, action: Mapping[str, Any], done: int) -> None:
        version, text = int(action["version"]) + done, _text_of(action, done)
        if DeltaLog(self.files).head == version - 1:
            self.make(version, text)
        if not self.is_made(version, text):
            raise self.moved(version)

    def make(self, version: int, text: str) -> None:
        """Write a commit, if there is none with its version."""
        # If another program was first, its commit stays.
        with suppress(FileExistsError):
            self.files.create(commit_path(version), text.encode())

    def is_made(self, version: int, text: str) -> bool:
        """Return whether a version is exactly this commit."""
        try:
            return self.files.read(commit_path(version)) == text.encode()
        except FileNotFoundError:
            return False

    def moved(self, version: int) -> ChangeRefused:
        """Return the error for a version that another program has committed."""
        return ChangeRefused(
            "table-moved",
            "another program has committed to the table since this was planned",
            evidence={"table": self.uri, "planned for version": version, "newest version": DeltaLog(self.files).head},
            remedy="headwater rewind CKPT --abort   (or, if that is refused for the same reason, --resume and then "
            "headwater undo CKPT --keep-foreign)",
        )

    def applied_at(self, done: Mapping[str, Any]) -> int:
        """Return the version that an action has made."""
        return int(done["version"]) + max(0, self._commits_made(done) - 1)

    def _refuse_missing(self) -> None:
        if not self.exists:
            raise ChangeRefused(
                "not-a-delta-table",
                "there is no Delta table at this path",
                evidence={"table": self.uri, "missing": "_delta_log"},
                remedy="name the folder that the query writes to: --sink delta:PATH",
            )

    def refuse_other_table(self, action: Mapping[str, Any]) -> None:
        """Raise ``ChangeRefused`` if this is not the table of an action: the journal alone cannot be trusted."""
        log = DeltaLog(self.files)
        found = log.snapshot(log.head).table_id if log.exists else "none"
        if found != action["table_id"]:
            raise ChangeRefused(
                "not-its-table",
                "the table at this path is not the one that the change was planned for",
                evidence={"table": self.uri, "id": found, "planned for": action["table_id"]},
                remedy="if you moved the table, name it: --sink delta:PATH",
            )

    def compare(self, query: Checkpointed) -> Iterator[Finding]:
        yield from _without_raising(self.uri, lambda: compare_batches(self.log, query, self.app_id(query), self.uri))

    def plan_copy(
        self,
        query: Checkpointed,
        at: int,
        *,
        query_id: str,
        into: FileTree,  # noqa: ARG002
        pinned: int | None = None,
    ) -> TableCopy:
        self._refuse_missing()
        app_id = self.app_id(query)
        return plan_delta_copy(self.log, query, at, app_id=app_id, query_id=query_id, uri=self.uri, pinned=pinned)


def _about_readers(leaving: FilesMoved, returning: FilesMoved, verb: str) -> tuple[str, ...]:
    if verb == "undo" and returning.files:
        return (DOWNSTREAM_OF_UNDO,)
    return (DOWNSTREAM,) if leaving.files else ()


def retention_ms(interval: str | None) -> int:
    """Return how long Delta keeps the files that a table no longer has: ``interval 7 days`` as milliseconds.

    A week if it is not set.
    """
    parts = re.findall(r"(\d+)\s+(second|minute|hour|day|week)", (interval or "").lower())
    return sum(int(number) * _UNITS[unit] for number, unit in parts) or 7 * DAY_MS


def _text_of(action: Mapping[str, Any], done: int) -> str:
    """Return the commit to make if an action was committed ``done`` times: the planned one and its inverse, alternately.

    Later ones get a later time, because in-commit timestamps have to increase.
    """
    text = str(action["inverse" if done % 2 else "commit"])
    if done < 2:
        return text
    first, _, rest = text.partition("\n")
    info = json.loads(first)["commitInfo"]
    later = {name: info[name] + done for name in ("timestamp", "inCommitTimestamp") if name in info}
    return line_of("commitInfo", {**info, **later}) + rest


def _without_raising(path: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from check()
    except HeadwaterError as error:
        yield Finding("error", error.code, path, error.problem)
    except (OSError, KeyError, TypeError, ValueError) as error:
        yield Finding("error", "table-unreadable", path, f"cannot be read: {error}")
