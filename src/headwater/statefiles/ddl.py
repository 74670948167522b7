"""Schemas written as DDL, as Spark prints them: ``user STRING, window STRUCT<start: TIMESTAMP, end: TIMESTAMP>``.

The result is Spark's JSON form, which ``sqltypes`` parses: both forms of a schema then have the same meaning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headwater.core.errors import UsageProblem

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<quoted>`(?:[^`]|``)*`)
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<word>\w+)
      | (?P<sign>[<>(),:;-])
    )""",
    re.VERBOSE,
)
_NAMES = {
    "boolean": "boolean",
    "tinyint": "byte",
    "byte": "byte",
    "smallint": "short",
    "short": "short",
    "int": "integer",
    "integer": "integer",
    "bigint": "long",
    "long": "long",
    "float": "float",
    "real": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "string": "string",
    "char": "string",
    "character": "string",
    "varchar": "string",
    "binary": "binary",
    "time": "time",
    "variant": "variant",
    "void": "void",
    "null": "void",
}
_DECIMALS = ("decimal", "dec", "numeric")
_YEAR_MONTH = ("year", "month")
_DAY_TIME = ("day", "hour", "minute", "second")
_PARAMETERS = {"char": 1, "character": 1, "varchar": 1, "time": 1}
_EXAMPLE = "--schema 'key: user STRING; value: count BIGINT'"


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int


def parse_key_and_value(text: str) -> tuple[str, str]:
    """Return the schemas of ``key: COLUMNS; value: COLUMNS`` in Spark's JSON form. The key may have no columns."""
    parser = _Parser(text)
    parts: dict[str, Any] = {}
    while not parser.at_end:
        name = parser.word().lower()
        if name not in ("key", "value") or name in parts:
            raise parser.error("has to describe key and value, each once")
        parser.expect(":")
        parts[name] = parser.columns(until=";")
        if not parser.at_end:
            parser.expect(";")
    if len(parts) != 2:
        raise parser.error("has to describe both key and value")
    return json.dumps(parts["key"]), json.dumps(parts["value"])


def parse_columns(text: str) -> str:
    """Return the schema of ``COLUMNS`` in Spark's JSON form."""
    parser = _Parser(text)
    found = parser.columns()
    if not parser.at_end:
        raise parser.error(f"has an unexpected {parser.shown()}")
    return json.dumps(found)


