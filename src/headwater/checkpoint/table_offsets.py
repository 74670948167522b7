"""Positions of sources that read Delta and Iceberg tables, as Spark's offset log has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

Step = Literal["same", "forward", "backward", "unknown"]


@dataclass(frozen=True)
class DeltaPosition:
    """A position in a Delta table: everything before this version, and its files up to ``file``, have been read.

    ``file`` is None if none of the version's files has been read. ``in_snapshot`` is True while the query still reads
    the table as of the version that it started with; ``file`` then counts the files of the entire table.
    """

    version: int
    file: int | None = None
    in_snapshot: bool = False
    table_id: str | None = None

    kind: ClassVar[str] = "delta"

    def __str__(self) -> str:
        name = f"snapshot {self.version}" if self.in_snapshot else str(self.version)
        return name if self.file is None else f"{name}:{self.file}"

    @property
    def sentence(self) -> str:
        name = f"the snapshot of version {self.version}" if self.in_snapshot else f"version {self.version}"
        return f"{name}, before its first file" if self.file is None else f"{name}, after its file {self.file}"

    @property
    def order(self) -> tuple[int, int]:
        return self.version, -1 if self.file is None else self.file


@dataclass(frozen=True)
class IcebergPosition:
    """A position in an Iceberg table: the first ``files`` files of a snapshot have been read.

    With ``in_table``, these are files of the table as of the snapshot, otherwise those that the snapshot added.
    """

    snapshot_id: int
    files: int
    in_table: bool = False

    kind: ClassVar[str] = "iceberg"

    def __str__(self) -> str:
        return f"{self.snapshot_id}:{self.files}"

    @property
    def sentence(self) -> str:
        files = "files of the table" if self.in_table else "added files"
        return f"snapshot {self.snapshot_id}, after {self.files} of its {files}"


TablePosition: TypeAlias = DeltaPosition | IcebergPosition


def table_position(value: Any) -> TablePosition | None:
    """Return the position in a table that an offset records; None for an offset of any other source."""
    return delta_position(value) or iceberg_position(value)


def delta_position(value: Any) -> DeltaPosition | None:
    """Return the position in a Delta table; None for an offset of any other source."""
    version, index = _number(value, "reservoirVersion"), _number(value, "index")
    if version is None or index is None:
        return None
    table = value.get("reservoirId")
    # Negative indexes are before the first file. Delta has several of them, for changes of the schema.
    return DeltaPosition(
        version,
        index if index >= 0 else None,
        value.get("isStartingVersion") is True,
        table if isinstance(table, str) else None,
    )


def iceberg_position(value: Any) -> IcebergPosition | None:
    """Return the position in an Iceberg table; None for an offset of any other source."""
    snapshot, position = _number(value, "snapshot_id"), _number(value, "position")
    if snapshot is None or position is None:
        return None
    return IcebergPosition(snapshot, position, value.get("scan_all_files") is True)


def table_step(before: Any, after: Any) -> tuple[Step, str]:
    """Return how a source moved in a table. Ids of tables, and of Iceberg's snapshots, have no order."""
    match table_position(before), table_position(after):
        case DeltaPosition() as first, DeltaPosition() as second if first.table_id == second.table_id:
            is_backward = second.order < first.order
        case IcebergPosition() as first, IcebergPosition() as second if first.snapshot_id == second.snapshot_id:
            is_backward = second.files < first.files
        case _:
            return "unknown", ""
    return ("backward", f"from {first} to {second}") if is_backward else ("forward", "")


def _number(value: Any, name: str) -> int | None:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None
