"""The errors page lists every error that the code can raise."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from headwater.core import errors
from headwater.formats import registry
from headwater.statefiles import refusals

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/errors.md").read_text()
CLASSES = {
    name: kind.exit_status
    for module in (errors, refusals, registry)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, errors.HeadwaterError)
}
# A corrupt text file is refused through this function, whose first argument is the code.
CLASSES |= {"unreadable_file": errors.CheckpointUnreadable.exit_status}
# Passed on from another process or from the function above.
PASSED_ON = {"code", "error['error']"}


def codes_in(word: ast.expr) -> Iterator[str]:
    if isinstance(word, ast.IfExp):
        yield from codes_in(word.body)
        yield from codes_in(word.orelse)
    elif isinstance(word, ast.Constant):
        yield str(word.value)
    else:
        assert ast.unparse(word) in PASSED_ON, f"the code of an error is not a plain text: {ast.unparse(word)}"


def defaults_of(function: ast.FunctionDef) -> Iterator[tuple[int, str]]:
    """Return the code that an error has if the caller of a function does not choose one."""
    given = function.args.args[len(function.args.args) - len(function.args.defaults) :]
    defaults = {place.arg: value for place, value in zip(given, function.args.defaults, strict=True)}
    if isinstance(defaults.get("code"), ast.Constant):
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in CLASSES:
                yield from ((CLASSES[call.func.id], code) for code in codes_in(defaults["code"]))


def raised() -> dict[int, set[str]]:
    """Return every code in the source, by exit status."""
    found: dict[int, set[str]] = defaultdict(set)
    found[errors.InternalError.exit_status].add("unexpected")
    for file in (ROOT / "src/headwater").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef):
                for status, code in defaults_of(node):
                    found[status].add(code)
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if name in CLASSES and name != "InternalError":
                assert isinstance(node, ast.Call)
                found[CLASSES[name]].update(codes_in(node.args[0]))
    return found


def documented() -> dict[int, set[str]]:
    """Return every code in the tables of the page, by the exit status in the section's title."""
    found = {}
    for section in PAGE.split("\n## ")[1:]:
        if section.startswith("In Python\n"):
            continue
        status = re.search(r"[Ee]xit status (\d+)", section.splitlines()[0])
        assert status, section.splitlines()[0]
        rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
        found[int(status[1])] = {code for row in rows for code in re.findall(r"`([a-z0-9-]+)`", row)}
    return found


def test_every_error_is_documented() -> None:
    """The page has every code under its exit status, and no code that is never raised."""
    assert documented() == raised()