class _Parser:
    """A recursive-descent parser over the tokens of a schema."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._tokenize())
        self._next = 0

    def _tokenize(self) -> Iterator[_Token]:
        at, end = 0, len(self._text.rstrip())
        while at < end:
            found = _TOKEN.match(self._text, at)
            if found is None:
                rest = self._text[at:].lstrip()
                raise self._problem(f"has an unexpected {rest[0]!r}", len(self._text) - len(rest))
            kind = found.lastgroup or ""
            yield _Token(kind, found[kind], found.start(kind))
            at = found.end()

    @property
    def at_end(self) -> bool:
        return self._next >= len(self._tokens)

    def columns(self, until: str | None = None) -> dict[str, Any]:
        """Return columns up to a sign or the end, as a struct."""
        fields: list[dict[str, Any]] = []
        if self.at_end or self._is(until):
            return {"type": "struct", "fields": fields}
        while True:
            fields.append(self._field())
            if not self._take(","):
                return {"type": "struct", "fields": fields}

    def _field(self) -> dict[str, Any]:
        name = self._name()
        self._take(":")
        kind = self._type()
        nullable = True
        while self._is_word("not", "comment"):
            if self.word().lower() == "not":
                self._expect_word("null")
                nullable = False
            elif self._token("text") is None:
                raise self.error("has a COMMENT without a quoted text")
        return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}

    def _name(self) -> str:
        quoted = self._token("quoted")
        if quoted is not None:
            return quoted[1:-1].replace("``", "`")
        name = self.word("a column name")
        # Spark accepts hyphens in the names of columns of a schema string.
        while self._take("-"):
            name += f"-{self.word('the rest of a column name')}"
        return name

    def _type(self) -> Any:
        at = self._next
        name = self.word("a type").lower()
        if name in _DECIMALS:
            precision, scale = self._parameters(2) if self._is("(") else (10, 0)
            return f"decimal({precision},{scale})"
        match name:
            case "array":
                self.expect("<")
                element = self._type()
                self.expect(">")
                return {"type": "array", "elementType": element, "containsNull": True}
            case "map":
                self.expect("<")
                key = self._type()
                self.expect(",")
                value = self._type()
                self.expect(">")
                return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
            case "struct":
                self.expect("<")
                found = self.columns(until=">")
                self.expect(">")
                return found
            case "interval":
                return self._interval()
        if name not in _NAMES:
            self._next = at
            raise self.error(f"has the unknown type {self.shown()}")
        if self._is("("):
            self._parameters(_PARAMETERS.get(name, 0))
        if name == "string" and self._is_word("collate"):
            self.word()
            self._name()
        return _NAMES[name]

    def _parameters(self, most: int) -> list[int]:
        """Return the numbers in parentheses, at most so many."""
        self.expect("(")
        found = [self._number()]
        while self._take(","):
            found.append(self._number())
        self.expect(")")
        if len(found) > most:
            raise self.error("has a type with too many parameters")
        return found + [0] * (most - len(found))

    def _number(self) -> int:
        negative = self._take("-")
        text = self.word("a number")
        if not (text.isascii() and text.isdigit()):
            self._next -= 1
            raise self.error(f"has {self.shown()} instead of a number")
        return -int(text) if negative else int(text)

    def _interval(self) -> str:
        for units in (_YEAR_MONTH, _DAY_TIME):
            if self._is_word(*units):
                first = self.word().lower()
                if not self._is_word("to"):
                    return f"interval {first}"
                self.word()
                if not self._is_word(*units[units.index(first) + 1 :]):
                    raise self.error("has an INTERVAL with invalid units")
                return f"interval {first} to {self.word().lower()}"
        return "interval"

    def word(self, wanted: str = "a name") -> str:
        """Return the next token, which has to be a word."""
        found = self._token("word")
        if found is None:
            raise self.error(f"lacks {wanted}" if self.at_end else f"has {self.shown()} instead of {wanted}")
        return found

    def expect(self, sign: str) -> None:
        if not self._take(sign):
            raise self.error(f"lacks {sign!r}" if self.at_end else f"has {self.shown()} instead of {sign!r}")

    def _expect_word(self, wanted: str) -> None:
        if not self._is_word(wanted):
            raise self.error(f"lacks {wanted.upper()}")
        self._next += 1

    def _take(self, sign: str) -> bool:
        if not self._is(sign):
            return False
        self._next += 1
        return True

    def _token(self, kind: str) -> str | None:
        if self.at_end or self._tokens[self._next].kind != kind:
            return None
        self._next += 1
        return self._tokens[self._next - 1].text

    def _is(self, sign: str | None) -> bool:
        return not self.at_end and self._tokens[self._next].kind == "sign" and self._tokens[self._next].text == sign

    def _is_word(self, *words: str) -> bool:
        found = None if self.at_end else self._tokens[self._next]
        return found is not None and found.kind == "word" and found.text.lower() in words

    def shown(self) -> str:
        """Return the next token for a message."""
        return "nothing more" if self.at_end else repr(self._tokens[self._next].text)

    def error(self, what: str) -> UsageProblem:
        at = len(self._text) if self.at_end else self._tokens[self._next].at
        return self._problem(what, at)

    def _problem(self, what: str, at: int) -> UsageProblem:
        return UsageProblem(
            "bad-schema",
            f"the schema {what}, at character {at + 1}",
            evidence={"schema": self._text},
            remedy=_EXAMPLE,
        )
