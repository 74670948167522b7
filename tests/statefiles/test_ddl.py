"""Schemas as DDL."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import UsageProblem
from headwater.statefiles.ddl import parse_columns, parse_key_and_value
from headwater.statefiles.sqltypes import (
    ARROW_ATOMIC,
    Array,
    Atomic,
    Decimal,
    Field,
    Interval,
    Map,
    SqlType,
    Struct,
    parse_struct,
)
from statefiles.ddl_text import columns_text

LONG, STRING = Atomic("long"), Atomic("string")

atomic = st.sampled_from(sorted(ARROW_ATOMIC)).map(Atomic)
decimals = st.tuples(st.integers(1, 38), st.integers(0, 10)).map(lambda pair: Decimal(*pair))
intervals = st.sampled_from(
    [
        Interval(True, "year to month"),
        Interval(True, "month"),
        Interval(False, "day to second"),
        Interval(False, "hour"),
    ]
)
names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)


def structs(inner: st.SearchStrategy[SqlType]) -> st.SearchStrategy[Struct]:
    return st.lists(st.builds(Field, names, inner), max_size=4).map(lambda fields: Struct(tuple(fields)))


types = st.recursive(
    atomic | decimals | intervals,
    lambda inner: st.builds(Array, inner) | st.builds(Map, inner, inner) | structs(inner),
    max_leaves=8,
)


@given(structs(types))
def test_a_schema_that_was_written_is_read_back(schema: Struct) -> None:
    """Any schema, with any names, is read back as it was."""
    assert parse_struct(parse_columns(columns_text(schema))) == schema


def test_forms_that_spark_accepts() -> None:
    """Names without quotes, synonyms of types, comments, constraints and collations are accepted in any case."""
    text = """
        user string NOT NULL COMMENT 'a; key', first-seen Timestamp_Ltz, amount dec(12), `a``b` varchar(3),
        name STRING COLLATE UNICODE_CI, price NUMERIC(10, -2), took INTERVAL DAY TO SECOND, at TIME(6), nothing VOID,
        window STRUCT<start: TIMESTAMP, end TIMESTAMP NOT NULL>, by MAP<STRING, ARRAY<STRUCT<n: INT>>>, empty STRUCT<>
    """
    assert parse_struct(parse_columns(text)) == Struct(
        (
            Field("user", STRING),
            Field("first-seen", Atomic("timestamp")),
            Field("amount", Decimal(12, 0)),
            Field("a`b", STRING),
            Field("name", STRING),
            Field("price", Decimal(10, -2)),
            Field("took", Interval(False, "day to second")),
            Field("at", Atomic("time")),
            Field("nothing", Atomic("void")),
            Field("window", Struct((Field("start", Atomic("timestamp")), Field("end", Atomic("timestamp"))))),
            Field("by", Map(STRING, Array(Struct((Field("n", Atomic("integer")),))))),
            Field("empty", Struct(())),
        )
    )


def test_key_and_value() -> None:
    """Key and value are separated by a semicolon, in either order; a total without a key has no key columns."""
    key, value = parse_key_and_value("key: user STRING; value: count BIGINT")
    assert (parse_struct(key), parse_struct(value)) == (
        Struct((Field("user", STRING),)),
        Struct((Field("count", LONG),)),
    )
    assert parse_key_and_value("VALUE: count BIGINT; KEY: user STRING;") == (key, value)
    assert parse_struct(parse_key_and_value("key: ; value: count BIGINT")[0]) == Struct(())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has to describe both key and value, at character 1"),
        ("key: a INT", "has to describe both key and value, at character 11"),
        ("key: a INT; key: b INT", "has to describe key and value, each once, at character 16"),
        ("a INT; value: b INT", "has to describe key and value, each once, at character 3"),
        ("key: a INTEGRE; value: b INT", "has the unknown type 'INTEGRE', at character 8"),
        ("key: a; value: b INT", "has ';' instead of a type, at character 7"),
        ("key: a INT b INT; value: c INT", "has 'b' instead of ';', at character 12"),
        ("key: a ARRAY<INT; value: b INT", "has ';' instead of '>', at character 17"),
        ("key: a MAP<INT>; value: b INT", "has '>' instead of ',', at character 15"),
        ("key: a BIGINT(3); value: b INT", "has a type with too many parameters, at character 17"),
        ("key: a DECIMAL(x); value: b INT", "has 'x' instead of a number, at character 16"),
        ("key: a INTERVAL MONTH TO YEAR; value: b INT", "has an INTERVAL with invalid units, at character 26"),
        ("key: a INT NOT; value: b INT", "lacks NULL, at character 15"),
        ("key: a INT COMMENT x; value: b INT", "has a COMMENT without a quoted text, at character 20"),
        ("key: a @INT; value: b INT", "has an unexpected '@', at character 8"),
    ],
)
def test_invalid_schemas(text: str, problem: str) -> None:
    """The error for an invalid schema names what is wrong, and where."""
    with pytest.raises(UsageProblem) as refused:
        parse_key_and_value(text)
    assert refused.value.code == "bad-schema"
    assert refused.value.problem == f"the schema {problem}"
