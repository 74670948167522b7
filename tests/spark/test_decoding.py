"""Which records are valid, and which are malformed."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructType

from headwater import Files, Job, Memory
from headwater.core.errors import JobRefused
from headwater.jobs.endpoints import Decoding
from headwater.spark.decoding import decode_lines
from headwater.spark.internals import json_parser
from headwater.spark.progress import progress_line
from headwater.spark.session import temporary_settings

SCHEMA = "a INT, s STRING, t TIMESTAMP, b BYTE, d DECIMAL(5,2), n STRUCT<x INT>, l ARRAY<INT>"
GOOD_JSON = [
    '{"a":1,"s":"x","t":"2024-01-01T00:00:00Z"}',
    "{'a':2, 's':'single quotes'}",
    '{"n":{"x":1},"a":3}',
    '{"s":"}{"}  \r',
    "{}",
    '{"unknown":1}',
    '{"s":"naïve ☃"}',
    '{"l":[1,2]}',
    '{"l":[],"more":[[3],[]]}',
    '{"s":"][","l":[1]}',
]
BAD_JSON = [
    None,
    b"",
    b"   ",
    b"null",
    b"1",
    b'"text"',
    b"[]",
    b'[{"a":1}]',
    b"no json",
    b'{"a":1',
    b'{"a":"five"}',
    b'{"a":3000000000}',
    b'{"b":300}',
    b'{"d":12345.6}',
    b'{"t":"soon"}',
    b'{"t":"2024-13-01T00:00:00Z"}',
    b'{"n":5}',
    b'{"n":{"x":"y"}}',
    b'{"l":["q"]}',
    b'{"a":' + b"9" * 2000 + b"}",
    b'{"s":' + b"[" * 2000 + b"]" * 2000 + b"}",
    b'{"s":"\xff\xfe"}',
    b"\xff",
    b'{"a":1} trailing',
    b'{"a":1 trailing}',
    b'{"a":1,"s":"\xc3}',
    b'\xef\xbb\xbf{"a":1}',
    b'{"a":1}{"a":2}',
    b'{"a":1},{"a":2}',
    b'{"a":1}}',
    b'{"a":1}]',
    b'{"a":1},2]',
    b'{"a":1},null],[',
    b'{"a":1}],"_headwater_records":[{"a":2}',
    b'{"a":1}],"more":[{"a":2}',
    b',{"a":1}',
    b'{"a":1},',
]
CSV_SCHEMA = "a INT, s STRING, t TIMESTAMP"
GOOD_CSV = ["1,x,2024-01-01T00:00:00Z", '2,"x,y",', ",,", "3,'single',2024-01-01 10:00:00"]
BAD_CSV = [
    None,
    b"",
    b"  ",
    b"1",
    b"1,x",
    b"1,x,2024-01-01T00:00:00Z,more",
    b"one,x,",
    b"3000000000,x,",
    b"1,x,soon",
    b'1,"open,',
    b"1,\xff,",
    b"a,s,t",
]


@pytest.fixture(params=["parser from the jar", "Spark's functions"])
def either_parser(
    request: pytest.FixtureRequest, headwater_spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> SparkSession:
    """A test of JSON runs with and without the parser from Headwater's jar."""
    assert json_parser.probe(headwater_spark)
    if request.param != "parser from the jar":
        monkeypatch.setattr(json_parser, "probe", lambda spark: False)
    return headwater_spark


def decoded(spark: SparkSession, records: list[str | bytes | None], decoding: Decoding) -> dict[int, dict[str, object]]:
    raw = [(index, record.encode() if isinstance(record, str) else record) for index, record in enumerate(records)]
    frame = decode_lines(spark, spark.createDataFrame(raw, "i INT, value BINARY"), decoding, keep=("i",))
    return {row.i: {name: value for name, value in row.asDict().items() if name != "i"} for row in frame.collect()}


