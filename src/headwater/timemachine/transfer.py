"""Export state to tables that describe themselves, and import them into a checkpoint of the same schema.

There is a table for each store and variable: one row per key, with the operator, the store, the batch and the schemas
in its metadata. An import replaces everything that the stores contain. Every key goes to the partition that its hash
names, so the number of partitions may differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain

import pyarrow as pa

from headwater.checkpoint.filetree import FileTree
from headwater.core.errors import ChangeRefused, UsageProblem
from headwater.core.ids import ANY_STORE, StoreRef
from headwater.statefiles.flat_rows import FlatRows
from headwater.statefiles.reader import StateReader
from headwater.statefiles.records import Records
from headwater.statefiles.sqltypes import Struct, parse_struct
from headwater.statefiles.stores import StateTarget, select
from headwater.statefiles.threads import in_order
from headwater.timemachine.edit import StateEditor
from headwater.timemachine.edit_plan import EditPlan
from headwater.timemachine.row_edits import ROW_COUNTER, Wanted

_METADATA = b"headwater"
_FORMAT = 1


@dataclass(frozen=True)
class Origin:
    """Where an exported table comes from. The schemas are in Spark's JSON form."""

    operator_id: int
    operator: str
    store: str
    var: str | None
    batch_id: int
    key_schema: str
    value_schema: str
    format: int = _FORMAT
    watermark_ms: int | None = None
    offsets: tuple[str | None, ...] = ()
    """Where the sources of the query continue after the batch, as Spark's offset log has it."""

    @property
    def label(self) -> str:
        return f"operator {self.operator_id} ({self.operator}), {self.var or self.store}"

    @property
    def file_stem(self) -> str:
        """A name for the file that is unique within a checkpoint."""
        return "-".join([f"operator-{self.operator_id}", self.store, *([self.var] if self.var else [])])


def export_tables(reader: StateReader, batch: int, ref: StoreRef = ANY_STORE) -> list[pa.Table]:
    """Return a table for each store and variable of the operators that are meant, including Spark's own indexes."""
    return [stream.read_all() for stream in export_streams(reader, batch, ref)]


def export_streams(reader: StateReader, batch: int, ref: StoreRef = ANY_STORE) -> list[pa.RecordBatchReader]:
    """Return the same as streams, each of which can be read once, so that a large state need not be in memory."""
    chosen = {target.operator_id for target in select(reader.targets(batch), ref)}
    targets = [target for target in reader.targets(batch) if target.operator_id in chosen and _is_part(target)]
    if ref.store is not None or ref.var is not None:
        targets = [target for target in targets if target.matches(ref)]
    return [_export(reader, target, batch) for target in targets]


def _is_part(target: StateTarget) -> bool:
    # Spark counts the elements of lists; an import counts them again. The sides of a join are views of its stores.
    return target.kind != "side" and not (target.family or "").startswith(ROW_COUNTER)


def _export(reader: StateReader, target: StateTarget, batch: int) -> pa.RecordBatchReader:
    if target.kind == "raw":
        raise ChangeRefused(
            "cannot-export", f"{target.label} cannot be exported", evidence={"why": "it has no schema file"}
        )
    flat = FlatRows.of(target)
    parts = in_order(_parts(reader, flat, batch))
    first = next(parts, None)
    schema = flat.schema if first is None else first.schema
    entry, commit = reader.logs.offsets.get(batch), reader.logs.commits.get(batch)
    origin = Origin(
        target.operator_id,
        target.operator_name,
        target.store,
        target.var,
        batch,
        target.schema.key_json,
        target.schema.value_json,
        watermark_ms=commit.next_watermark_ms if commit else None,
        offsets=tuple(source.text for source in entry.sources) if entry else (),
    )
    described = schema.with_metadata({_METADATA: json.dumps(asdict(origin)).encode()})
    tables = chain([] if first is None else [first], parts)
    batches = (part for table in tables for part in table.replace_schema_metadata(described.metadata).to_batches())
    return pa.RecordBatchReader.from_batches(described, batches)


def _parts(reader: StateReader, flat: FlatRows, batch: int) -> Iterator[Callable[[], pa.Table]]:
    """Yield functions that each return some of the rows as a flat table."""

    def table(rows: Callable[[], Records]) -> pa.Table:
        return flat.table(reader, reader.one_row_per_key(flat.target, rows(), batch), batch)

    for store in reader.stores(flat.target, batch):
        partition = reader.partition(flat.target, store)
        large = partition.large_parts(batch)
        for rows in [partial(partition.rows, batch)] if large is None else large:
            yield partial(table, rows)


