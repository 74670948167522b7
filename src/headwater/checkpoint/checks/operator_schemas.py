"""The schema files that the metadata of custom state refers to exist."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.operator_metadata import schema_folder
from headwater.core.finding import Finding


def check(context: CheckContext) -> Iterator[Finding]:
    last = context.last_committed
    for operator in context.logs.state.operators if last is not None else ():
        metadata = context.logs.operator(operator, last or 0)
        for store in metadata.stores if metadata else ():
            folder = schema_folder(operator, store.name)
            for path in store.schema_paths:
                name = path.rpartition("/")[2]
                if not context.has(f"{folder}/{name}"):
                    message = "is missing, but the operator's metadata refers to it: the state cannot be read"
                    yield Finding("error", "schema-missing", f"{folder}/{name}", message)
