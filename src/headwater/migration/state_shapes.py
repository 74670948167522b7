"""The stateful operators of a checkpoint and the schemas of their stores, as its metadata describes them."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from headwater.checkpoint.logs import CheckpointLogs
from headwater.core.ids import DEFAULT_STORE
from headwater.statefiles.schemafile import FamilySchema
from headwater.statefiles.stores import StateTarget, find_targets

_SQL_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
UNKNOWN = "unknown operator"
_DELAY = "spark.watermarkDelayMs"


@dataclass(frozen=True)
class Field:
    """A field of a key or a value; ``type`` is Spark's SQL name of it."""

    name: str
    type: str
    nullable: bool = True

    def __str__(self) -> str:
        return f"{self.name} {self.type}"

    @property
    def exact(self) -> str:
        """The field as in SQL, with ``not null`` if it is never null."""
        return f"{self}" if self.nullable else f"{self} not null"


@dataclass(frozen=True)
class StoreShape:
    """A store, or a variable of custom state, with the fields of its keys and values."""

    name: str
    kind: str
    key: tuple[Field, ...]
    value: tuple[Field, ...]
    delay_ms: int | None = None
    """The watermark delay of the key when the first batch ran; None if no field of the key has a watermark."""


@dataclass(frozen=True)
class OperatorShape:
    """A stateful operator with its stores. ``name`` is Spark's, such as ``stateStoreSave``."""

    id: int
    name: str
    stores: tuple[StoreShape, ...]
    partitions: int | None = None


def read_shapes(logs: CheckpointLogs, batch: int) -> tuple[OperatorShape, ...]:
    """Return the stateful operators of a checkpoint as of a batch."""
    stores: dict[int, list[StoreShape]] = defaultdict(list)
    names: dict[int, str] = {}
    for target in find_targets(logs, batch):
        names[target.operator_id] = target.operator_name
        if target.kind not in ("hidden", "side", "raw"):
            stores[target.operator_id].append(_shape(target))
    found = []
    for number in sorted(names):
        metadata = logs.operator(number, batch)
        partitions = max((store.partitions for store in metadata.stores), default=None) if metadata else None
        found.append(OperatorShape(number, names[number], tuple(stores[number]), partitions))
    return tuple(found)


def _shape(target: StateTarget) -> StoreShape:
    schema: FamilySchema = target.schema
    name = target.var if target.var is not None else "" if target.store == DEFAULT_STORE else target.store
    return StoreShape(name, target.kind, _fields(schema.key_json), _fields(schema.value_json), _delay(schema.key_json))


def _fields(text: str) -> tuple[Field, ...]:
    return tuple(
        Field(field["name"], type_text(field["type"]), field.get("nullable") is not False)
        for field in json.loads(text)["fields"]
    )


def _delay(text: str) -> int | None:
    delays = [field.get("metadata", {}).get(_DELAY) for field in json.loads(text)["fields"]]
    return next((delay for delay in delays if isinstance(delay, int)), None)


def type_text(value: Any) -> str:
    """Return the SQL name of a type in Spark's JSON form."""
    if isinstance(value, str):
        return _SQL_NAMES.get(value, value)
    match value.get("type"):
        case "struct":
            inner = (f"{field['name']}: {type_text(field['type'])}" for field in value["fields"])
            return f"struct<{', '.join(inner)}>"
        case "array":
            return f"array<{type_text(value['elementType'])}>"
        case "map":
            return f"map<{type_text(value['keyType'])}, {type_text(value['valueType'])}>"
        case kind:
            return str(kind)
