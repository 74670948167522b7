"""One key through the batches, as lines to draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headwater.core.ids import BatchId
from headwater.statefiles.reader import StateReader
from headwater.statefiles.stores import StateTarget
from headwater.timemachine.key_history import key_history
from headwater.views.page_state import plain
from headwater.views.state_table import cells, fields_of, readable

MOST_BATCHES = 300


@dataclass(frozen=True)
class KeyLines:
    """``numbers`` by field, a value for each of ``batches`` (None: the key was not there); ``steps`` are the changes."""

    batches: list[int]
    numbers: dict[str, list[float | None]]
    steps: list[tuple[int, str]]


def key_lines(reader: StateReader, target: StateTarget, key: Mapping[str, str | None], upto: int) -> KeyLines:
    """The last few hundred batches whose state can be rebuilt, up to one."""
    held = [batch for batch in reader.readable(target.operator_id) if batch <= upto][-MOST_BATCHES:]
    asked = {name: "null" if text is None else text for name, text in key.items()}
    found = key_history(reader, target, asked, held)
    # A null in a text field cannot be asked for, so that several keys may fit; the first is as good as any.
    count = min(len(held), len(found))
    names, types, columns = fields_of(found.answer.value_type, found.value.slice(0, count))
    types, columns = readable(names, types, columns)
    texts = [
        [plain(text) for text in cells(kind, column).to_pylist()] for kind, column in zip(types, columns, strict=True)
    ]
    there = found.value.slice(0, count).is_valid().to_pylist()
    numbers = {
        name: [None if value is None else float(value) for value in column.to_pylist()]
        for name, column in zip(names, columns, strict=True)
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)
    }
    return KeyLines([int(batch) for batch in held[:count]], numbers, _steps(held[:count], names, texts, there))


def _steps(
    batches: Sequence[BatchId], names: list[str], texts: list[list[str | None]], there: list[bool]
) -> list[tuple[int, str]]:
    """Only batches at which something changed."""
    found: list[tuple[int, str]] = []
    for place, batch in enumerate(batches):
        told = ", ".join(f"{name} {texts[field][place] or 'null'}" for field, name in enumerate(names))
        told = told if there[place] else "not there"
        if not found or found[-1][1] != told:
            found.append((int(batch), told))
    return found
