"""Plan to erase rows: from the state, and from every file of the checkpoint that may still contain them.

The state of the operators is written as complete snapshots without the rows. All older files of these operators, restore
points, and the files that earlier changes have set aside are deleted for good. The stream can then no longer be rewound
to earlier batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from headwater.checkpoint.filetree import FileTree, walk
from headwater.checkpoint.layout import HEADWATER_FOLDER, STATE, join
from headwater.checkpoint.restore_points import FOLDER as KEPT
from headwater.checkpoint.signs_of_life import signs_of_life
from headwater.core.errors import ChangeRefused
from headwater.core.ids import StoreKey
from headwater.core.text import count
from headwater.statefiles.key_lookup import with_key_fields
from headwater.statefiles.statewriter import Operation, put
from headwater.statefiles.stored_rows import stored_rows
from headwater.statefiles.stores import StateTarget, select
from headwater.timemachine.change import SCRATCH
from headwater.timemachine.edit import StateEditor
from headwater.timemachine.edit_plan import EditPlan, Erasure, RowChanges
from headwater.timemachine.erased import ERASES
from headwater.timemachine.extra_batch import plan_extra_batch
from headwater.timemachine.journal import read_entries
from headwater.timemachine.row_edits import RowEdit, Wanted
from headwater.timemachine.store_files import StoreChange

_SHORTEST_NEEDLE = 4
_OUTSIDE = "only the checkpoint is erased: the source, the sink, dead letters, forks and exported files may still have the data"


def plan_erasure_of_key(editor: StateEditor, key: Mapping[str, str], *, reason: str | None = None) -> EditPlan:
    """Plan to erase keys from all operators that have these fields in their keys."""
    wanted = [target for target in select(editor.targets, editor.ref) if target.kind != "side"]
    operators = sorted({target.operator_id for target in with_key_fields(wanted, key)})
    operations: dict[StoreKey, list[Operation]] = {}
    removed = [editor.remove_key(operator, key, operations) for operator in operators]
    label = ", ".join(f"operator {operator} ({editor.operator_name(operator)})" for operator in operators)
    return _plan(editor, operators, operations, RowChanges.sum(removed), label, key.values(), reason)


def plan_erasure_of_rows(
    editor: StateEditor, target: StateTarget, rows: pa.Table, *, reason: str | None = None
) -> EditPlan:
    """Plan to erase some rows of an operator with a single store."""
    parts = [one for one in editor.targets if one.operator_id == target.operator_id]
    if len(parts) > 1:
        raise ChangeRefused(
            "cannot-edit",
            f"rows of {target.label} cannot be erased by a condition",
            evidence={"why": "the operator keeps what belongs to a key in several places"},
            remedy="erase everything that belongs to a key: --delete --erase --key FIELD=VALUE",
        )
    operations: dict[StoreKey, list[Operation]] = {}
    edit = RowEdit(editor.reader, editor.targets, editor.batch, target, Wanted(removed=rows))
    changes = edit.plan(operations)
    names = edit.flat.key_names
    texts = {str(value) for row in rows.select(names).to_pylist() for value in row.values() if isinstance(value, str)}
    return _plan(editor, [target.operator_id], operations, changes, target.label, texts, reason)


def _plan(
    editor: StateEditor,
    operators: list[int],
    operations: dict[StoreKey, list[Operation]],
    rows: RowChanges,
    label: str,
    texts: Iterable[str],
    reason: str | None,
) -> EditPlan:
    files, history = editor.files, editor.history
    if history.logs.former.layouts:  # earlier batches had the rows of an operator under other numbers
        operators = list(history.logs.operators(editor.batch))
    state = [path for operator in operators for path in _state_files(editor, operator)]
    state += [place for path, place in history.logs.former.moved_state() if _has_rows(path)]
    entries = tuple(entry.change.change_id for entry in read_entries(files))
    points = tuple(entry.name for entry in files.entries(KEPT) if entry.is_folder)
    aside = [path for path, _ in walk(files, f"{HEADWATER_FOLDER}/quarantine")]
    kept = [path for path, _ in walk(files, KEPT)]
    erasure = Erasure(tuple(history.batch_ids), len(state) + len(aside) + len(kept), points, entries)
    stores = {
        key: StoreChange(_remaining(editor, key, operations.get(key, ())), snapshot=True)
        for operator in operators
        for key in _stores(editor, operator)
    }
    batch = plan_extra_batch(
        history,
        stores,
        verb="edit",
        about=f"erase {count(rows.removed, 'row')} of {label}",
        sink=editor.sink,
        reason=reason,
        details={"rows": rows.as_dict(), "state": label, ERASES: erasure.as_dict()},
        aside=state,
        seen=editor.seen,
    )
    warnings = (*editor.warnings, *_left(files, texts), _OUTSIDE)
    return EditPlan(
        files, editor.sink, label, rows, batch, reason, warnings, tuple(signs_of_life(history)), erasure=erasure
    )


def _stores(editor: StateEditor, operator: int) -> list[StoreKey]:
    expected = editor.history.logs.expected_stores(editor.batch)
    return [key for key in expected if key.operator_id == operator]


def _state_files(editor: StateEditor, operator: int) -> Iterator[str]:
    """Yield every file with rows of an operator, of all versions. Its schema and metadata are kept."""
    for folder, names in editor.history.logs.present_state.names.items():
        if folder.split("/")[:2] == [STATE, str(operator)] and _has_rows(folder):
            yield from (join(folder, name) for name in names)


def _has_rows(path: str) -> bool:
    return not any(part.startswith("_") for part in path.split("/"))


def _remaining(editor: StateEditor, key: StoreKey, removed: Iterable[Operation]) -> Iterator[Operation]:
    """Yield a put for each row of a store that stays, in all of its column families, with its bytes as they are."""
    gone = {row_key for _, row_key, _ in removed}
    target = next(
        one
        for one in editor.targets
        if one.operator_id == key.operator_id and one.folder_store == key.store_name and one.kind != "side"
    )
    for row_key, value in stored_rows(editor.reader, target, key, editor.batch):
        if row_key not in gone:
            yield put(row_key, value)


def _left(files: FileTree, texts: Iterable[str]) -> Iterator[str]:
    """Yield a warning for each other file of the checkpoint that contains the text of a key."""
    needles = {text: text.encode() for text in texts if len(text) >= _SHORTEST_NEEDLE}
    skipped = (f"{HEADWATER_FOLDER}/quarantine/", f"{KEPT}/", f"{SCRATCH}/", f"{STATE}/")
    if not needles:
        return
    for path, _ in walk(files):
        if path.startswith(skipped):
            continue
        data = files.read(path)
        found = next((text for text, needle in needles.items() if needle in data), None)
        if found is not None:
            yield f"{path} also contains the text of an erased key, and is kept"
