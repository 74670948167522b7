"""A column of every Spark SQL type, for the state's keys and values. Rows contain text; the query casts it."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from .case import Inputs, Row, Stream

_STRUCT = "struct<a:int,b:string,c:struct<d:array<int>,e:decimal(20,2)>>"

#: column -> (SQL that converts the text to the column, four texts)
KEY_TYPES: dict[str, tuple[str, tuple[str | None, ...]]] = {
    "flag": ("cast({} as boolean)", ("true", "false", None, "true")),
    "tiny": ("cast({} as tinyint)", ("-128", "127", None, "0")),
    "small": ("cast({} as smallint)", ("-32768", "32767", None, "0")),
    "whole": ("cast({} as int)", ("-2147483648", "2147483647", None, "0")),
    "big": ("cast({} as bigint)", ("-9223372036854775808", "9223372036854775807", None, "0")),
    "single": ("cast({} as float)", ("-1.5", "3.4028235E38", None, "NaN")),
    "double_": ("cast({} as double)", ("-1.5", "1.7976931348623157E308", None, "Infinity")),
    "money": ("cast({} as decimal(9,2))", ("-1234567.89", "0.01", None, "0")),
    "money18": ("cast({} as decimal(18,6))", ("-123456789012.345678", "0.000001", None, "0")),
    "money38": ("cast({} as decimal(38,10))", ("-1234567890123456789012345678.0123456789", "1E-10", None, "0")),
    "word": ("{}", ("", "a name that is longer than sixteen bytes", None, "\u00e7\u4e2d\U0001f30a")),
    "bytes": ("unhex({})", ("", "00FF10", None, "DEADBEEFDEADBEEF01")),
    "day": ("cast({} as date)", ("0001-01-01", "9999-12-31", None, "1970-01-01")),
    "at": (
        "cast({} as timestamp)",
        ("1969-12-31T23:59:59.999999Z", "2024-02-29T12:34:56.123456Z", None, "1970-01-01T00:00:00Z"),
    ),
    "wall": (
        "cast({} as timestamp_ntz)",
        ("1582-10-15T00:00:00.000001", "2024-02-29T12:34:56.123456", None, "1970-01-01T00:00:00"),
    ),
    "months": ("cast({} as interval year to month)", ("-10-11", "178956970-7", None, "0-0")),
    "span": (
        "cast({} as interval day to second)",
        ("-1 02:03:04.000005", "106751991 04:00:54.775807", None, "0 00:00:00"),
    ),
    "record": (
        f"from_json({{}}, '{_STRUCT}')",
        (
            '{"a":1,"b":"x","c":{"d":[1,null],"e":-12345678901234567.89}}',
            '{"a":null,"b":null,"c":null}',
            None,
            '{"a":0,"b":"","c":{"d":[],"e":0}}',
        ),
    ),
    "words": ("from_json({}, 'array<string>')", ('["a",null,"longer than eight"]', "[]", None, '[""]')),
    "records": (f"from_json({{}}, 'array<{_STRUCT}>')", ('[{"a":1,"b":"y","c":null},null]', "[]", None, '[{"a":2}]')),
    "grid": ("from_json({}, 'array<array<smallint>>')", ("[[1,2],[],null]", "[]", None, "[[-3]]")),
    "moneys": (
        "from_json({}, 'array<decimal(38,2)>')",
        ("[-1.5,null,123456789012345678901234567890.12]", "[]", None, "[0]"),
    ),
}
VALUE_TYPES: dict[str, tuple[str, tuple[str | None, ...]]] = {
    **KEY_TYPES,
    "counts": ("from_json({}, 'map<string,int>')", ('{"a":1,"b":null}', "{}", None, '{"":0}')),
    "tree": ("from_json({}, 'map<string,array<double>>')", ('{"x":[1.5,null]}', "{}", None, '{"y":[],"z":null}')),
    "flags": ("from_json({}, 'array<boolean>')", ("[true,false,null]", "[]", None, "[true]")),
    "padded": ("cast({} as char(5))", ("ab", "abcde", None, "")),
    "limited": ("cast({} as varchar(9))", ("ab", "abcdefghi", None, "")),
}
VARIANT = ("parse_json({})", ('{"a":[1,2.5,"x",null,true]}', '"text"', None, "-7"))
TIME = ("cast({} as time(6))", ("00:00:00", "23:59:59.999999", None, "12:34:56.000001"))
NEWER_TYPES = {"any": VARIANT, "clock": TIME}


def key_rows() -> dict[str, Stream]:
    """Return each row twice, in two feeds, so that the second one has to be found in the state."""
    rows = _rows(KEY_TYPES)
    return {"typed": Stream(_schema(KEY_TYPES), (rows[:2], rows[1:], rows, rows[:1], rows[2:], rows))}


def value_rows(newer: bool = True) -> dict[str, Stream]:
    """Return four ids, whose values advance by one in every feed."""
    types = VALUE_TYPES | (NEWER_TYPES if newer else {})
    rows = _rows(types)
    feeds = []
    for feed in range(6):
        feeds.append(tuple({**rows[(feed + nth) % 4], "id": nth} for nth in range(4) if (feed + nth) % 3))
    return {"typed": Stream(f"id INT, {_schema(types)}", tuple(feeds))}


def distinct_keys(inputs: Inputs) -> Any:
    typed = inputs["typed"].select(
        *(F.expr(how.format(f"`{name}`")).alias(name) for name, (how, _) in KEY_TYPES.items())
    )
    return typed.dropDuplicates()


def last_values(inputs: Inputs) -> Any:
    """A column of the state for each type; Spark names all of them `last` and `valueSet`."""
    typed = _typed_values(inputs)
    return typed.groupBy("id").agg(*(F.last(name).alias(name) for name in typed.columns if name != "id"))


def last_struct(inputs: Inputs) -> Any:
    """The same types inside one struct, where they keep their names."""
    typed = _typed_values(inputs)
    return typed.groupBy("id").agg(F.last(F.struct(*(name for name in typed.columns if name != "id"))).alias("row"))


def _typed_values(inputs: Inputs) -> Any:
    types = {name: how for name, (how, _) in (VALUE_TYPES | NEWER_TYPES).items() if name in inputs["typed"].columns}
    return inputs["typed"].select("id", *(F.expr(how.format(f"`{name}`")).alias(name) for name, how in types.items()))


def _schema(types: dict[str, Any]) -> str:
    return ", ".join(f"`{name}` STRING" for name in types)


def _rows(types: dict[str, tuple[str, tuple[str | None, ...]]]) -> tuple[Row, ...]:
    return tuple({name: texts[nth] for name, (_, texts) in types.items()} for nth in range(4))
