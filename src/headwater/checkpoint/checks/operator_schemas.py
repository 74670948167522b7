"""The metadata of custom state can be read, and its schema files exist."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.layout import STATE
from headwater.checkpoint.operator_metadata import find_schema_files, schema_folder
from headwater.core.finding import Finding

_UNREADABLE = "the state cannot be read"


def check(context: CheckContext) -> Iterator[Finding]:
    last = context.last_committed
    for operator in context.logs.operators(last) if last is not None else ():
        metadata = context.logs.operator(operator, last or 0)
        if metadata is None and any(folder.startswith(f"{STATE}/{operator}/_stateSchema/") for folder in context.tree):
            path = f"{STATE}/{operator}/_metadata"
            message = f"has no file that can be read, although the operator has schemas: {_UNREADABLE}"
            yield Finding("error", "operator-metadata-missing", path, message)
        for store in metadata.stores if metadata and metadata.version > 1 else ():
            folder = schema_folder(operator, store.name)
            names = context.logs.state.names.get(folder, [])
            found = find_schema_files(context.logs.files, operator, store, names, last or 0)
            consequence = f"Headwater reads the state with {found.paths[-1]}" if found.paths else _UNREADABLE
            for path in found.missing:
                message = f"is missing, but the operator's metadata refers to it: {consequence}"
                yield Finding("error", "schema-missing", path, message)
            if not found.paths and not found.missing:
                yield Finding("error", "schema-missing", folder, f"contains no schema file: {_UNREADABLE}")
