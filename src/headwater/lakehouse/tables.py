"""Tables that rewind with their stream: what the time machine needs of a table format.

``delta_table`` and ``iceberg_table`` implement it. Another format needs a module like these and a line in
``open_table``. Planning only reads; ``apply`` and ``take_back`` are the only methods that write, and both can be repeated
after an interruption.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.locate import open_files
from headwater.core.finding import Finding

TABLE_KINDS = ("delta", "iceberg")
TABLE_NAMES = "a Delta or Iceberg table"
TABLE_URIS = "delta:PATH or iceberg:CATALOG.DATABASE.TABLE"


@dataclass(frozen=True)
class FilesMoved:
    """Files that leave or return, and their rows; None if the log has no statistics for one of them."""

    files: int = 0
    rows: int | None = 0


@dataclass(frozen=True)
class TablePlan:
    """What a change does to a table. ``action`` is for ``apply`` and goes into the journal; None if nothing is to do."""

    uri: str
    action: Mapping[str, Any] | None
    now: int
    """The table's version: the number of a commit, or the id of a snapshot; -1 for a table without any."""
    returns_to: int | None
    """The version whose contents it gets; None if those of no single version."""
    batches: tuple[int, ...]
    """The batches of the query whose rows leave."""
    leaving: FilesMoved = FilesMoved()
    returning: FilesMoved = FilesMoved()
    others: tuple[str, ...] = ()
    """Commits of other programs since then, which are kept."""
    warnings: tuple[str, ...] = ()
    noun: str = "version"
    """What the format calls a version."""
    note: str = ""
    """What else a person should know of the commit."""

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "uri": self.uri,
            "version": self.now,
            "returns_to": self.returns_to,
            "batches": list(self.batches),
            "leaving": {"files": self.leaving.files, "rows": self.leaving.rows},
            "returning": {"files": self.returning.files, "rows": self.returning.rows},
            "kept_commits": list(self.others),
        }


@dataclass(frozen=True)
class Checkpointed:
    """The checkpoint's side of a comparison: the last batches that were committed and planned; -1 for none."""

    location: str
    query_id: str
    committed: int
    planned: int
    is_format_two: bool = False


class RewindableTable(Protocol):
    """A table that a streaming query writes to, and that records which batch each of its versions holds."""

    @property
    def uri(self) -> str:
        """The table as a sink, such as ``delta:PATH``."""

    @property
    def reference(self) -> str:
        """The URI that the journal records, with what it takes to open the table again in the same way."""

    @property
    def exists(self) -> bool:
        """Whether there is such a table."""

    @property
    def table_id(self) -> str | None:
        """The id of the table itself, which another table at the same place does not have."""

    def fingerprint(self) -> str:
        """Return a text that differs after every commit."""

    def plan_rewind(
        self, query: Checkpointed, to: int, *, change_id: str, keep_foreign: bool = False, pinned: int | None = None
    ) -> TablePlan:
        """Plan the return to batch ``to``, -1 for none. Raise ``ChangeRefused`` if that cannot be done correctly.

        ``pinned`` is the version that a restore point recorded for the batch, which may have run again since.
        """

    def version_of(self, query: Checkpointed, batch: int) -> int | None:
        """Return the version that a restore point of a batch records; None if the table does not have the batch."""

    def check_pinned(self, version: int, kept_at_ms: int, now_ms: int) -> str | None:
        """Return why a version that a restore point recorded is lost or at risk; None if it is neither."""

    def plan_undo(
        self, query: Checkpointed, done: Mapping[str, Any], *, change_id: str, keep_foreign: bool = False
    ) -> TablePlan:
        """Plan to take back an action that was applied. Commits of the query since then leave with it."""

    def apply(self, action: Mapping[str, Any]) -> None:
        """Do what was planned, unless it is done already. Raise ``ChangeRefused`` if the table has changed since."""

    def take_back(self, action: Mapping[str, Any]) -> None:
        """Return to the contents before an action, if it was applied, by a further commit."""

    def compare(self, query: Checkpointed) -> Iterator[Finding]:
        """Yield what ``fsck`` reports: whether the table is ahead of the checkpoint, behind it or equal."""

    def plan_copy(
        self, query: Checkpointed, at: int, *, query_id: str, into: FileTree, pinned: int | None = None
    ) -> TableCopy:
        """Plan a copy of the table as of batch ``at``, in an empty folder, for a query with another id.

        ``pinned`` is the version that a restore point recorded for the batch.
        """


@dataclass(frozen=True)
class TableCopy:
    """The first commit of a copy that shares its data files with the original."""

    files: Mapping[str, bytes]
    """Files to write, by path in the copy."""
    version: int | None
    shared: FilesMoved
    warnings: tuple[str, ...] = ()
    noun: str = "version"


@dataclass(frozen=True)
class TableUri:
    """The parts of ``delta:PATH?txnAppId=NAME`` or ``iceberg:CATALOG.DATABASE.TABLE?catalog.type=hadoop``."""

    kind: str
    path: str
    options: Mapping[str, str]

    @property
    def sink(self) -> str:
        """The URI without options."""
        return f"{self.kind}:{self.path}"


def parse_table_uri(uri: str | None) -> TableUri | None:
    """Return the parts of a table's URI; None for sinks of other kinds."""
    kind, colon, rest = (uri or "").partition(":")
    if not colon or kind not in TABLE_KINDS:
        return None
    path, mark, query = rest.rpartition("?")
    if not mark:
        path, query = rest, ""
    return TableUri(kind, unquote(path).removeprefix("file:"), dict(parse_qsl(query)))


def open_table(uri: str) -> RewindableTable | None:
    """Return the table that a sink's URI names; None if the sink is not a table of a known format."""
    from headwater.lakehouse.delta_table import DeltaTable  # noqa: PLC0415  it implements the protocol of this module
    from headwater.lakehouse.iceberg_table import IcebergTable  # noqa: PLC0415  and so does this one

    parsed = parse_table_uri(uri)
    if parsed is None:
        return None
    return IcebergTable.at(parsed) if parsed.kind == "iceberg" else DeltaTable.at(parsed)


def new_table_folder(uri: TableUri) -> FileTree:
    """Return the folder of a table that need not exist yet. Raise ``UsageProblem`` if only its catalog would know it."""
    if uri.kind == "iceberg":
        from headwater.lakehouse.iceberg_catalog import hadoop_folder  # noqa: PLC0415  it needs the types of this module

        return open_files(hadoop_folder(uri))
    return open_files(uri.path if "://" in uri.path else str(Path(uri.path).absolute()))
