"""Every stateful operator has as many partitions on disk as the last batch was configured with."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.layout import STATE
from headwater.checkpoint.logtext import read_bytes
from headwater.checkpoint.state_folder import MOST_PARTITIONS
from headwater.core.errors import CheckpointUnreadable
from headwater.core.finding import Finding
from headwater.core.text import count

_EMPTY_KEYS = (b'{"type":"struct","fields":[]}', b'{"type":"struct","fields":[{"name":"key","type":"void"')
"""The keys of a total without a key, and of a limit, whose operator has no metadata before Spark 4.0."""


def check(context: CheckContext) -> Iterator[Finding]:
    last = context.last_committed
    entry = None if last is None else context.logs.offsets.get(last)
    wanted = entry.shuffle_partitions if entry else None
    if last is None or wanted is None or wanted > MOST_PARTITIONS:
        return
    for operator in context.logs.operators(last):
        found = context.logs.state.partitions[operator]
        difference = f"has {count(len(found), 'partition')}, but spark.sql.shuffle.partitions is {wanted}"
        missing = sorted(set(range(wanted)) - found)
        if missing and not (found == {0} and _is_never_distributed(context, operator, last)):
            message = f"{difference}; partition {missing[0]} has no state"
            yield Finding("error", "partition-count", f"{STATE}/{operator}", message)
        extra = sorted(found - set(range(wanted)))
        if extra:
            message = f"{difference}; partitions {extra[0]} and above are no longer used"
            yield Finding("warning", "partition-count", f"{STATE}/{operator}", message)


def _is_never_distributed(context: CheckContext, operator: int, batch: int) -> bool:
    """Return whether an operator has one partition whatever the configuration: a limit, or a total without a key."""
    metadata = context.logs.operator(operator, batch)
    if metadata is not None and metadata.operator_name == "globalLimit":
        return True
    try:
        schema = read_bytes(context.files, f"{STATE}/{operator}/0/_metadata/schema")
        return any(key in schema for key in _EMPTY_KEYS)
    except CheckpointUnreadable:
        return metadata is None  # Spark before 3.1 wrote no schema, so nothing contradicts it
