"""One JSON object a record, said with Spark's own functions.

Spark's ``from_json`` stops behind the first value that it finds and says nothing of what follows. A record whose only
closing brace is its last character cannot have anything behind its object, and is read as it is. The others (nested
objects, braces in strings, a line's blank end) are read as the only element of an array, where what follows shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

RECORDS = "_headwater_records"
END_MARK = "headwater: end of record"


def json_by_functions(
    raw: DataFrame, schema: StructType, options: Mapping[str, str], *, keep: Sequence[str], malformed: str
) -> DataFrame:
    """See ``json_records``."""
    text, corrupt = F.col("value").cast("string"), StructField(options["columnNameOfCorruptRecord"], StringType())
    simple, valid, nothing = _ends_with_its_only_brace(text), F.is_valid_utf8(text), F.lit(None)
    plain = F.from_json(text, StructType([*schema.fields, corrupt]), {**options})
    wrapped = F.concat(F.lit(f'{{"{RECORDS}":['), text, F.lit("]}"))
    held = F.from_json(wrapped, StructType([StructField(RECORDS, ArrayType(schema)), corrupt]), {**options})
    # In two steps, because Spark parses again for each use of what it parses in the branch of a "when".
    parsed = raw.select(
        *keep,
        F.when(simple & valid, plain).alias("plain"),
        F.when(simple | ~valid, nothing).when(_leaves_its_array(text, options), nothing).otherwise(held).alias("held"),
    )
    one = F.get(f"held.{RECORDS}", F.lit(0))
    found = F.col("plain").isNotNull() | (F.size(f"held.{RECORDS}").eqNullSafe(F.lit(1)) & one.isNotNull())
    marked = F.col(f"plain.{corrupt.name}").isNotNull() | F.col(f"held.{corrupt.name}").isNotNull()
    fields = [F.coalesce(F.col("plain").getField(name), one.getField(name)).alias(name) for name in schema.fieldNames()]
    return parsed.select(*fields, *keep, (~found | marked).alias(malformed))


def _ends_with_its_only_brace(text: Column) -> Column:
    # Bytes, because Spark counts the characters of a text one by one.
    octets = text.cast("binary")
    all_but_last = F.call_function("substring", octets, F.lit(1), F.octet_length(octets) - 1).cast("string")
    brace = F.lit("}")
    return F.startswith(text, F.lit("{")) & F.endswith(text, brace) & ~F.contains(all_but_last, brace)


def _leaves_its_array(text: Column, options: Mapping[str, str]) -> Column:
    """A record may close the array around it and open another one, behind a bracket that closes and one that opens.

    The few that have those in this order are read once more, as the first of two elements: nothing hides the second.
    """
    opened_again = F.call_function("locate", F.lit("["), text, F.instr(text, "]")) > 0
    array = F.concat(F.lit("["), text, F.lit(f',"{END_MARK}"]'))
    elements = F.from_json(array, "array<string>", {**options})
    alone = (F.coalesce(F.size(elements), F.lit(0)) == 2) & F.get(elements, F.lit(1)).eqNullSafe(F.lit(END_MARK))
    # Spark computes what stands twice behind an "and" for every record; behind a "when" it waits for the condition.
    closed = F.contains(text, F.lit("]"))
    return F.when(closed, F.when(opened_again, ~alone).otherwise(F.lit(False))).otherwise(F.lit(False))