def check_records(
    spark: SparkSession, good: list[str], bad: list[bytes | None], decoding: Decoding
) -> dict[int, dict[str, object]]:
    """Check that exactly the good records become rows, and return these by their position."""
    found = decoded(spark, [*good, *bad], decoding)
    assert [bad[index - len(good)] for index in found if index >= len(good)] == []
    assert sorted(found) == list(range(len(good)))
    return found


def test_json_records(either_parser: SparkSession) -> None:
    """Every valid record becomes a row with the right values, no malformed one does, and nothing raises.

    Records that end with their only brace are parsed in another way than those that end with a blank, with the same
    result.
    """
    good = [*GOOD_JSON, *(text + " " for text in GOOD_JSON)]
    bad = [*BAD_JSON, *(record + b" " for record in BAD_JSON if record is not None)]
    rows = check_records(either_parser, good, bad, Decoding(SCHEMA, "json"))
    assert rows[0]["t"].isoformat() == "2024-01-01T00:00:00"  # type: ignore[attr-defined]
    assert (rows[1]["a"], rows[1]["s"]) == (2, "single quotes")
    assert (rows[2]["a"], rows[2]["n"]["x"], rows[3]["s"]) == (3, 1, "}{")  # type: ignore[index]
    with_blank = {index - len(GOOD_JSON): row for index, row in rows.items() if index >= len(GOOD_JSON)}
    assert with_blank == {index: row for index, row in rows.items() if index < len(GOOD_JSON)}


@pytest.mark.parametrize(
    ("good", "bad", "decoding"),
    [
        (GOOD_CSV, BAD_CSV, Decoding(CSV_SCHEMA, "csv")),
        (["", "any line", "☃"], [None, b"\xff"], Decoding(None, "text")),
    ],
    ids=["csv", "text"],
)
def test_other_records(
    headwater_spark: SparkSession, good: list[str], bad: list[bytes | None], decoding: Decoding
) -> None:
    """Every valid record becomes a row, no malformed one does, and nothing raises."""
    check_records(headwater_spark, good, bad, decoding)


