"""JSON records parsed from bytes by the parser behind ``from_json``, through ``JsonObjects.java``.

``from_json`` creates an 8 kB reader for each record, which takes longer than parsing a short one. Flat records are read
without the parser (``FlatObjects.java``), with the same result.

Seen on: PySpark 4.0.5, 4.1.4, 4.2.0, 4.3.0.
Without it (a JVM that another program started does not have the jar): ``decoding`` expresses the same rule with Spark's
own functions, at half the speed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater.spark.internals.plans import items

SQL = "org/apache/spark/sql"
EXPRESSION, LITERAL = f"{SQL}/catalyst/expressions/Expression", f"{SQL}/catalyst/expressions/Literal"
OPTIONS, COLUMN = f"{SQL}/catalyst/json/JSONOptions", f"{SQL}/Column"
TYPE, STRUCT, BYTES = f"{SQL}/types/DataType", f"{SQL}/types/StructType", "org/apache/spark/unsafe/types/UTF8String"
TEXT, SEQ, MAP = "java/lang/String", "scala/collection/immutable/Seq", "scala/collection/immutable/Map"
FIELD, METADATA, OPTION = f"{SQL}/types/StructField", f"{SQL}/types/Metadata", "scala/Option"
# What the classes call of Spark, as the JVM links it. A test compares this list with the class files.
CALLS = (
    (LITERAL, "fromObject", f"(Ljava/lang/Object;L{TYPE};)L{LITERAL};"),
    (f"{SQL}/catalyst/expressions/objects/Invoke", "<init>", f"(L{EXPRESSION};L{TEXT};L{TYPE};L{SEQ};L{SEQ};ZZZ)V"),
    (OPTIONS, "<init>", f"(L{MAP};L{TEXT};L{TEXT};)V"),
    (f"{SQL}/catalyst/json/JacksonParser", "<init>", f"(L{TYPE};L{OPTIONS};ZL{SEQ};)V"),
    (
        f"{SQL}/catalyst/json/JacksonParser",
        "parse",
        "(Ljava/lang/Object;Lscala/Function2;Lscala/Function1;)Lscala/collection/Iterable;",
    ),
    (f"{SQL}/classic/ExpressionUtils", "column", f"(L{EXPRESSION};)L{COLUMN};"),
    (f"{SQL}/classic/ExpressionUtils", "expression", f"(L{COLUMN};)L{EXPRESSION};"),
    (f"{SQL}/types/ObjectType", "<init>", "(Ljava/lang/Class;)V"),
    (STRUCT, "asNullable", f"()L{STRUCT};"),
    (BYTES, "fromBytes", f"([B)L{BYTES};"),
    (BYTES, "isValid", "()Z"),
    (OPTIONS, "timestampFormatInRead", f"()L{OPTION};"),
    (OPTIONS, "dateFormatInRead", f"()L{OPTION};"),
    (STRUCT, "fields", f"()[L{FIELD};"),
    (FIELD, "name", f"()L{TEXT};"),
    (FIELD, "dataType", f"()L{TYPE};"),
    (FIELD, "metadata", f"()L{METADATA};"),
    (TYPE, "simpleString", f"()L{TEXT};"),
    (METADATA, "json", f"()L{TEXT};"),
    (f"{SQL}/catalyst/expressions/GenericInternalRow", "<init>", "([Ljava/lang/Object;)V"),
    (BYTES, "fromBytes", f"([BII)L{BYTES};"),
)
STATIC_METHODS = {"fromObject", "column", "expression", "fromBytes"}
TRIED = ("4.0", "4.1", "4.2", "4.3")


def probe(spark: SparkSession) -> bool:
    """Return whether the JVM has the class, and the class works on this Spark. Tried once for each JVM.

    On the versions that were tried, Spark only has to have the methods that the class calls. On others a record is
    parsed, which takes a second in a JVM that has just started.
    """
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        return False
    if jvm not in _works:
        present = isinstance(jvm.headwater.sql.JsonObjects, JavaClass) and is_linked(spark)
        _works[jvm] = present and (spark.version.startswith(TRIED) or parses_a_record(spark))
    return _works[jvm]


_works: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def is_linked(spark: SparkSession, calls: Iterable[tuple[str, str, str]] = CALLS) -> bool:
    """Return whether this Spark has every method that the class calls, with the same types."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    lookup = jvm.java.lang.invoke.MethodHandles.publicLookup()
    try:
        for owner, method, descriptor in calls:
            types = jvm.java.lang.invoke.MethodType.fromMethodDescriptorString(descriptor, loader)
            of = loader.loadClass(owner.replace("/", "."))
            if method == "<init>":
                lookup.findConstructor(of, types)
            elif method in STATIC_METHODS:
                lookup.findStatic(of, method, types)
            else:
                lookup.findVirtual(of, method, types)
    except Py4JError:
        return False
    return True


def parses_a_record(spark: SparkSession) -> bool:
    """Return whether the class parses a record."""
    try:
        schema = StructType().add("n", "integer")
        record = F.lit(bytearray(b'{"n": 1}'))
        frame: Any = spark.range(0).select(
            _parsed(spark, record, schema, {}, allow_trailing_comma=False).alias("record")
        )
        # Evaluated in the driver: a Spark job would take longer than all other probes together.
        (alias,) = items(frame._jdf.queryExecution().analyzed().expressions())
        row = alias.child().eval(None)
        return row is not None and bool(row.getInt(0) == 1)
    except (Py4JError, PySparkException):
        return False


def parsed_objects(
    spark: SparkSession, schema: StructType, options: Mapping[str, str], *, allow_trailing_comma: bool
) -> Column:
    """Return a struct with the schema's fields parsed from the column ``value``; null for a malformed record."""
    octets = F.col("value").cast("binary")
    return _parsed(spark, octets, schema, options, allow_trailing_comma=allow_trailing_comma)


def _parsed(
    spark: SparkSession, octets: Any, schema: StructType, options: Mapping[str, str], *, allow_trailing_comma: bool
) -> Column:
    jvm: Any = spark._jvm
    java_schema = jvm.org.apache.spark.sql.types.StructType.fromJson(schema.json())
    zone = spark.conf.get("spark.sql.session.timeZone")
    parser = jvm.headwater.sql.JsonObjects
    return Column(parser.column(octets._jc, java_schema, {**options}, zone, allow_trailing_comma))
