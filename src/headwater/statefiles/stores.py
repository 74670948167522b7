"""The parts of a checkpoint's state that can be read: the stores of every operator, and the variables of custom state."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from headwater.checkpoint.log_entries import OffsetEntry
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.logtext import read_bytes, unreadable_file
from headwater.checkpoint.operator_metadata import OperatorMetadata, StoreInfo, find_schema_files, schema_folder
from headwater.core.errors import UsageProblem
from headwater.core.ids import ANY_STORE, DEFAULT_STORE, StoreKey, StoreRef
from headwater.statefiles.ddl import parse_columns, parse_key_and_value
from headwater.statefiles.schemafile import FamilySchema, KeyEncoding, parse_schema_file

Kind = Literal["rows", "raw", "value", "list", "map", "timers", "side", "hidden"]

JOIN = "symmetricHashJoin"
# The end of the names of a join's stores that contain rows, each under its key and an index.
JOIN_INDEX = "keyWithIndexToValue"
_VARIABLE_KINDS: dict[str, Kind] = {
    "ValueState": "value",
    "ListState": "list",
    "MapState": "map",
    "TimerState": "timers",
}
# The stores of newer joins that contain lists.
_JOIN_LISTS = ("left-keyWithTsToValues", "left-tsWithKey", "right-keyWithTsToValues", "right-tsWithKey")
# The store of a join that contains the rows of a side, each under its key and an index.
_JOIN_SIDES = {
    "left-keyWithIndexToValue": "left",
    "right-keyWithIndexToValue": "right",
    "left-keyWithTsToValues": "left",
    "right-keyWithTsToValues": "right",
}
TIMERS = "timers"
_CONF = "spark.sql.streaming.stateStore."
PROVIDER = f"{_CONF}providerClass"
_PROVIDERS = {"HDFSBackedStateStoreProvider": True, "RocksDBStateStoreProvider": False}
_SESSION_START = "sessionStartTime"
_SCHEMA_OPTION = "--schema"
# The schemas of undecoded keys and values.
_KEY_BYTES, _VALUE_BYTES = parse_columns("key_bytes BINARY"), parse_columns("value_bytes BINARY")


@dataclass(frozen=True)
class StateTarget:
    """A store, or a variable in one, that can be read as a table.

    ``store`` is its name in Spark's reader. ``folder_store`` is the store on disk; it contains several targets if
    ``family`` is set, which is then the column family of this one. A store of the kind ``raw`` has no schema file: its
    keys and values are bytes.
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
        return self.kind == "list" or self.family in _JOIN_LISTS

    @property
    def has_given_schema(self) -> bool:
        """Whether the user gave the schema, because the store has no schema file."""
        return self.schema.path == _SCHEMA_OPTION

    @property
    def label(self) -> str:
        """A description for people, which is unique within a checkpoint."""
        name = self.var if self.var is not None else self.store
        return f"operator {self.operator_id} ({self.operator_name}), {name}"

    @property
    def arguments(self) -> str:
        """The command-line options that select this target."""
        options = [f"--operator {self.operator_id}"]
        if self.store != DEFAULT_STORE:
            options.append(f"--store {self.store}")
        if self.var:
            options.append(f"--var '{self.var}'" if self.var.startswith("$") else f"--var {self.var}")
        return " ".join(options)

    def matches(self, ref: StoreRef) -> bool:
        """Return whether a reference means this target. Hidden targets and join sides have to be named."""
        return (
            ref.operator in (None, self.operator_id)
            and ref.store in (None, self.store)
            and (self.kind != "side" or ref.store == self.store)
            and (self.kind != "hidden" if ref.var is None else self._is_named(ref.var))
        )

    def _is_named(self, var: str) -> bool:
        return self.var == var or (var == TIMERS and self.kind == "timers")


