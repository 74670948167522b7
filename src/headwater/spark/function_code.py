"""Digests of the Python functions of a plan.

Two digests are equal if the functions have the same bytecode, constants and captured values. Different digests only show
that the code was edited: a digest cannot tell whether the function still computes the same. Comments, docstrings and line
numbers do not count, nor does code outside the module of the function. The bytecode belongs to a version of Python, which
is therefore part of a digest.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

from pyspark.serializers import CloudPickleSerializer

UNKNOWN = "unknown"
_PLAIN = (str, bytes, int, float, bool, type(None), complex)
_DEEPEST = 8


def function_digest(command: bytes) -> str:
    """Return the digest of a pickled function, such as ``python3.11:1f0c…``; ``unknown`` if it cannot be loaded."""
    try:
        loaded = CloudPickleSerializer().loads(command)
    except Exception:  # a function of the user may raise anything when it is loaded
        return UNKNOWN
    return digest_of(loaded)


def digest_of(value: Any) -> str:
    """Return the digest of a function, of an instance with methods, or of a tuple that contains one."""
    text = hashlib.sha256()
    for part in _parts(value, _DEEPEST, set()):
        text.update(part.encode("utf-8", "surrogatepass"))
        text.update(b"\0")
    return f"python{sys.version_info.major}.{sys.version_info.minor}:{text.hexdigest()[:16]}"


def _parts(value: Any, depth: int, seen: set[int]) -> Iterator[str]:
    if isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r}"
        return
    if depth == 0 or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, tuple | list):
        for item in value:
            yield from _parts(item, depth - 1, seen)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield f"item {name!r}"
            yield from _parts(item, depth - 1, seen)
    elif isinstance(value, MethodType):
        yield from _parts(value.__func__, depth, seen)
        yield from _parts(value.__self__, depth - 1, seen)
    elif isinstance(value, FunctionType):
        yield from _function(value, depth, seen)
    elif isinstance(value, type):
        yield from _class(value, depth, seen)
    elif type(value).__module__ != "builtins":
        yield from _class(type(value), depth, seen)
        yield from _parts(getattr(value, "__dict__", {}), depth - 1, seen)


def _function(function: FunctionType, depth: int, seen: set[int]) -> Iterator[str]:
    for cell in function.__closure__ or ():
        try:
            yield from _parts(cell.cell_contents, depth - 1, seen)
        except ValueError:  # a cell that is still empty
            continue
    if _is_foreign(function.__module__):
        return
    yield from _code(function.__code__, function.__doc__)
    yield from _parts(function.__defaults__ or (), depth - 1, seen)
    yield from _parts(function.__kwdefaults__ or {}, depth - 1, seen)
    for name in function.__code__.co_names:
        used = function.__globals__.get(name)
        if isinstance(used, _PLAIN) or getattr(used, "__module__", None) == function.__module__:
            yield f"global {name}"
            yield from _parts(used, depth - 1, seen)


def _class(kind: type, depth: int, seen: set[int]) -> Iterator[str]:
    for base in kind.__mro__:
        if _is_foreign(base.__module__) or id(base) in seen:
            continue
        seen.add(id(base))
        for name, member in sorted(vars(base).items()):
            if name.startswith("__") and name not in ("__init__", "__call__"):
                continue
            yield f"member {name}"
            yield from _parts(getattr(member, "__func__", member), depth - 1, seen)


def _code(code: CodeType, docstring: str | None) -> Iterator[str]:
    yield code.co_code.hex()
    yield " ".join(code.co_names)
    for place, constant in enumerate(code.co_consts):
        if isinstance(constant, CodeType):
            yield from _code(constant, None)
        elif place or constant not in (None, docstring):  # the place of the docstring
            yield repr(sorted(constant, key=repr) if isinstance(constant, frozenset) else constant)


def _is_foreign(module: str | None) -> bool:
    """Return whether code belongs to Python or to an installed library that wraps the user's functions."""
    if (module or "").startswith("headwater.jobs.gallery"):
        return False
    top = (module or "").partition(".")[0]
    return top in ("pyspark", "headwater") or top in sys.stdlib_module_names