def test_trailing_commas_if_allowed(either_parser: SparkSession) -> None:
    """With allowTrailingComma one comma may follow an object, with white space around it, and nothing else.

    The case of the option's name does not matter. A valid record has the same values with and without commas.
    """
    good = [line + end for line in GOOD_JSON for end in ("", ",", " ,", ",  ", " \t,\r")]
    still_bad = [record for record in BAD_JSON if record != b'{"a":1},']
    bad = [
        *still_bad,
        *(record + b"," for record in still_bad if record is not None),
        *(b'{"a":1},,', b'{"a":1}, ,', b",", b" , ", b'{"a":1},x', b'{"a":1,', b'{"a":1},{"a":2},', b',{"a":1},'),
        *(b'{"s":"\xff"},', b'{"a":1},\x00', b'{"a":1}],'),
    ]
    found = check_records(either_parser, good, bad, Decoding(SCHEMA, "json", {"allowTrailingComma": "true"}))
    assert (found[0]["a"], found[0]["s"]) == (1, "x")
    assert all(found[index] == found[index // 5 * 5] for index in found)
    other_case = Decoding("a INT", "json", {"ALLOWTRAILINGCOMMA": "true"})
    assert decoded(either_parser, ['{"a":1},', '{"a":1},,'], other_case) == {0: {"a": 1}}


def test_trailing_commas_are_malformed_by_default(either_parser: SparkSession) -> None:
    """With the option false, a trailing comma makes a record malformed as without it; the last of two options applies."""
    options = {"allowTrailingComma": "true", "ALLOWTRAILINGCOMMA": "false"}
    assert decoded(either_parser, ['{"a":1},'], Decoding("a INT", "json", options)) == {}
    assert b'{"a":1},' in BAD_JSON, "without options"


FLAT_SCHEMA = "s STRING, i INT, l BIGINT, x DOUBLE, b BOOLEAN, t TIMESTAMP, d DATE, `ключ` STRING"
FLAT_RECORDS = [
    '{"s":"x","i":1,"l":-2,"x":1.5,"b":true,"t":"2024-02-29T23:59:59.5Z","d":"2024-02-29","ключ":"значение"}',
    ' { "d" : "1600-01-01" , "s" : "" , "i" : null , "s" : "again" , "more" : [1] , "t" : "9999-12-31 00:00:00" }\r',
    '{"l":999999999999999999,"i":-2147483648,"x":1e3,"b":false,"t":"1970-01-01T00:00:00.123456","more":-0.5e-3}',
    '{"s":"naïve ☃ 𝄞","i":0,"l":-0,"x":-0.0,"t":"1969-12-31T23:59:59.999999Z","d":"1900-03-01"}',
]
FLAT_VALUES = [
    *[
        "0",
        "-0",
        "01",
        "-",
        "2147483648",
        "9223372036854775807",
        "1.",
        ".5",
        "1e400",
        "-1E-7",
        "1e",
        "0.1",
        "12345678.9",
    ],
    *["null", "nul", "true", "False", "NaN", "[]", "{}", '""', '"a\\n"', '"\\u00e9"', "'x'", '"\t"', '"7"', '"x'],
    *['"2024-02-30"', '"2023-02-29"', '"2024-1-1"', '"2024-01-01T24:00:00Z"', '"2024-01-01T10:00"', '"1599-12-31"'],
    *['"2024-01-01T10:00:60Z"', '"2024-01-01T10:00:00.1234567Z"', '"2024-01-01T10:00:00+02:00"', '"2024-01-01"'],
    *['"2024-01-01T10:00:00.Z"', '"2024-01-01t10:00:00Z"', '"2100-02-29"', '"2000-02-29"', '"now"', '" 2024-01-01"'],
]


def flat_records(count: int) -> list[bytes]:
    """Return records of simple values, a third of them with a byte exchanged, and many with a value of another type."""
    chance = random.Random(7)
    fitting = {
        "s": ['""', '"x"', '"naïve"', "null"],
        "i": ["0", "-7", "2147483647", "null"],
        "l": ["999999999999999999", "-1000000000000000000", "12"],
        "x": ["1", "-0.0", "2.5e-3", "123456789012345678", "0.1"],
        "b": ["true", "false"],
        "t": ['"2024-05-01T10:00:00Z"', '"1969-12-31 23:59:59.999999"', '"2000-02-29T00:00:00.5Z"', "1700000000"],
        "d": ['"2024-02-29"', '"1970-01-01"', '"9999-12-31"'],
        "ключ": ['"значение"'],
        "more": ["1", '"x"', "[1]", '{"x":1}'],
        "S": ["1"],
    }
    found = [record.encode() for record in FLAT_RECORDS]
    while len(found) < count:
        chosen = chance.choices(list(fitting), k=chance.randint(0, 5))
        pairs = [
            f'"{name}":{chance.choice(FLAT_VALUES if chance.random() < 0.2 else fitting[name])}' for name in chosen
        ]
        record = bytearray(b"{" + ",".join(pairs).encode() + b"}")
        if chance.random() < 0.3:
            record[chance.randrange(len(record))] = chance.choice(b' ,:{}[]"\\\xff\xc3\x00-+.0a')
        found.append(bytes(record))
    return found


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_flat_records_have_the_rows_of_sparks_parser(headwater_spark: SparkSession, zone: str) -> None:
    """Records that Headwater reads itself have the values that Spark's parser gives them, and are malformed alike."""
    schema, records = StructType.fromDDL(FLAT_SCHEMA), [(one,) for one in flat_records(4_000)]
    with temporary_settings(headwater_spark, {"spark.sql.session.timeZone": zone}):
        frame = headwater_spark.createDataFrame(records, "value BINARY").coalesce(1)
        # The default locale means nothing to Spark, and keeps Headwater from reading a record itself.
        options = ({}, {"locale": "en-US"})
        own, sparks = (
            json_parser.parsed_objects(headwater_spark, schema, {**one}, allow_trailing_comma=False) for one in options
        )
        rows = frame.select("value", own.alias("own"), sparks.alias("spark"))
        assert rows.where(~F.col("own").eqNullSafe(F.col("spark"))).collect() == []
        assert 1_500 < rows.where("own IS NOT NULL").count() < 3_500


@pytest.mark.parametrize(("format_name", "wrong"), [("json", '{"a":"wrong","s":"x"}'), ("csv", "wrong,x,")])
def test_malformed_does_not_depend_on_the_columns_in_use(
    either_parser: SparkSession, format_name: str, wrong: str
) -> None:
    """A record with an invalid field is malformed even if the job does not use that field."""
    raw = either_parser.createDataFrame([(wrong,)], "value STRING")
    assert decode_lines(either_parser, raw, Decoding(CSV_SCHEMA, format_name)).select("s").collect() == []


def test_options_cannot_make_malformed_records_stop_the_stream(either_parser: SparkSession) -> None:
    """The option FAILFAST is overridden; other options apply."""
    options = {"mode": "FAILFAST", "timestampFormat": "dd.MM.yyyy"}
    found = decoded(either_parser, ['{"t":"01.02.2024"}', "bad"], Decoding("t TIMESTAMP", "json", options))
    assert [row["t"].isoformat() for row in found.values()] == ["2024-02-01T00:00:00"]  # type: ignore[attr-defined]


def test_a_schema_object_is_not_modified(either_parser: SparkSession) -> None:
    """Decoding does not modify the job's StructType."""
    schema = StructType().add("a", IntegerType())
    raw = either_parser.createDataFrame([], "value STRING")
    assert decode_lines(either_parser, raw, Decoding(schema, "json")).columns == ["a"]
    assert schema.fieldNames() == ["a"]


@pytest.mark.parametrize(
    ("decoding", "code"),
    [
        (Decoding(None, "json"), "no-schema"),
        (Decoding("a INT, b", "json"), "spark-refuses"),
        (Decoding("a INT", "text"), "text-schema"),
        (Decoding("a INT", "xml"), "record-format"),
    ],
)
def test_invalid_decodings_are_refused(headwater_spark: SparkSession, decoding: Decoding, code: str) -> None:
    """A missing or invalid schema and an unknown format are refused without a Spark exception."""
    with pytest.raises(JobRefused) as refused:
        decoded(headwater_spark, [], decoding)
    assert refused.value.code == code
    assert "JVM" not in str(refused.value)
    assert "SQLSTATE" not in str(refused.value)


def keep_all(rows: DataFrame) -> DataFrame:
    """The rows, unchanged."""
    return rows


def twice(rows: DataFrame) -> DataFrame:
    """Every row twice."""
    return rows.union(rows)


def test_malformed_records_are_counted(either_parser: SparkSession, drain, tmp_path: Path) -> None:
    """Spark's progress report and the progress line show how many records of a batch were malformed."""
    folder = tmp_path / "in"
    folder.mkdir()
    job = Job(
        "counted", keep_all, reads=Files(str(folder), schema="a INT"), writes=Memory("counted"), trigger="available-now"
    )
    (folder / "1.json").write_bytes(b'{"a":1}\nbad\n\n{"a":2}\n\xff\n')
    with job.start(either_parser, tmp_path / "checkpoint") as running:
        running.wait()
    first = running.progress
    report = running.query.lastProgress
    assert first is not None and report is not None
    observed = report["observedMetrics"]["headwater_source"]
    assert (observed["records"], observed["malformed"], first.malformed) == (5, 3, 3)
    assert progress_line(first).endswith("malformed 3")
    assert sorted(row.a for row in either_parser.table("counted").collect()) == [1, 2]
    per_batch = replace(job, name="twice", transform=twice, per_batch=True, writes=Memory("twice"))
    (again,) = drain(per_batch, tmp_path / "second")
    assert (again.input_rows, again.malformed) == (5, 3), "a function that uses its batch twice counts its records once"
    assert either_parser.table("twice").count() == 4
