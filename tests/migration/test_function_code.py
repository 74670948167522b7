"""Digests of Python functions: equal for the same code, different for edited code."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pyspark.serializers import CloudPickleSerializer

from headwater.spark.function_code import digest_of, function_digest


def defined(source: str, name: str = "f", **names: Any) -> Any:
    """Return a function or class from source text, as a module of a user defines it."""
    module = {"__name__": "jobs_of_a_user", **names}
    exec(source, module)
    return module[name]


def test_layout_does_not_count() -> None:
    """Comments, docstrings and line numbers do not change a digest."""
    plain = defined("def f(x):\n    return x + 1\n")
    commented = defined('\n\n\ndef f(x):\n    """Add one."""\n    # why not\n    return x + 1\n')
    assert digest_of(plain) == digest_of(commented)
    assert re.fullmatch(r"python3\.\d+:[0-9a-f]{16}", digest_of(plain))


def test_edits_count() -> None:
    """Another constant, another call and another default change a digest."""
    texts = ("x + 1", "x + 2", "abs(x) + 1", "x - 1")
    digests = {digest_of(defined(f"def f(x, y=3):\n    return {text}\n")) for text in texts}
    digests.add(digest_of(defined("def f(x, y=4):\n    return x + 1\n")))
    assert len(digests) == 5


def test_captured_values_and_helpers_count() -> None:
    """What a function captures, and the helpers and constants of its own module, are part of its code."""

    def adding(number: int) -> Callable[[int], int]:
        return lambda x: x + number

    assert digest_of(adding(1)) == digest_of(adding(1))
    assert digest_of(adding(1)) != digest_of(adding(2))
    one, two = (defined(f"LIMIT = {limit}\ndef f(x):\n    return x > LIMIT\n") for limit in (1, 2))
    assert digest_of(one) != digest_of(two)
    helpers = (defined(f"def g(x):\n    return x * {n}\ndef f(x):\n    return g(x)\n") for n in (1, 2))
    assert digest_of(next(helpers)) != digest_of(next(helpers))


def test_instances_count_with_their_methods_and_attributes() -> None:
    """A stateful processor is compared with its methods, those of its base classes, and its attributes."""
    text = "class f:\n    def __init__(self, n):\n        self.n = n\n    def go(self):\n        return self.n + {0}\n"
    kind, edited = defined(text.format(1)), defined(text.format(2))
    assert digest_of(kind(1)) == digest_of(kind(1))
    assert digest_of(kind(1)) != digest_of(kind(2))
    assert digest_of(kind(1)) != digest_of(edited(1))


def test_digest_survives_pickling() -> None:
    """A plan has functions in pickled form, with their return types."""
    function = defined("def f(x):\n    return x + 1\n")
    commands = [CloudPickleSerializer().dumps((function, "int")) for _ in range(2)]
    assert function_digest(commands[0]) == function_digest(commands[1])
    assert function_digest(b"not a pickle") == "unknown"
