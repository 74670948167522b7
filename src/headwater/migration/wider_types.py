"""Types that represent all values of another, and expressions that differ only in casts."""

from __future__ import annotations

from headwater.statefiles.sqltypes import Atomic, Decimal, SqlType, Struct

_INTEGERS = ("byte", "short", "integer", "long")
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}


def alike(old: SqlType, new: SqlType) -> bool:
    """Return whether two types differ in nothing but the names of fields."""
    if isinstance(old, Struct) and isinstance(new, Struct):
        pairs = zip(old.fields, new.fields, strict=False)
        return len(old.fields) == len(new.fields) and all(alike(one.type, other.type) for one, other in pairs)
    return old == new


def widens(old: SqlType, new: SqlType) -> bool:
    """Return whether a type can represent the values of another; for those that it cannot, the cast itself fails."""
    match old, new:
        case Atomic(before), Atomic(after) if before in _INTEGERS:
            wider = after in _INTEGERS and _INTEGERS.index(after) > _INTEGERS.index(before)
            return wider or after in ("float", "double")
        case Atomic(before), Decimal(precision, scale) if before in _INTEGERS:
            return precision - scale >= _DIGITS[before]
        case Atomic("float"), Atomic("double"):
            return True
        case Decimal(digits, places), Decimal(precision, scale):
            return scale >= places and precision - scale >= digits - places
    return False


def without_casts(text: str) -> str:
    """Return an expression without its casts: ``sum(cast(amount as double))`` becomes ``sum(amount)``."""
    start = text.find("cast(")
    if start < 0:
        return text
    depth, end = 0, len(text)
    split = None
    for at in range(start + len("cast"), len(text)):
        if text[at] == "(":
            depth += 1
        elif text[at] == ")":
            depth -= 1
            if depth == 0:
                end = at
                break
        elif depth == 1 and text.startswith(" as ", at):
            split = at
    if split is None or end == len(text):
        return text
    inner = text[start + len("cast(") : split]
    return text[:start] + without_casts(inner) + without_casts(text[end + 1 :])