def origin_of(table: pa.Table | pa.RecordBatchReader, what: str) -> Origin:
    """Return where a table comes from. Raise ``UsageProblem`` if it was not exported."""
    try:
        value = json.loads((table.schema.metadata or {})[_METADATA])
        if value["format"] > _FORMAT:
            raise UsageProblem("bad-file", f"{what} was exported by a newer version of Headwater")
        return Origin(**value)
    except (KeyError, ValueError, TypeError, RecursionError):
        raise _not_exported(what) from None


def _not_exported(what: str) -> UsageProblem:
    return UsageProblem(
        "bad-file",
        f"{what} was not written by headwater export",
        remedy="to put rows of other files into a state: headwater edit CKPT --from FILE",
    )


def plan_import(
    files: FileTree,
    tables: Mapping[str, pa.Table],
    ref: StoreRef = ANY_STORE,
    *,
    reason: str | None = None,
    sink: str | None = None,
) -> EditPlan:
    """Plan to replace the contents of stores and variables by exported tables, given by file name.

    The tables name their stores and variables; ``ref`` names another operator, store or variable for a single table.
    """
    editor = StateEditor(files, ref, sink=sink)
    changes: dict[StateTarget, Wanted] = {}
    for what, table in tables.items():
        origin = origin_of(table, what)
        target = _target_of(editor, origin, ref if len(tables) == 1 else ANY_STORE, what)
        _refuse_other_schema(origin, target, what)
        if target in changes:
            raise UsageProblem("bad-file", f"more than one file contains {target.label}")
        changes[target] = Wanted(rows=FlatRows.of(target).conform(table, what), complete=True)
    _refuse_incomplete(editor, list(changes))
    return editor.plan(changes, verb="import", reason=reason)


def _target_of(editor: StateEditor, origin: Origin, ref: StoreRef, what: str) -> StateTarget:
    operator = origin.operator_id if ref.operator is None else ref.operator
    store, var = ref.store or origin.store, ref.var or origin.var
    for target in editor.targets:
        if (target.operator_id, target.store, target.var) == (operator, store, var) and target.kind != "side":
            return target
    raise ChangeRefused(
        "no-such-state",
        f"the checkpoint has no state for {what}",
        evidence={
            "wanted": f"operator {operator}, {var or store}",
            "available": "; ".join(target.label for target in editor.targets if target.kind not in ("hidden", "side")),
        },
        remedy="choose one with --operator, --store and --var",
    )


def _refuse_other_schema(origin: Origin, target: StateTarget, what: str) -> None:
    for part, theirs, own in (
        ("key", origin.key_schema, target.schema.key),
        ("value", origin.value_schema, target.schema.value),
    ):
        try:
            given = parse_struct(theirs)
        except (KeyError, ValueError, TypeError, RecursionError):
            raise _not_exported(what) from None
        if given != own:
            raise ChangeRefused(
                "schema-mismatch",
                f"the {part} schema in {what} differs from that of {target.label}",
                evidence={"in the file": _described(given), "in the checkpoint": _described(own)},
            )


def _described(kind: Struct) -> str:
    return ", ".join(f"{field.name} {_type_name(field.type)}" for field in kind.fields) or "no fields"


def _type_name(kind: object) -> str:
    return str(getattr(kind, "name", None) or kind)


def _refuse_incomplete(editor: StateEditor, given: Sequence[StateTarget]) -> None:
    """Raise ``ChangeRefused`` if only some of the stores or variables that have to agree would be replaced."""
    for operator in {target.operator_id for target in given}:
        parts = [one for one in editor.targets if one.operator_id == operator and _is_part(one)]
        missing = [one for one in parts if one not in given]
        linked = [one for one in parts if one.family is None and len(parts) > 1] or [
            one for one in parts if one.kind in ("timers", "hidden")
        ]
        if missing and linked:
            raise ChangeRefused(
                "incomplete-import",
                f"the files do not contain all state of operator {operator}, and its parts have to agree",
                evidence={"missing": ", ".join(one.var or one.store for one in missing)},
                remedy="export the operator to a folder, and import the folder: headwater export CKPT FOLDER",
            )
