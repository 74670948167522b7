"""Write the state of operators that have another number than before, and the empty state of new ones.

Every moved store is written as a snapshot in the added batch. The files of the operator that had the number before stay
where they are, for earlier batches; those of an operator whose number is no longer used are taken away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from headwater.checkpoint.former_state import recorded_stores
from headwater.checkpoint.layout import join
from headwater.checkpoint.logs import CheckpointLogs
from headwater.core.errors import ChangeRefused
from headwater.core.ids import StoreKey
from headwater.migration.operator_matching import OperatorMatch
from headwater.statefiles.reader import StateReader
from headwater.statefiles.records import PUT
from headwater.statefiles.statewriter import Operation, put
from headwater.statefiles.stored_rows import stored_rows
from headwater.timemachine.store_files import StoreChange

_METADATA_FOLDERS = ("_metadata", "_stateSchema")


def new_stores(planned: CheckpointLogs, partitions: int | None) -> tuple[StoreKey, ...]:
    """Return the stores that Spark has planned for the new code."""
    found: list[StoreKey] = []
    for operator in planned.state.operators:
        metadata = planned.operator(operator, 0)
        assert metadata is not None
        found += recorded_stores(metadata, partitions)
    return tuple(found)


def leaving_files(logs: CheckpointLogs, match: OperatorMatch) -> Iterator[str]:
    """Yield the files of removed operators, and the metadata of those whose place another one takes."""
    stay = {new for old, new in match.pairs if old == new}
    taken = {new for _, new in match.pairs} | set(match.added)
    for folder, names in sorted(logs.present_state.names.items()):
        parts = folder.split("/")
        if len(parts) < 2 or not parts[1].isdecimal() or int(parts[1]) in stay:
            continue
        if int(parts[1]) not in taken or any(part in _METADATA_FOLDERS for part in parts):
            yield from (join(folder, name) for name in sorted(names))


@dataclass(frozen=True)
class PlacedStores(Mapping[StoreKey, StoreChange]):
    """The contents of all stores after a migration, by their new places. ``rewritten`` are by their old ones."""

    reader: StateReader
    batch: int
    match: OperatorMatch
    stores: tuple[StoreKey, ...]
    rewritten: Mapping[StoreKey, StoreChange]

    def __getitem__(self, key: StoreKey) -> StoreChange:
        old = self.match.origins.get(key.operator_id)
        if old is None:
            return StoreChange(snapshot=True, is_new=True)
        origin = replace(key, operator_id=old)
        changed = self.rewritten.get(origin)
        if old == key.operator_id:
            return changed or StoreChange()
        if changed is None:
            return StoreChange(tuple(self._rows(origin)), snapshot=True, origin=origin)
        if changed.complete:
            return replace(changed, snapshot=True, origin=origin)
        # Column families whose fields stay as they are have not been rewritten.
        rows = {row_key: value for _, row_key, value in self._rows(origin)}
        for kind, row_key, value in changed.operations:
            if kind == PUT:
                rows[row_key] = value
            else:
                rows.pop(row_key, None)
        return StoreChange(tuple(put(*row) for row in rows.items()), snapshot=True, origin=origin)

    def __iter__(self) -> Iterator[StoreKey]:
        return iter(self.stores)

    def __len__(self) -> int:
        return len(self.stores)

    def _rows(self, key: StoreKey) -> Iterator[Operation]:
        """Yield a put for each row of a store, in all of its column families, with its bytes as they are."""
        target = next(
            (
                one
                for one in self.reader.targets(self.batch)
                if one.operator_id == key.operator_id and one.folder_store == key.store_name and one.kind != "side"
            ),
            None,
        )
        if target is None:
            raise ChangeRefused(
                "cannot-migrate", f"the state of {key} cannot be moved", evidence={"why": "it has no schema file"}
            )
        yield from (put(*row) for row in stored_rows(self.reader, target, key, self.batch))
