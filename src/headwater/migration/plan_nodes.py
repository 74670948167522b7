"""The plan of a query as plain values, as far as the meaning of its state depends on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_COLUMN = re.compile(r"(?P<name>.*)#(?P<id>\d+)L?(?:-T(?P<delay>\d+)ms)?", re.DOTALL)


@dataclass(frozen=True)
class Column:
    """A column of a node's output. ``id`` is unique within a plan; ``delay_ms`` is the delay of its watermark."""

    name: str
    id: int
    delay_ms: int | None = None

    @classmethod
    def parse(cls, text: str) -> Column:
        """Return a column that Spark shows as ``at#7``, ``total#8L`` or ``at#7-T600000ms``."""
        found = _COLUMN.fullmatch(text)
        if found is None:
            raise ValueError(f"not a column: {text}")
        delay = found["delay"]
        return cls(found["name"], int(found["id"]), None if delay is None else int(delay))


@dataclass(frozen=True)
class PlanNode:
    """A node of an analyzed plan. Its expressions are as Spark shows them, with the ids of columns."""

    name: str
    output: tuple[Column, ...] = ()
    expressions: tuple[str, ...] = ()
    children: tuple[PlanNode, ...] = ()
    is_streaming: bool = True
    source: str | None = None
    """The source of a job whose records begin here; what decodes them is omitted."""
    keys: tuple[str, ...] = ()
    """The keys of a grouping or of a deduplication."""
    functions: tuple[str, ...] = ()
    """The aggregate functions, in the order in which the state stores them."""
    buffer_sizes: tuple[int, ...] = ()
    """How many fields of a value each aggregate function has."""
    details: Mapping[str, str] = field(default_factory=dict)
    """What else defines the node: the type of a join, the timeout of a state function."""
    code: tuple[str, ...] = ()
    """Digests of the Python functions in its expressions."""
