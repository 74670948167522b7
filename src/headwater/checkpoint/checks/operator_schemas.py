"""The metadata of operators exists, and so do the schema files of their state."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.layout import STATE, batch_id
from headwater.checkpoint.operator_metadata import (
    OperatorMetadata,
    find_schema_files,
    schema_folder,
    version_2_folder,
)
from headwater.core.finding import Finding
from headwater.core.ids import StoreKey

_UNREADABLE = "the state cannot be read"


def check(context: CheckContext) -> Iterator[Finding]:
    last = context.last_committed
    for operator in context.logs.operators(last) if last is not None else ():
        metadata = context.logs.operator(operator, last or 0)
        if metadata is None:
            yield from _no_metadata(context, operator)
        elif metadata.version > 1:
            yield from _schema_files(context, metadata, last or 0)
        else:
            yield from _schemas(context, metadata)


def _no_metadata(context: CheckContext, operator: int) -> Iterator[Finding]:
    """Yield a finding if an operator has the schema files to which only metadata of version 2 refers, and no metadata."""
    folders = context.logs.present_state.names
    has_schemas = any(folder.startswith(f"{STATE}/{operator}/_stateSchema/") for folder in folders)
    if has_schemas and not any(batch_id(name) is not None for name in folders.get(version_2_folder(operator), ())):
        message = f"does not exist, although the operator has schema files: {_UNREADABLE}"
        yield Finding("error", "operator-metadata-missing", version_2_folder(operator), message)


def _schema_files(context: CheckContext, metadata: OperatorMetadata, last: int) -> Iterator[Finding]:
    operator = metadata.operator_id
    for store in metadata.stores:
        folder = schema_folder(operator, store.name)
        names = context.logs.state.names.get(folder, [])
        found = find_schema_files(context.logs.files, operator, store, names, last)
        consequence = f"Headwater reads the state with {found.paths[-1]}" if found.paths else _UNREADABLE
        for path in found.missing:
            message = f"is missing, but the operator's metadata refers to it: {consequence}"
            yield Finding("error", "schema-missing", path, message)
        if not found.paths and not found.missing:
            yield Finding("error", "schema-missing", folder, f"contains no schema file: {_UNREADABLE}")


def _schemas(context: CheckContext, metadata: OperatorMetadata) -> Iterator[Finding]:
    """Yield the stores without the one schema that version 1 has for each of them, in the first partition."""
    for store in metadata.stores:
        partition = StoreKey(metadata.operator_id, 0, store.name).folder
        folder = f"{partition}/_metadata"
        # A missing partition is another finding.
        if partition in context.logs.state.names and "schema" not in context.logs.state.names.get(folder, ()):
            message = (
                "is missing: Headwater shows keys and values as bytes, and Spark does not notice if the query's code no "
                "longer matches the state"
            )
            yield Finding("warning", "schema-missing", f"{folder}/schema", message)
