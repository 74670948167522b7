"""The lineage of a version: the commits that its contents are made of, without those that a restore has undone.

RESTORE returns to an earlier version, and so does a commit of Headwater, which also names the later commits that it
keeps. Reading a log from end to end would therefore count batches that are no longer in the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

from headwater.lakehouse.delta_actions import Commit
from headwater.lakehouse.delta_log import DeltaLog

MARK = "headwater"


@dataclass(frozen=True)
class Mark:
    """What a commit of Headwater records about itself in ``userMetadata``.

    The table has the contents of version ``base`` (-1: empty) and then of the commits in ``kept``.
    """

    change_id: str
    base: int
    kept: tuple[int, ...] = ()
    is_copy: bool = False
    """Whether this is the first commit of a copy, of which earlier batches are not known."""

    def to_text(self) -> str:
        value = {"change": self.change_id, "base": self.base, "kept": list(self.kept), "copy": self.is_copy}
        return json.dumps({MARK: value}, separators=(",", ":"))


def mark_of(commit: Commit) -> Mark | None:
    """Return the mark of a commit that Headwater made; None for others."""
    text = commit.info.get("userMetadata")
    try:
        value = json.loads(text)[MARK] if isinstance(text, str) else None
        if isinstance(value, Mapping):
            return Mark(str(value["change"]), int(value["base"]), tuple(value["kept"]), bool(value["copy"]))
    except (ValueError, KeyError, TypeError):
        pass
    return None


@dataclass(frozen=True)
class Link:
    """One commit of a lineage.

    ``is_exact``: the version's contents are those of the lineage up to here. A commit that was kept while others before
    it were undone is not exact. ``commit`` is None if only a log checkpoint of the version is left.
    """

    version: int
    commit: Commit | None
    is_exact: bool = True

    def batch_of(self, app_id: str) -> int | None:
        return self.commit.batch_of(app_id) if self.commit else None

    @property
    def is_jump(self) -> bool:
        """Whether the commit only returns to an earlier version, which the lineage accounts for."""
        return self.commit is not None and (self.commit.operation == "RESTORE" or mark_of(self.commit) is not None)

    def is_foreign(self, app_id: str) -> bool:
        """Return whether another program changed rows, the schema or properties of the table."""
        commit = self.commit
        return commit is not None and commit.batch_of(app_id) is None and commit.changes_rows and not self.is_jump


def repeats_metadata(log: DeltaLog, link: Link) -> bool:
    """Return whether a commit writes nothing but the schema and properties that the table had before.

    Each run of a declarative pipeline makes such a commit to each of its tables.
    """
    commit = link.commit
    if commit is None or set(commit.actions) - {"commitInfo"} != {"metaData"} or not log.can_rebuild(link.version - 1):
        return False
    return commit.actions["metaData"][-1] == log.snapshot(link.version - 1).metadata


def lineage(log: DeltaLog, head: int) -> Generator[Link, None, bool]:
    """Yield the lineage of a version, newest first. Return whether it is complete, or ends where the log was cleaned."""
    version = head
    while version >= 0:
        if not log.has(version):
            if log.can_rebuild(version):
                yield Link(version, None)
            return False
        commit = log.commit(version)
        yield Link(version, commit)
        mark = mark_of(commit)
        target: int | None = version - 1
        if mark is not None:
            for kept in reversed(mark.kept):
                if not log.has(kept):
                    return False
                yield Link(kept, log.commit(kept), is_exact=False)
            target = -1 if mark.is_copy else mark.base
        elif commit.operation == "RESTORE":
            target = _restored_version(log, commit)
        if target is None or target >= version:  # a corrupt record would lead in a circle
            return False
        version = target
    return True


def lineage_until(log: DeltaLog, head: int, is_enough: Callable[[Link], bool]) -> tuple[list[Link], bool]:
    """Return the lineage, oldest first, back to a link that is enough, and whether it reaches that or the first commit."""
    found: list[Link] = []
    walk = lineage(log, head)
    while True:
        try:
            found.append(next(walk))
        except StopIteration as end:
            return found[::-1], bool(end.value)
        if is_enough(found[-1]):
            return found[::-1], True


def _restored_version(log: DeltaLog, commit: Commit) -> int | None:
    """Return the version that RESTORE returned to.

    A restore by time records no version. It is then the newest one with the same files; several differ in nothing that
    a reader sees.
    """
    recorded = commit.parameters.get("version")
    if recorded is not None and str(recorded).isdigit():
        return int(recorded)
    if not log.can_rebuild(commit.version):
        return None
    wanted = log.snapshot(commit.version).files.keys()
    for version in range(commit.version - 1, -1, -1):
        if not log.can_rebuild(version):
            return None
        if log.snapshot(version).files.keys() == wanted:
            return version
    return None
