"""What of a checkpoint's state can be asked for: every operator's stores, and the variables of custom state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.logtext import read_bytes
from headwater.checkpoint.operator_metadata import OperatorMetadata, StoreInfo
from headwater.core.errors import UsageProblem
from headwater.core.ids import DEFAULT_STORE, StoreKey
from headwater.statefiles.schemafile import FamilySchema, KeyEncoding, parse_schema_file

Kind = Literal["rows", "value", "list", "map", "timers", "side", "hidden"]

JOIN = "symmetricHashJoin"
_VARIABLE_KINDS: dict[str, Kind] = {
    "ValueState": "value",
    "ListState": "list",
    "MapState": "map",
    "TimerState": "timers",
}
# Newer joins keep lists under these names.
_LISTS_OF_JOINS = ("left-keyWithTsToValues", "left-tsWithKey", "right-keyWithTsToValues", "right-tsWithKey")
# The store of a join from which a side as a whole can be told: its rows, each under its key and a number.
_SIDES = {
    "left-keyWithIndexToValue": "left",
    "right-keyWithIndexToValue": "right",
    "left-keyWithTsToValues": "left",
    "right-keyWithTsToValues": "right",
}
TIMERS = "timers"
_SESSION_START = "sessionStartTime"


@dataclass(frozen=True)
class StateTarget:
    """One thing to read: a store, or a variable in one.

    ``store`` is what Spark's reader calls it; ``folder_store`` is the store on disk, which holds several of these when
    ``family`` says which column family of it this one is.
    """

    operator_id: int
    operator_name: str
    store: str
    var: str | None
    kind: Kind
    folder_store: str
    family: str | None
    schema: FamilySchema
    older_schemas: tuple[FamilySchema, ...] = field(default=(), repr=False)

    @property
    def is_list(self) -> bool:
        return self.kind == "list" or self.family in _LISTS_OF_JOINS

    @property
    def label(self) -> str:
        name = self.var if self.var is not None else self.store
        return f"operator {self.operator_id} ({self.operator_name}), {name}"

    @property
    def arguments(self) -> str:
        """The options that choose this one at the command line."""
        chosen = f"--operator {self.operator_id}"
        if self.store != DEFAULT_STORE:
            chosen += f" --store {self.store}"
        return chosen + (
            f" --var '{self.var}'" if self.var and self.var.startswith("$") else f" --var {self.var}"
        ) * bool(self.var)


def targets(logs: CheckpointLogs, batch: int) -> list[StateTarget]:
    """Everything that can be read as of a batch, hidden column families included, in a settled order."""
    found: list[StateTarget] = []
    for operator_id in logs.state.operators:
        metadata = logs.operator(operator_id, batch)
        if metadata is None:
            found += _without_metadata(logs, operator_id)
        elif metadata.version == 1:
            found += _plain(logs, metadata)
        else:
            found += _with_families(logs, metadata)
    return found + [_side(target) for target in found if target.store in _SIDES]


def _side(target: StateTarget) -> StateTarget:
    """A join's side as Spark's ``joinSide`` shows it: keys and rows, without numbers and marks."""
    return replace(target, store=_SIDES[target.store], kind="side")


def _plain(logs: CheckpointLogs, metadata: OperatorMetadata) -> Iterator[StateTarget]:
    for store in metadata.stores:
        schema = _store_schema(logs, metadata.operator_id, store.name)
        yield _rows(metadata.operator_id, metadata.operator_name, store.name, _prefixed(schema, store.prefix_columns))


def _without_metadata(logs: CheckpointLogs, operator_id: int) -> Iterator[StateTarget]:
    """Spark before 4.0 wrote no operator metadata; the folders say which stores there are."""
    for name in logs.state.store_names[operator_id]:
        schema = _store_schema(logs, operator_id, name)
        # Of its operators only session windows ordered their keys; their last column has a name of Spark's own.
        prefix = len(schema.key.fields) - 1 if schema.key.names[-1:] == [_SESSION_START] else 0
        yield _rows(operator_id, "unknown operator", name, _prefixed(schema, prefix))


def _prefixed(schema: FamilySchema, columns: int) -> FamilySchema:
    return replace(schema, encoding=KeyEncoding("prefix", tuple(range(columns)))) if columns else schema


def _rows(operator_id: int, operator_name: str, store: str, schema: FamilySchema) -> StateTarget:
    return StateTarget(operator_id, operator_name, store, None, "rows", store, None, schema)


def _store_schema(logs: CheckpointLogs, operator_id: int, store: str) -> FamilySchema:
    # Spark writes it into partition 0 alone.
    path = f"{StoreKey(operator_id, 0, store).folder}/_metadata/schema"
    return parse_schema_file(read_bytes(logs.files, path), path)[0]


def _with_families(logs: CheckpointLogs, metadata: OperatorMetadata) -> Iterator[StateTarget]:
    variables = _variables(metadata)
    for store in metadata.stores:
        *older, newest = _schema_files(logs, metadata.operator_id, store)
        for schema in newest:
            if schema.name == DEFAULT_STORE and len(newest) > 1:
                continue
            same = tuple(past for held in [*older, newest] for past in held if past.name == schema.name)
            yield _family_target(metadata, store, schema, same, variables)


def _family_target(
    metadata: OperatorMetadata,
    store: StoreInfo,
    schema: FamilySchema,
    schemas: tuple[FamilySchema, ...],
    variables: dict[str, Kind],
) -> StateTarget:
    family = schema.name
    about = (metadata.operator_id, metadata.operator_name)
    if metadata.operator_name == JOIN:
        return StateTarget(*about, family, None, "rows", store.name, family, schema, schemas)
    kind = variables.get(family, "hidden")
    return StateTarget(*about, store.name, family, kind, store.name, family, schema, schemas)


def _variables(metadata: OperatorMetadata) -> dict[str, Kind]:
    try:
        properties: dict[str, Any] = json.loads(metadata.properties or "{}")
        return {
            variable["stateName"]: _VARIABLE_KINDS.get(variable["stateVariableType"], "hidden")
            for variable in properties.get("stateVariables", [])
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _schema_files(logs: CheckpointLogs, operator_id: int, store: StoreInfo) -> list[list[FamilySchema]]:
    """Oldest first. Their recorded paths are absolute, and right only where Spark wrote them."""
    folder = f"state/{operator_id}/"
    found = []
    for recorded in store.schema_paths:
        _, _, inside = recorded.rpartition(f"/{folder}")
        path = folder + inside
        found.append(parse_schema_file(read_bytes(logs.files, path), path))
    return found


def chosen(
    found: list[StateTarget], *, operator: int | None = None, store: str | None = None, var: str | None = None
) -> list[StateTarget]:
    """The targets that a user's words mean; hidden column families only when they are named."""
    matching = [
        target
        for target in found
        if (operator is None or target.operator_id == operator)
        and (store is None or target.store == store)
        and (target.kind != "hidden" if var is None else _named(target, var))
        and (target.kind != "side" or target.store == store)
    ]
    if matching:
        return matching
    raise UsageProblem(
        "no-such-state",
        "no state store or variable fits these words" if found else "this checkpoint has no state",
        evidence={"there are": "; ".join(_shown(found))} if found else {},
    )


def _shown(found: list[StateTarget]) -> list[str]:
    return [target.arguments for target in found if target.kind not in ("hidden", "side")]


def _named(target: StateTarget, var: str) -> bool:
    return target.var == var or (var == TIMERS and target.kind == "timers")


def the_one(found: list[StateTarget]) -> StateTarget:
    """The only target; a question that has one table as its answer needs one."""
    if len(found) == 1:
        return found[0]
    raise UsageProblem(
        "which-state",
        "there are several state stores or variables, and this needs one of them",
        evidence={"there are": "; ".join(target.arguments for target in found)},
        remedy=f"add {found[0].arguments}",
    )