@dataclass(frozen=True)
class StoreSettings:
    """The settings of a batch that determine how its stores are encoded; ``list_delimiter`` is a size in bytes."""

    avro: bool
    row_checksums: bool
    list_delimiter: int
    partitions: int | None
    hdfs: bool | None = None
    """Whether stores are HDFS-backed; None if the configuration does not say it."""

    @classmethod
    def of(cls, entry: OffsetEntry | None) -> StoreSettings:
        """Return the settings that are recorded in a batch's offsets."""
        conf = entry.conf if entry else {}
        return cls(
            avro=conf.get(f"{_CONF}encodingFormat", "unsaferow") == "avro",
            row_checksums=conf.get(f"{_CONF}rowChecksum.enabled", "false") == "true",
            list_delimiter=0 if conf.get(f"{_CONF}rocksdb.mergeOperatorVersion", "1") == "2" else 1,
            partitions=entry.shuffle_partitions if entry else None,
            hdfs=is_hdfs_backed(conf),
        )

    @property
    def list_header(self) -> int:
        """The size of the checksum and length before each element of a list."""
        return 8 if self.row_checksums else 0


@dataclass(frozen=True)
class GivenSchema:
    """A schema that the user gives for the only store without a schema file among those that a reference matches."""

    key_json: str
    value_json: str
    ref: StoreRef

    @classmethod
    def parse(cls, text: str, ref: StoreRef = ANY_STORE) -> GivenSchema:
        """Parse ``key: COLUMNS; value: COLUMNS``. Raise ``UsageProblem`` if the text is invalid."""
        given = cls(*parse_key_and_value(text), ref)
        given.schema  # noqa: B018  an unsupported type is refused now
        return given

    @property
    def schema(self) -> FamilySchema:
        return _session_prefixed(FamilySchema(_SCHEMA_OPTION, DEFAULT_STORE, self.key_json, self.value_json))


def is_hdfs_backed(conf: Mapping[str, str]) -> bool | None:
    """Return whether a batch's configuration names the HDFS-backed state store; None if it names no store of Spark."""
    return _PROVIDERS.get(conf.get(PROVIDER, "").rpartition(".")[2])


def find_targets(logs: CheckpointLogs, batch: int, given: GivenSchema | None = None) -> list[StateTarget]:
    """Return everything that can be read as of a batch, including hidden column families, in a stable order."""
    found: list[StateTarget] = []
    for operator_id in logs.operators(batch):
        metadata = logs.operator(operator_id, batch)
        if metadata is None:
            found += _without_metadata(logs, operator_id, batch)
        elif metadata.version == 1:
            found += _plain(logs, metadata, batch)
        else:
            found += _with_families(logs, metadata, batch)
    if given is not None:
        found = _with_schema(found, given)
    return found + [_side(target) for target in found if target.store in _JOIN_SIDES and target.kind != "raw"]


def _with_schema(targets: list[StateTarget], given: GivenSchema) -> list[StateTarget]:
    """Return the targets with the given schema for the one that has none."""
    without = [target for target in select(targets, given.ref) if target.kind == "raw"]
    if not without:
        raise UsageProblem(
            "schema-not-needed",
            "the checkpoint has a schema file for this state store, so it takes no --schema",
            remedy="omit --schema",
        )
    chosen = only_one(without)
    schema = replace(given.schema, encoding=chosen.schema.encoding) if chosen.schema.encoding.columns else given.schema
    described = replace(chosen, kind="rows", schema=schema)
    return [described if target is chosen else target for target in targets]


def select(targets: list[StateTarget], ref: StoreRef) -> list[StateTarget]:
    """Return the targets that a reference matches. Raise ``UsageProblem`` if there are none."""
    matching = [target for target in targets if target.matches(ref)]
    if matching:
        return matching
    if not targets:
        raise UsageProblem("no-such-state", "this checkpoint has no state")
    raise UsageProblem(
        "no-such-state",
        "no state store or variable matches --operator, --store and --var",
        evidence={"available": "; ".join(found.arguments for found in targets if found.kind not in ("hidden", "side"))},
    )


def select_one(targets: list[StateTarget], ref: StoreRef) -> StateTarget:
    """Return the only target that a reference matches. Raise ``UsageProblem`` if there is none, or more than one."""
    return only_one(select(targets, ref))


