"""Conditions that name a key: ``user = 'ann'``, alone or together with other comparisons.

Their keys are looked up, and DuckDB is needed only for what else the condition says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.statefiles.sqltypes import Atomic, Field

_COMPARISON = re.compile(
    r"""\s*(?:(?P<part>key|value)\s*\.\s*)?(?:"(?P<quoted>[^"]+)"|(?P<name>[A-Za-z_]\w*))
    \s*(?P<operator>==?|<=|>=|<>|!=|<|>)
    \s*(?:'(?P<text>(?:[^']|'')*)'|(?P<number>[+-]?\d+(?:\.\d+)?))\s*""",
    re.VERBOSE | re.IGNORECASE,
)
_AND = re.compile(r"and\b", re.IGNORECASE)
_INTEGERS = ("byte", "short", "integer", "long")


@dataclass(frozen=True)
class KeyCondition:
    """The fields of a key that a condition gives, as for ``--key``; ``complete`` if it says nothing else."""

    fields: dict[str, str]
    complete: bool


def key_condition(condition: str, key: Sequence[Field]) -> KeyCondition | None:
    """Return which fields of a key a condition gives, out of the key's own; None if it gives none.

    Only comparisons of a column with a literal, joined by ``and``, are understood. Strings are compared with strings and
    integers with integers, because DuckDB converts other values in its own way.
    """
    types = {field.name.lower(): field for field in key}
    if len(types) < len(key) or {"key", "value"} & types.keys():
        return None
    found: dict[str, str] = {}
    complete, at = True, 0
    while True:
        term = _COMPARISON.match(condition, at)
        if term is None:
            return None
        at = term.end()
        field = None if (term["part"] or "").lower() == "value" else types.get((term["quoted"] or term["name"]).lower())
        value = None if field is None or term["operator"] not in ("=", "==") else _value(field, term)
        if field is None or value is None or field.name in found:
            complete = False
        else:
            found[field.name] = value
            complete = complete and value != "null"  # as a field of a key, null is also the absence of a value
        if at == len(condition):
            return KeyCondition(found, complete) if found else None
        joined = _AND.match(condition, at)
        if joined is None:
            return None
        at = joined.end()


def _value(field: Field, term: re.Match[str]) -> str | None:
    if field.type == Atomic("string") and term["text"] is not None:
        return term["text"].replace("''", "'")
    is_integer = isinstance(field.type, Atomic) and field.type.name in _INTEGERS
    if is_integer and term["number"] is not None and "." not in term["number"]:
        return term["number"].removeprefix("+")
    return None