def only_one(targets: list[StateTarget]) -> StateTarget:
    """Return the only target. Raise ``UsageProblem`` if there are several."""
    if len(targets) == 1:
        return targets[0]
    raise UsageProblem(
        "which-state",
        "there are several state stores or variables",
        evidence={"choose one of": "; ".join(target.arguments for target in targets)},
        remedy=f"add {targets[0].arguments}",
    )


def _side(target: StateTarget) -> StateTarget:
    """Return a side of a join as Spark's ``joinSide`` shows it: keys and rows, without index and flag."""
    return replace(target, store=_JOIN_SIDES[target.store], kind="side")


def _plain(logs: CheckpointLogs, metadata: OperatorMetadata, batch: int) -> Iterator[StateTarget]:
    for store in metadata.stores:
        schema = _store_schema(logs, metadata.operator_id, store.name, batch)
        kept = _prefixed(schema or _no_schema(metadata.operator_id, store.name), store.prefix_columns)
        yield _rows(metadata.operator_id, metadata.operator_name, store.name, kept, "rows" if schema else "raw")


def _without_metadata(logs: CheckpointLogs, operator_id: int, batch: int) -> Iterator[StateTarget]:
    """Return the targets of an operator without metadata, as written by Spark before 4.0, from its folders."""
    for name in logs.state.store_names[operator_id]:
        schema = _store_schema(logs, operator_id, name, batch)
        if schema is None:
            yield _rows(operator_id, "unknown operator", name, _no_schema(operator_id, name), "raw")
        else:
            yield _rows(operator_id, "unknown operator", name, _session_prefixed(schema), "rows")


def _session_prefixed(schema: FamilySchema) -> FamilySchema:
    # Before Spark 4.0, only session windows used prefix keys; the name of their last column is Spark's own.
    return _prefixed(schema, len(schema.key.fields) - 1 if schema.key.names[-1:] == [_SESSION_START] else 0)


def _prefixed(schema: FamilySchema, columns: int) -> FamilySchema:
    return replace(schema, encoding=KeyEncoding("prefix", tuple(range(columns)))) if columns else schema


def _rows(operator_id: int, operator_name: str, store: str, schema: FamilySchema, kind: Kind) -> StateTarget:
    return StateTarget(operator_id, operator_name, store, None, kind, store, None, schema)


def _store_schema(logs: CheckpointLogs, operator_id: int, store: str, batch: int) -> FamilySchema | None:
    """Return the schema of a store as of a batch; None if it has no schema file, as written by Spark before 3.1."""
    path = _schema_path(operator_id, store)
    folder, _, name = path.rpartition("/")
    if name not in logs.state.names.get(folder, []):
        return None
    data = read_bytes(logs.files, logs.former.place(path, batch))
    return parse_schema_file(data, path)[0] if data else None


def _schema_path(operator_id: int, store: str) -> str:
    # Spark writes the schema to partition 0 only.
    return f"{StoreKey(operator_id, 0, store).folder}/_metadata/schema"


def _no_schema(operator_id: int, store: str) -> FamilySchema:
    return FamilySchema(_schema_path(operator_id, store), DEFAULT_STORE, _KEY_BYTES, _VALUE_BYTES)


def _with_families(logs: CheckpointLogs, metadata: OperatorMetadata, batch: int) -> Iterator[StateTarget]:
    variables = _variables(metadata)
    for store in metadata.stores:
        *older, newest = _schema_files(logs, metadata.operator_id, store, batch)
        for schema in newest:
            if schema.name == DEFAULT_STORE and len(newest) > 1:
                continue
            same = tuple(past for schemas in [*older, newest] for past in schemas if past.name == schema.name)
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


def _schema_files(logs: CheckpointLogs, operator_id: int, store: StoreInfo, batch: int) -> list[list[FamilySchema]]:
    """Return the schemas of a store as of a batch, oldest first."""
    folder = schema_folder(operator_id, store.name)
    found = find_schema_files(logs.files, operator_id, store, logs.state.names.get(folder, []), batch)
    if not found.paths:
        raise unreadable_file("missing-file", found.missing[-1] if found.missing else folder, "does not exist")
    return [parse_schema_file(read_bytes(logs.state_files, path), path) for path in found.paths]
